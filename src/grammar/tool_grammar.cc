#include "grammar/tool_grammar.h"

#include <algorithm>

#include "grammar/json_schema.h"
#include "grammar/nfa.h"
#include "grammar/string_schema.h"

namespace pewter::grammar {
namespace {

constexpr size_t kMostParameters = 64;  // marks of a rule
constexpr size_t kMostParameterWays = 16;
constexpr uint32_t kMostTextStates = 4096;
constexpr std::string_view kValueEnd = "</parameter>", kCallEnd = "</function>",
                           kBlockEnd = "</tool_call>", kParameter = "<parameter=";

Expr any_text() { return repeat(characters({{0, 0x10FFFF}}), 0, kUnlimited); }

// Names end at > on the same line.
bool is_writable(std::string_view name) {
  return !name.empty() && name.find_first_of(">\r\n") == std::string_view::npos;
}

const Json& function_of(const Json& tool) {
  const Json* function = tool.find("function");
  return function != nullptr ? *function : tool;
}

bool is_true(const Json* value) { return value != nullptr && value->is_bool() && value->as_bool(); }

Expr blanks() {
  return repeat(characters({{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}}), 0, kUnlimited);
}

Expr with_blanks(std::string_view first, std::string_view next) {
  return sequence({literal(first), blanks(), literal(next)});
}

// What the parser would see the value end by, other than </parameter> and the next tag, or take for
// a call inside the value.
Expr misleading() {
  return choice({with_blanks(kValueEnd, kBlockEnd), with_blanks(kCallEnd, kBlockEnd),
                 with_blanks(kCallEnd, "<tool_call>"), literal("<function="),
                 literal("\n<parameter=")});
}

// The text up to where the parser sees it end, if it is by this tag.
Result<Expr> text_ended_by(std::string_view tag) {
  const std::string_view other = tag == kCallEnd ? kParameter : kCallEnd;
  TRY_ASSIGN(
      const std::shared_ptr<const ByteDfa> any,
      make_byte_dfa({with_blanks(kValueEnd, tag), with_blanks(kValueEnd, other), misleading()},
                    {.anywhere = true}));
  ByteDfa wanted = *any;
  for (ByteDfa::State& state : wanted.states)
    if (state.end > 0) state.end = -1;
  // At the very beginning the parser is at the beginning of a line.
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> begins,
             make_byte_dfa({sequence({literal(kParameter), any_text()})}, {}));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> text, difference(wanted, *begins, kMostTextStates));
  return dfa(std::move(text), {literal("")});
}

// Texts of an automaton in which the parser sees no tag.
Result<std::shared_ptr<const ByteDfa>> without_tags(const ByteDfa& texts) {
  const Expr tags =
      choice({literal(kValueEnd), literal(kCallEnd), misleading(), literal(kParameter)});
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> tagged,
             make_byte_dfa({sequence({any_text(), tags, any_text()})}, {}));
  return difference(texts, *tagged, 4 * kMostTextStates);
}

bool has_type(const Json& value, uint8_t types) {
  if (value.is_null()) return (types & SchemaNode::kNull) != 0;
  if (value.is_bool()) return (types & SchemaNode::kBoolean) != 0;
  if (value.is_number()) {
    const Result<Decimal> decimal = to_decimal(value);
    return decimal && (types & (decimal->fraction.empty() ? SchemaNode::kInteger
                                                          : SchemaNode::kFraction)) != 0;
  }
  return (types & (value.is_array() ? SchemaNode::kArray : SchemaNode::kObject)) != 0;
}

struct Parameter {
  std::string name;
  bool required = false;
  Expr value;  // the text between the tags; null: any text, ended by what follows it
};

class ToolWriter {
 public:
  ToolWriter(Grammar& grammar, JsonRules& rules) : grammar_(grammar), rules_(rules) {}

