#include "grammar/tagged_text.h"

#include "grammar/json_schema.h"
#include "grammar/nfa.h"

namespace pewter::grammar {
namespace {

constexpr size_t kMostTriggers = 64, kMostStructures = 256;
constexpr uint32_t kMostTextStates = 4096;

Error wrong(const std::string& path, std::string_view what) {
  return {ErrorCode::kInvalidArgument, str_cat(path, ": ", what)};
}

Result<const Json::Array*> list_of(const Json& tags, const char* key, size_t most) {
  const Json* list = tags.find(key);
  if (list == nullptr || !list->is_array() || list->as_array().empty() ||
      list->as_array().size() > most)
    return wrong(key, str_cat("want a list of 1 to ", most));
  return &list->as_array();
}

Result<std::string> text_of(const Json& structure, const char* key, const std::string& path) {
  const Json* text = structure.is_object() ? structure.find(key) : nullptr;
  if (text == nullptr || !text->is_string()) return wrong(path + "." + key, "want a string");
  return text->as_string();
}

}  // namespace

Result<Expr> add_tagged_text(const Json& tags, Grammar& grammar, JsonRules& rules) {
  TRY_ASSIGN(const Json::Array* triggers, list_of(tags, "triggers", kMostTriggers));
  TRY_ASSIGN(const Json::Array* structures, list_of(tags, "structures", kMostStructures));
  std::vector<Expr> starts;
  for (size_t i = 0; i < triggers->size(); ++i) {
    const Json& trigger = (*triggers)[i];
    if (!trigger.is_string() || trigger.as_string().empty())
      return wrong(str_cat("triggers[", i, "]"), "want a string that is not empty");
    starts.push_back(literal(trigger.as_string()));
  }
  std::vector<std::vector<Expr>> behind(triggers->size());
  for (size_t i = 0; i < structures->size(); ++i) {
    const Json& structure = (*structures)[i];
    const std::string path = str_cat("structures[", i, "]");
    TRY_ASSIGN(const std::string begin, text_of(structure, "begin", path));
    TRY_ASSIGN(const std::string end, text_of(structure, "end", path));
    const Json* schema = structure.find("schema");
    if (schema == nullptr) return wrong(path + ".schema", "missing");
    size_t at = 0;
    while (at < triggers->size() && !begin.starts_with((*triggers)[at].as_string())) ++at;
    if (at == triggers->size())
      return wrong(path + ".begin", "it begins with none of the triggers");
    Result<Expr> value = add_schema(*schema, {}, grammar, rules);
    if (!value) return value.error().within(path + ".schema");
    const std::string rest = begin.substr((*triggers)[at].as_string().size());
    behind[at].push_back(sequence({literal(rest), *std::move(value), literal(end)}));
  }
  std::vector<Expr> parts;
  parts.reserve(behind.size());
  for (std::vector<Expr>& choices : behind) parts.push_back(choice(std::move(choices)));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> up_to, make_byte_dfa(starts, {.anywhere = true}));
  const Expr any = repeat(characters({{0, 0x10FFFF}}), 0, kUnlimited);
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> all, make_byte_dfa({any}, {}));
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> triggered,
             make_byte_dfa({sequence({any, choice(starts), any})}, {}));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> rest, difference(*all, *triggered, kMostTextStates));
  return sequence({repeat(dfa(std::move(up_to), std::move(parts)), 0, kUnlimited),
                   dfa(std::move(rest), {literal("")})});
}

}  // namespace pewter::grammar
