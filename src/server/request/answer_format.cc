#include "server/request/answer_format.h"

namespace pewter::server {
namespace {

using grammar::AnswerRules;
using Kind = AnswerRules::Kind;

Status set(std::optional<AnswerFormat>& into, AnswerRules rules, std::string path) {
  if (into)
    return bad_request(str_cat(path, ": not together with ", into->path, ": one form is enough"));
  into = AnswerFormat{std::move(rules), std::move(path)};
  return {};
}

// A schema, or the text of one.
Status set_schema(std::optional<AnswerFormat>& into, const Json& value, const std::string& path) {
  Json schema = value;
  if (value.is_string()) {
    Result<Json> parsed = Json::parse(value.as_string(), {.max_depth = 128, .max_values = 100000});
    if (!parsed) return bad_request(str_cat(path, ": a text that is no JSON"));
    schema = *std::move(parsed);
  }
  if (!schema.is_object() && !schema.is_bool())
    return bad_request(str_cat(path, ": want a schema, not ", kind_name(schema)));
  return set(into, {.kind = Kind::kJsonSchema, .json = std::move(schema)}, path);
}

Status set_text(std::optional<AnswerFormat>& into, Kind kind, const Json& value,
                const std::string& path) {
  if (!value.is_string())
    return bad_request(str_cat(path, ": want a string, not ", kind_name(value)));
  return set(into, {.kind = kind, .text = value.as_string()}, path);
}

Status set_choice(std::optional<AnswerFormat>& into, const Json& value, const std::string& path) {
  constexpr size_t kMostChoices = 10000;
  if (!value.is_array() || value.as_array().empty())
    return bad_request(str_cat(path, ": want a list of strings that is not empty"));
  if (value.as_array().size() > kMostChoices)
    return bad_request(str_cat(path, ": more than ", kMostChoices, " strings"));
  for (const Json& text : value.as_array())
    if (!text.is_string())
      return bad_request(str_cat(path, ": want strings, not ", kind_name(text)));
  return set(into, {.kind = Kind::kChoice, .json = value}, path);
}

// {"triggers", "structures"}, or its text.
Status set_tags(std::optional<AnswerFormat>& into, const Json& value, const std::string& path) {
  Json tags = value;
  if (value.is_string()) {
    Result<Json> parsed = Json::parse(value.as_string(), {.max_depth = 128, .max_values = 100000});
    if (!parsed) return bad_request(str_cat(path, ": a text that is no JSON"));
    tags = *std::move(parsed);
  }
  if (!tags.is_object())
    return bad_request(str_cat(path, ": want an object, not ", kind_name(tags)));
  if (tags.find("format") != nullptr)
    return Error{ErrorCode::kUnsupported,
                 str_cat(path, ".format: only the form with triggers and structures is supported")};
  return set(into, {.kind = Kind::kTaggedText, .json = std::move(tags)}, path);
}

// The same four kinds under vLLM's old and new names.
Status read_kinds(Fields& fields, std::string_view prefix, std::optional<AnswerFormat>& into) {
  const auto key = [prefix](std::string_view name) { return str_cat(prefix, name); };
  if (const Json* json = fields.take(key("json")))
    TRY(set_schema(into, *json, fields.path_of(key("json"))));
  if (const Json* regex = fields.take(key("regex")))
    TRY(set_text(into, Kind::kRegex, *regex, fields.path_of(key("regex"))));
  if (const Json* choice = fields.take(key("choice")))
    TRY(set_choice(into, *choice, fields.path_of(key("choice"))));
  if (const Json* grammar = fields.take(key("grammar")))
    TRY(set_text(into, Kind::kEbnf, *grammar, fields.path_of(key("grammar"))));
  return {};
}

}  // namespace

Status read_output_format(const Json& format, const std::string& path,
                          std::optional<AnswerFormat>& into) {
  TRY_ASSIGN(Fields fields, Fields::of(format, path));
  std::string type;
  TRY(fields.read("type", type));
  if (type == "text") return {};
  if (type == "structural_tag") return set_tags(into, format, path);
  if (type != "json_object" && type != "json_schema")
    return Error{
        ErrorCode::kUnsupported,
        str_cat(path, ".type: ", safe_quote(type),
                " is none of \"text\", \"json_object\", \"json_schema\", \"structural_tag\"")};
  if (const Json* schema = fields.take("schema"))
    return set_schema(into, *schema, fields.path_of("schema"));
  const Json* outer = fields.take("json_schema");
  if (type == "json_object" && outer == nullptr)
    return set(into, {.kind = Kind::kJsonObject}, path);
  if (outer == nullptr) return bad_request(str_cat(path, ": a json_schema without its schema"));
  TRY_ASSIGN(Fields inner, Fields::of(*outer, fields.path_of("json_schema")));
  const Json* schema = inner.take("schema");
  if (schema == nullptr) return bad_request(str_cat(inner.path_of("schema"), ": missing"));
  return set_schema(into, *schema, inner.path_of("schema"));
}

Status read_structured_outputs(Fields& fields, std::optional<AnswerFormat>& into) {
  TRY(read_kinds(fields, "guided_", into));
  if (const Json* outputs = fields.take("structured_outputs")) {
    TRY_ASSIGN(Fields inner, Fields::of(*outputs, "structured_outputs"));
    TRY(read_kinds(inner, "", into));
    bool any_object = false;
    TRY(inner.read("json_object", any_object));
    if (any_object) TRY(set(into, {.kind = Kind::kJsonObject}, inner.path_of("json_object")));
    if (const Json* tags = inner.take("structural_tag"))
      TRY(set_tags(into, *tags, inner.path_of("structural_tag")));
    TRY(inner.refuse({"whitespace_pattern"}));
  }
  if (const Json* grammar = fields.take("grammar"))
    TRY(set_text(into, Kind::kEbnf, *grammar, "grammar"));
  if (const Json* schema = fields.take("json_schema"))
    TRY(set_schema(into, *schema, "json_schema"));
  TRY(fields.refuse({"guided_whitespace_pattern", "structural_tag"}));
  fields.ignore({"guided_decoding_backend"});
  return {};
}

}  // namespace pewter::server