  // <function=NAME> … </function>
  Result<Expr> call(const Json& tool) {
    const Json& function = function_of(tool);
    const Json* name = function.find("name");
    if (name == nullptr || !name->is_string() || !is_writable(name->as_string()))
      return Error{ErrorCode::kUnsupported, "a tool whose name cannot stand in a tag"};
    const Json* schema = function.find("parameters");
    if (schema == nullptr) schema = function.find("input_schema");
    std::vector<std::vector<Parameter>> ways(1);
    if (schema != nullptr && is_true(function.find("strict"))) {
      auto strict = strict_parameters(*schema);
      if (!strict) return strict.error().within(name->as_string());
      ways = *std::move(strict);
    } else if (schema != nullptr) {
      ways[0] = plain_parameters(*schema);
    }
    std::vector<Expr> insides;
    for (const std::vector<Parameter>& parameters : ways) {
      if (parameters.size() > kMostParameters)
        return Error{ErrorCode::kUnsupported,
                     str_cat(name->as_string(), ": more than ", kMostParameters, " parameters")};
      TRY_ASSIGN(Expr inside, inside_of(parameters));
      // A rule of its own, whose marks are the parameters that have been seen.
      insides.push_back(rule(grammar_.add("a call of " + name->as_string(), std::move(inside))));
    }
    return sequence(
        {literal(str_cat("<function=", name->as_string(), ">\n")), choice(std::move(insides))});
  }

