// Schemas made flat. What must hold for one value may be spread over a schema, what it refers to,
// and the parts of allOf; where anyOf or oneOf leave a choice there are several ways to satisfy it.
// A SchemaNode is one way: all keywords that count, merged.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "grammar/number_range.h"

namespace pewter::grammar {

// A schema and where it stands in the document.
struct SchemaRef {
  const Json* schema = nullptr;
  std::string pointer;  // "#/properties/a"
};
// All of them must hold for a value. None: anything goes.
using Requirements = std::vector<SchemaRef>;

struct SchemaNode {
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

  // Strings:
  uint64_t min_length = 0;
  std::optional<uint64_t> max_length;
  std::vector<std::string> patterns;
  std::vector<std::string> formats;
  // Numbers:
  NumberRange range;

  // What one schema says of members: those it names, and all others.
  struct Members {
    std::vector<std::pair<std::string, SchemaRef>> named;
    std::optional<SchemaRef> others;
  };
  std::vector<Members> members;
  std::vector<std::string> required;  // each once, in order
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

  std::string pointer;  // for messages

  // What must hold for the member with this key, or for members that no schema names.
  Requirements member(const std::string& key) const;
  Requirements other_members() const;
  // All keys that schemas name, in order.
  std::vector<std::string> keys() const;
  Requirements item(size_t index) const;
  Requirements other_items() const;
};

Error schema_error(std::string_view pointer, std::string_view what);
Error unsupported_keyword(std::string_view pointer, std::string_view what);

class SchemaReader {
 public:
  // The document outlives it.
  explicit SchemaReader(const Json& document) : document_(document) {}
  // The ways to satisfy all requirements; none: no value does.
  Result<std::vector<SchemaNode>> read(const Requirements& requirements);

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

  Result<SchemaRef> resolve(const Json& reference, const std::string& pointer) const;
  // Reads one pending schema; adds the ways that it splits this one into, if it does.
  Status advance(Way way, std::vector<Way>& open);
  Status read_keywords(const SchemaRef& ref, SchemaNode& node);
  Status read_general(const std::string& key, const Json& value, const std::string& at,
                      SchemaNode& node, bool& known);
  Status read_string(const std::string& key, const Json& value, const std::string& at,
                     SchemaNode& node, bool& known);
  Status read_number(const std::string& key, const Json& value, const std::string& at,
                     SchemaNode& node, bool& known);
  Status read_array(const Json& schema, const std::string& pointer, SchemaNode& node);
  Status read_object(const Json& schema, const std::string& pointer, SchemaNode& node);
  Status check_one_of(const Json& list, const std::string& pointer);

  const Json& document_;
  std::set<const Json*> checked_;  // lists of oneOf
  int64_t comparisons_ = 0;        // of their alternatives
};

}  // namespace pewter::grammar
