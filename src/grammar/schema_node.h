// Schemas made flat. What must hold for one value may be spread over a schema, what it refers to,
// and the parts of allOf; where anyOf or oneOf leave a choice there are several ways to satisfy it.
// A SchemaNode is one way: all keywords that count, merged.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "grammar/number_range.h"
#include "grammar/schema_rewrite.h"

namespace pewter::grammar {

// A schema and where it stands in the document.
struct SchemaRef {
  const Json* schema = nullptr;
  std::string pointer;  // "#/properties/a"
};
// All of them must hold for a value. None: anything goes.
using Requirements = std::vector<SchemaRef>;

// A pattern of keys.
struct KeyPattern {
  std::string source;
  std::shared_ptr<const ByteDfa> text;  // of the keys themselves
  bool matches(std::string_view key) const;
};

struct SchemaNode {
  static constexpr size_t kMostValues = 10000;  // of an enum
  enum Type : uint8_t {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFraction = 8,  // numbers that are no integers
    kString = 16,
    kArray = 32,
    kObject = 64,
    kAll = 127,
  };
  uint8_t types = kAll;
  uint8_t mentioned = 0;                    // types that some keyword is about
  bool has_type = false;                    // some keyword names the types themselves
  std::optional<std::vector<Json>> values;  // of enum and const
  std::vector<Json> excluded;               // none of these, of what is not one of them

  // Strings:
  uint64_t min_length = 0;
  std::optional<uint64_t> max_length;
  std::vector<std::string> patterns;
  std::vector<std::string> formats;
  std::vector<std::string> not_patterns;  // none of these is found in it
  // Numbers:
  NumberRange range;
  std::vector<Decimal> steps;  // a multiple of each

  // What one schema says of members: those it names, those whose key a pattern is found in, and all
  // others.
  struct Members {
    std::vector<std::pair<std::string, SchemaRef>> named;
    std::vector<std::pair<std::shared_ptr<const KeyPattern>, SchemaRef>> patterns;
    std::optional<SchemaRef> others;
    bool is_open = false;           // that it names some says nothing of others, whoever reads it
    std::vector<const Json*> path;  // the schema that says it, and those that led to it
    bool names(const std::string& key) const;
  };
  // unevaluatedProperties: for members that no schema speaks of to which `of` has led.
  struct Unevaluated {
    const Json* of = nullptr;
    SchemaRef others;
    bool evaluates(const Members& part) const;
  };
  std::vector<Unevaluated> unevaluated;
  std::vector<Members> members;
  std::vector<std::string> required;   // each once, in order
  std::vector<SchemaRef> key_schemas;  // of propertyNames: all hold for every key
  uint64_t min_members = 0;
  std::optional<uint64_t> max_members;

  // What one schema says of items: the first ones, and all others.
  struct Items {
    std::vector<SchemaRef> first;
    std::optional<SchemaRef> others;
  };
  std::vector<Items> items;
  uint64_t min_items = 0;
  std::optional<uint64_t> max_items;
  bool unique_items = false;
  // So many of the items satisfy the schema.
  struct Contains {
    SchemaRef ref;
    uint64_t least = 1;
    std::optional<uint64_t> most;
  };
  std::vector<Contains> contains;

  std::string pointer;  // for messages

  // What must hold for the member with this key, or for members that no schema names.
  Requirements member(const std::string& key) const;
  Requirements other_members() const;
  // All keys that schemas name, in order.
  std::vector<std::string> keys() const;
  Requirements item(size_t index) const;
  Requirements other_items() const;
};

// Objects are equal whatever the order of their keys, 1 equals 1.0.
bool same_value(const Json& a, const Json& b);
// The pointer to a member of the place a pointer leads to.
std::string below(const std::string& pointer, std::string_view key);
// Whether an automaton accepts the whole text.
bool accepts(const ByteDfa& dfa, std::string_view text);
// What "#/…" refers to in a document. Errors: kUnsupported, kInvalidArgument.
Result<SchemaRef> resolve_reference(const Json& document, const Json& reference,
                                    const std::string& pointer);

Error schema_error(std::string_view pointer, std::string_view what);
Error unsupported_keyword(std::string_view pointer, std::string_view what);

class SchemaReader {
 public:
  // The document outlives it.
  explicit SchemaReader(const Json& document) : document_(document), rewriter_(document) {}
  // The ways to satisfy all requirements; none: no value does.
  Result<std::vector<SchemaNode>> read(const Requirements& requirements);
  // What a value must hold that does not hold this. Errors are SchemaRewriter::negated's.
  Result<SchemaRef> contrary(const SchemaRef& ref);

 private:
  // Schemas from which one was reached without going into a value: a cycle of them says nothing.
  struct Ancestor {
    const Json* schema;
    std::shared_ptr<const Ancestor> parent;
  };
  struct Pending {
    SchemaRef ref;
    std::shared_ptr<const Ancestor> from;
  };
  // One way in the making.
  struct Way {
    SchemaNode node;
    std::vector<Pending> pending;
    std::set<const Json*> seen;
  };

  // Reads one pending schema; adds the ways that it splits this one into, if it does.
  Status advance(Way way, std::vector<Way>& open);
  // What not, if and dependent… come to.
  Status rewrite(const SchemaRef& ref, const std::shared_ptr<const Ancestor>& from, Way& way);
  Status read_keywords(const SchemaRef& ref, SchemaNode& node);
  Status read_general(const std::string& key, const Json& value, const std::string& at,
                      SchemaNode& node, bool& known);
  Status read_string(const std::string& key, const Json& value, const std::string& at,
                     SchemaNode& node, bool& known);
  Status read_number(const std::string& key, const Json& value, const std::string& at,
                     bool exclusive, SchemaNode& node, bool& known);
  Status read_array(const Json& schema, const std::string& pointer, SchemaNode& node);
  Status read_object(const Json& schema, const std::string& pointer, SchemaNode& node);
  Status read_patterns(const Json& patterns, const std::string& at, SchemaNode::Members& into);
  // Whether no two alternatives of a oneOf hold at once, as far as can be seen.
  Result<bool> are_apart(const Json& list, const std::string& pointer);

  const Json& document_;
  SchemaRewriter rewriter_;
  std::map<const Json*, bool> apart_;  // lists of oneOf
  std::map<std::string, std::shared_ptr<const KeyPattern>> patterns_;
  int64_t comparisons_ = 0;  // of their alternatives
};

}  // namespace pewter::grammar