 private:
  // Parameters and the end of the function.
  Result<Expr> inside_of(const std::vector<Parameter>& parameters) {
    uint64_t all = 0, needed = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      all |= uint64_t{1} << i;
      if (parameters[i].required) needed |= uint64_t{1} << i;
    }
    const Expr end = marked(needed), more = unmarked(all);
    // Between parameters, where marks decide before a tag is begun that could not be ended.
    GraphBuilder graph;
    const uint32_t between = GraphBuilder::kBegin, key = graph.add_node();  // behind <parameter=
    graph.add(between, GraphBuilder::kEnd, sequence({end, literal(kCallEnd)}));
    graph.add(between, key, sequence({more, literal(kParameter)}));
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      const Expr head = sequence({mark(static_cast<uint32_t>(i)), literal(parameter.name + ">\n")});
      if (parameter.value) {
        graph.add(key, between,
                  sequence({head, parameter.value, literal(str_cat("\n", kValueEnd, "\n"))}));
        continue;
      }
      // A tag that marks forbid is text.
      TRY_ASSIGN(const Expr last, text_before(kCallEnd));
      TRY_ASSIGN(const Expr not_last, text_before(kParameter));
      graph.add(key, GraphBuilder::kEnd, sequence({head, last, end}));
      graph.add(key, key, sequence({head, not_last, more}));
    }
    return std::move(graph).build();
  }

  // A value of text, its closing tag, and the tag that follows it.
  Result<Expr> text_before(std::string_view next) {
    std::optional<RuleId>& id = next == kCallEnd ? last_text_ : text_;
    if (!id) {
      TRY_ASSIGN(Expr text, text_ended_by(next));
      id = grammar_.add("a value of text", std::move(text));
    }
    return rule(*id);
  }

  // As far as the schema is plain.
  std::vector<Parameter> plain_parameters(const Json& schema) {
    std::vector<Parameter> parameters;
    const Json* properties = schema.find("properties");
    if (properties == nullptr || !properties->is_object()) return parameters;
    const Json* required = schema.find("required");
    for (const auto& [name, property] : properties->as_object()) {
      if (!is_writable(name)) continue;
      const bool needed =
          required != nullptr && required->is_array() &&
          std::ranges::find(required->as_array(), Json(name)) != required->as_array().end();
      parameters.push_back({name, needed, plain_value(property)});
    }
    return parameters;
  }

  Expr plain_value(const Json& schema) {
    if (const Json* values = schema.find("enum"); values != nullptr && values->is_array()) {
      std::vector<Expr> texts;
      for (const Json& value : values->as_array())
        if (value.is_string()) texts.push_back(literal(value.as_string()));
      const bool all = texts.size() == values->as_array().size() && !texts.empty();
      return all ? choice(std::move(texts)) : nullptr;
    }
    const Json* type = schema.find("type");
    if (type == nullptr) return nullptr;
    std::vector<Expr> parts;
    for (const Json& name : type->is_array() ? type->as_array() : Json::Array{*type}) {
      const std::string text = name.is_string() ? name.as_string() : "";
      if (text == "integer")
        parts.push_back(rules_.integer());
      else if (text == "number")
        parts.push_back(rules_.number());
      else if (text == "boolean")
        parts.insert(parts.end(), {literal("true"), literal("false")});
      else if (text == "object")
        parts.push_back(rules_.object());
      else if (text == "array")
        parts.push_back(rules_.array());
      else if (text == "null")
        parts.push_back(literal("null"));
      else
        return nullptr;
    }
    return parts.empty() ? nullptr : choice(std::move(parts));
  }

  // Of every way to satisfy the schema.
  Result<std::vector<std::vector<Parameter>>> strict_parameters(const Json& schema) {
    SchemaReader reader(schema);
    TRY_ASSIGN(const std::vector<SchemaNode> nodes, reader.read({{&schema, "#"}}));
    std::vector<std::vector<Parameter>> ways;
    for (const SchemaNode& node : nodes) {
      if ((node.types & SchemaNode::kObject) == 0) continue;
      TRY_ASSIGN(auto way, way_of(schema, node, reader));
      if (way) ways.push_back(*std::move(way));
    }
    if (ways.empty()) return unsupported_keyword("#", "no parameters satisfy it");
    if (ways.size() > kMostParameterWays)
      return unsupported_keyword(
          "#", str_cat("more than ", kMostParameterWays, " combinations of alternatives"));
    return ways;
  }

  // Nothing where a parameter is needed that has no value.
  Result<std::optional<std::vector<Parameter>>> way_of(const Json& schema, const SchemaNode& node,
                                                       SchemaReader& reader) {
    // Each parameter comes at most once, and there are no others; how many there are is not
    // counted.
    if (!node.key_schemas.empty() || node.max_members || node.min_members > node.required.size())
      return unsupported_keyword(
          "#", "propertyNames, minProperties and maxProperties are not supported for parameters");
    if (node.values || !node.excluded.empty())
      return unsupported_keyword("#",
                                 "enum and const are not supported for all parameters together");
    std::vector<Parameter> parameters;
    for (const std::string& name : node.keys()) {
      const bool needed = std::ranges::find(node.required, name) != node.required.end();
      if (!is_writable(name)) {
        if (needed) return unsupported_keyword("#", "a key that cannot stand in a tag");
        continue;
      }
      TRY_ASSIGN(Expr value, strict_value(schema, node.member(name), reader));
      if (value && value->kind == Expression::Kind::kNothing) {
        if (needed) return std::optional<std::vector<Parameter>>();
        continue;
      }
      parameters.push_back({name, needed, std::move(value)});
    }
    return std::optional(std::move(parameters));
  }

  Result<Expr> strict_value(const Json& document, const Requirements& requirements,
                            SchemaReader& reader) {
    if (requirements.empty()) return Expr();
    TRY_ASSIGN(const std::vector<SchemaNode> nodes, reader.read(requirements));
    std::vector<Expr> texts;
    bool has_others = false;
    for (const SchemaNode& node : nodes) {
      has_others |= (node.types & ~SchemaNode::kString) != 0;
      if ((node.types & SchemaNode::kString) == 0) continue;
      if (node.values) {
        for (const Json& value : *node.values) {
          TRY_ASSIGN(const bool fits, admits_text(node, value));
          if (fits) texts.push_back(literal(value.as_string()));
        }
        continue;
      }
      if (!restricts_text(node)) return Expr();
      TRY_ASSIGN(Expr text, restricted_text(node));
      texts.push_back(std::move(text));
    }
    if (has_others) {
      // Beside texts of their own, strings in quotes would be texts with quotes.
      Result<Expr> json = texts.empty()
                              ? add_schema_part(document, requirements, {}, grammar_, rules_)
                              : without_strings(nodes);
      if (!json) return json;
      texts.push_back(*std::move(json));
    }
    return choice(std::move(texts));
  }

  // The values of nodes that are no strings: null, booleans and plain numbers are told by type.
  Result<Expr> without_strings(const std::vector<SchemaNode>& nodes) {
    std::vector<Expr> parts;
    for (const SchemaNode& node : nodes) {
      const bool is_bare = !node.range.least && !node.range.most && node.steps.empty();
      const bool excludes =
          std::ranges::any_of(node.excluded, [](const Json& value) { return !value.is_string(); });
      if (node.values && is_bare && !excludes) {
        for (const Json& value : *node.values)
          if (!value.is_string() && has_type(value, node.types))
            parts.push_back(rules_.constant(value));
        continue;
      }
      if ((node.types & (SchemaNode::kObject | SchemaNode::kArray)) != 0 || !is_bare || excludes)
        return unsupported_keyword(node.pointer,
                                   "a choice between restricted texts and other restricted values");
      if ((node.types & SchemaNode::kInteger) != 0)
        parts.push_back((node.types & SchemaNode::kFraction) != 0 ? rules_.number()
                                                                  : rules_.integer());
      if ((node.types & SchemaNode::kBoolean) != 0)
        parts.insert(parts.end(), {literal("true"), literal("false")});
      if ((node.types & SchemaNode::kNull) != 0) parts.push_back(literal("null"));
    }
    return choice(std::move(parts));
  }

  // Without the tag that would end it.
  static Result<Expr> restricted_text(const SchemaNode& node) {
    const TextWriting writing{.encode = characters, .any = characters({{0, 0x10FFFF}})};
    TRY_ASSIGN(const Expr text, text_of(node, writing));
    const auto all = make_byte_dfa({text}, {.most_states = kMostTextStates});
    if (!all)
      return unsupported_keyword(node.pointer, "pattern and lengths are too large for this server");
    TRY_ASSIGN(std::shared_ptr<const ByteDfa> kept, without_tags(**all));
    return dfa(std::move(kept), {literal("")});
  }

  Grammar& grammar_;
  JsonRules& rules_;
  std::optional<RuleId> text_, last_text_;  // texts before a parameter, before the call's end
};

}  // namespace

