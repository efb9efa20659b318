// Values of the Jinja engine, after Python's: undefined differs from none, integers are exact, and
// sequences know which Python type they stand for.
//
// Strings, sequences and dictionaries are immutable and shared, so a copy is cheap and no value can
// contain itself. What does change (namespaces, loops) or closes over variables (macros) is owned
// by the rendering and only pointed to: a Value must not outlive the rendering that made it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/text.h"

namespace pewter::jinja {

class Value;
struct Dict;
struct Loop;
struct Macro;
struct Method;
struct Namespace;
struct Sequence;

struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"; null when nobody will ask
};
struct None {};
using BigInteger = std::shared_ptr<const std::string>;  // decimal digits of an integer past int64

// A function of the global namespace; Method is one that belongs to a value.
enum class GlobalFunction { kRange, kNamespace, kDict, kRaiseException, kStrftimeNow };

class Value {
 public:
  enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInteger,
    kBigInteger,
    kFloat,
    kString,
    kSequence,
    kDict,
    kNamespace,
    kLoop,
    kMacro,
    kMethod,
    kGlobalFunction
  };

  Value() = default;
  Value(None value) : value_(value) {}                                           // NOLINT: implicit
  Value(bool value) : value_(value) {}                                           // NOLINT
  Value(int value) : value_(static_cast<int64_t>(value)) {}                      // NOLINT
  Value(int64_t value) : value_(value) {}                                        // NOLINT
  Value(double value) : value_(value) {}                                         // NOLINT
  Value(BigInteger value) : value_(std::move(value)) {}                          // NOLINT
  Value(Text value) : value_(std::make_shared<const Text>(std::move(value))) {}  // NOLINT
  Value(std::shared_ptr<const Sequence> value) : value_(std::move(value)) {}     // NOLINT
  Value(std::shared_ptr<const Dict> value) : value_(std::move(value)) {}         // NOLINT
  Value(Namespace* value) : value_(value) {}                                     // NOLINT
  Value(Loop* value) : value_(value) {}                                          // NOLINT
  Value(const Macro* value) : value_(value) {}                                   // NOLINT
  Value(std::shared_ptr<const Method> value) : value_(std::move(value)) {}       // NOLINT
  Value(GlobalFunction value) : value_(value) {}                                 // NOLINT
  static Value undefined(std::string why);
  static Value authored(std::string_view text) { return Text::authored(text); }

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_float() const { return kind() == Kind::kFloat; }
  // bool counts, as in Python.
  bool is_int64() const { return kind() == Kind::kInteger || is_bool(); }
  bool is_integer() const { return is_int64() || kind() == Kind::kBigInteger; }
  bool is_number() const { return is_integer() || is_float(); }
  bool is_callable() const { return kind() >= Kind::kMacro; }

  // Accessors CHECK the kind.
  const std::string* undefined_reason() const { return get<Undefined>().why.get(); }
  bool as_bool() const { return get<bool>(); }
  int64_t as_int64() const { return is_bool() ? int64_t{as_bool()} : get<int64_t>(); }
  const std::string& big_digits() const { return *get<BigInteger>(); }
  double as_double() const;  // of any number
  const Text& text() const { return *get<std::shared_ptr<const Text>>(); }
  const std::shared_ptr<const Sequence>& sequence() const {
    return get<std::shared_ptr<const Sequence>>();
  }
  const Dict& dict() const { return *get<std::shared_ptr<const Dict>>(); }
  Namespace* as_namespace() const { return get<Namespace*>(); }
  Loop* loop() const { return get<Loop*>(); }
  const Macro* macro() const { return get<const Macro*>(); }
  const Method& method() const { return *get<std::shared_ptr<const Method>>(); }
  GlobalFunction global_function() const { return get<GlobalFunction>(); }

  bool truthy() const;
  int depth() const;                   // of nested containers; 0 for a scalar
  std::string_view type_name() const;  // Python's: "str", "dict", "generator"

 private:
  template <typename T>
  const T& get() const {
    const T* value = std::get_if<T>(&value_);
    CHECK(value != nullptr, "a ", type_name(), " value was read as another type");
    return *value;
  }

  std::variant<Undefined, None, bool, int64_t, BigInteger, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, Namespace*, Loop*,
               const Macro*, std::shared_ptr<const Method>, GlobalFunction>
      value_;
};

// range(start, stop, step) as it was asked for.
struct RangeBounds {
  int64_t start = 0, stop = 0, step = 1;
};

struct Sequence {
  enum class Kind { kList, kTuple, kRange, kItems, kKeys, kValues, kGenerator };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  RangeBounds range;  // of a kRange, for printing it
  int depth = 1;
  mutable bool consumed = false;  // a generator yields its items once

  bool has_length() const { return kind != Kind::kGenerator; }
  bool has_index() const {
    return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kRange;
  }
};

struct Dict {
  using Item = std::pair<Value, Value>;
  std::vector<Item> items;  // in order of insertion, keys distinct
  int depth = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void build_index();

 private:
  // Of string keys, when there are many; the views point into items.
  std::unordered_map<std::string_view, size_t> index_;
};

// A method bound to its value: x.split.
struct Method {
  Value self;
  std::string name;
};

// What namespace() makes; attributes are few, so a list will do.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// Makers that spend the budget. A dictionary's later equal key replaces the value of the earlier.
Result<Value> make_text(Budget& budget, Text text);
Result<Value> make_text(Budget& budget, TextBuilder& builder);  // also refuses an overflow
Result<Value> make_sequence(Budget& budget, Sequence::Kind kind, std::vector<Value> items);
Result<Value> make_range(Budget& budget, const RangeBounds& range, std::vector<Value> items);
Result<Value> make_dict(Budget& budget, std::vector<Dict::Item> items);
Result<Value> make_pair(Budget& budget, const Value& first, const Value& second);

// A document as a value; origin says what its strings, keys included, count as. Errors: strings
// that are no UTF-8, nesting past the limit.
enum class Origin { kClient, kAuthor };
Result<Value> from_json(Budget& budget, const Json& json, Origin origin);

}  // namespace pewter::jinja
