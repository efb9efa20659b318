// Keywords that say what a value must hold if it holds something else, or must not hold at all,
// rewritten as schemas that say what it must hold:
//
//   not S               anyOf of the ways to break one of S's keywords
//   if A then B else C  anyOf of A and B, not A and C
//   dependentRequired   anyOf of: the key is not there; the others are (dependentSchemas likewise)
//   oneOf               anyOf of each alternative and none of the others
//
// A rewritten schema admits nothing that the keyword forbids, and nothing less.
#pragma once

#include <deque>
#include <map>

#include "base/json.h"
#include "base/result.h"

namespace pewter::grammar {

// A key of rewritten schemas alone: that they name a property does not say that there are no
// others.
inline constexpr std::string_view kOpenKey = "\x01open";
// And a type: numbers that are no integers, which have no name otherwise.
inline constexpr std::string_view kFractionType = "\x01fraction";

class SchemaRewriter {
 public:
  // The document outlives it; what is returned lives as long as this. Errors: kUnsupported, naming
  // the place of the keyword that cannot be turned around.
  explicit SchemaRewriter(const Json& document) : document_(document) {}

  // Where `schema`, the value of a `not`, does not hold. A schema whose only keyword is enum, const
  // or pattern cannot be said otherwise: is_plain.
  Result<const Json*> negated(const Json& schema, const std::string& pointer);
  static bool is_plain(const Json& schema);
  // Of a schema with these keywords; null: it has none.
  Result<const Json*> conditional(const Json& schema, const std::string& pointer);
  Result<const Json*> dependent(const Json& schema, const std::string& pointer);
  // Of the list of a oneOf whose alternatives may hold at once.
  Result<const Json*> exactly_one(const Json& list, const std::string& pointer);

 private:
  enum class Kind : uint8_t { kNegated, kConditional, kDependent, kExactlyOne };
  template <typename Make>
  Result<const Json*> remember(Kind kind, const Json& of, Make make);
  Result<Json> negate(const Json& schema, const std::string& pointer);
  Status negate_keyword(const Json& schema, const std::string& key, const Json& value,
                        const std::string& at, Json::Array& ways);
  Status negate_members(const std::string& key, const Json& value, const std::string& at,
                        Json::Array& ways);
  Status negate_list(const std::string& key, const Json& value, const std::string& at,
                     Json::Array& ways);

  const Json& document_;
  std::deque<Json> made_;  // none moves
  std::map<std::pair<Kind, const Json*>, const Json*> known_;
  size_t copied_ = 0;  // alternatives so far
};

}  // namespace pewter::grammar