bool has_strict_tool(const Json& tools) {
  return tools.is_array() && std::ranges::any_of(tools.as_array(), [](const Json& tool) {
           return is_true(function_of(tool).find("strict"));
         });
}

Result<Expr> text_through(std::string_view tag) {
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> text,
             make_byte_dfa({literal(tag)}, {.anywhere = true}));
  return dfa(std::move(text), {literal("")});
}

Result<Expr> text_without(std::string_view tag) {
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> all, make_byte_dfa({any_text()}, {}));
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> tagged,
             make_byte_dfa({sequence({any_text(), literal(tag), any_text()})}, {}));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> text, difference(*all, *tagged, kMostTextStates));
  return dfa(std::move(text), {literal("")});
}

Result<Expr> add_tool_calls(const ToolCallRules& calls, Grammar& grammar) {
  // Tags stand in no string, or the parser would take them for the value's end: < is written \u003c
  // there.
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> characters,
             make_byte_dfa({repeat(any_json_character(), 0, kUnlimited)}, {}));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> untagged, without_tags(*characters));
  JsonRules rules(grammar, dfa(std::move(untagged), {literal("")}));
  ToolWriter writer(grammar, rules);
  std::vector<Expr> functions;
  for (const Json& tool : calls.tools.as_array()) {
    const Json* name = function_of(tool).find("name");
    if (!calls.named.empty() && (name == nullptr || *name != Json(calls.named))) continue;
    TRY_ASSIGN(Expr call, writer.call(tool));
    functions.push_back(std::move(call));
  }
  const Expr body =
      sequence({literal("\n"), choice(std::move(functions)), literal("\n"), literal(kBlockEnd)});
  const RuleId block = grammar.add("a tool call", body);
  const Expr open = literal("<tool_call>");
  if (calls.required) {
    const Expr more = sequence({literal("\n"), open, rule(block)});
    return sequence({open, rule(block),
                     repeat(more, 0, calls.parallel && calls.named.empty() ? kUnlimited : 0)});
  }
  TRY_ASSIGN(const Expr text, text_without("<tool_call>"));
  TRY_ASSIGN(const Expr through, text_through("<tool_call>"));
  const Expr call = sequence({through, rule(block)});
  return sequence({repeat(call, 0, calls.parallel ? kUnlimited : 1), text});
}

}  // namespace pewter::grammar
