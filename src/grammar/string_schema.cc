#include "grammar/string_schema.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "grammar/limits.h"
#include "grammar/nfa.h"
#include "grammar/regex.h"

namespace pewter::grammar {
namespace {

constexpr uint32_t kMostPatternStates = 4096;
constexpr uint64_t kMostCount = 1 << 20;

struct Format {
  std::string_view name, regex;  // of the whole text
};

#define PEWTER_TIME \
  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define PEWTER_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
// Without days that a month does not have, nor the 29th of February, which most years do not have.
#define PEWTER_DAY                                                            \
  "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|" \
  "02-(0[1-9]|1\\d|2[0-8]))"

#define PEWTER_IPV4 \
  "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define PEWTER_PATH "[A-Za-z0-9._~!$&'()*+,;=:@-]"
#define PEWTER_QUERY "(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"

constexpr std::string_view kEmail =
    "[A-Za-z0-9_%+-]+(\\.[A-Za-z0-9_%+-]+)*@(" PEWTER_LABEL "\\.)+[A-Za-z]{2,24}";
constexpr std::string_view kHostname = "(" PEWTER_LABEL "\\.){0,8}" PEWTER_LABEL;
constexpr std::string_view kUri =
    "[A-Za-z][A-Za-z0-9+.-]*:(//)?[A-Za-z0-9._~@-]+(:[0-9]{1,5})?(/" PEWTER_PATH "*)*" PEWTER_QUERY;
// A path: what begins like a scheme or a host is left out.
constexpr std::string_view kReference = "\\.{0,2}(/" PEWTER_PATH "+)+/?" PEWTER_QUERY;

// Each admits a part of what the format's standard does, and nothing else.
constexpr std::array<Format, 27> kFormats = {{
    {"date", "[1-9]\\d{3}-" PEWTER_DAY},
    {"time", PEWTER_TIME},
    {"date-time", "[1-9]\\d{3}-" PEWTER_DAY "T" PEWTER_TIME},
    {"duration",
     "P(\\d+W|\\d+Y(\\d+M(\\d+D)?)?(T\\d+H(\\d+M(\\d+S)?)?)?|\\d+M(\\d+D)?|\\d+D|T(\\d+H(\\d+M("
     "\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4", PEWTER_IPV4},
    {"ipv6",
     "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::([0-9a-fA-F]{1,4}:){0,5}[0-9a-fA-F]{1,4}|"
     "([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}"},
    {"email", kEmail},
    {"hostname", kHostname},
    {"uri", kUri},
    {"idn-email", kEmail},
    {"idn-hostname", kHostname},
    {"iri", kUri},
    {"url", kUri},  // of TypeScript's schemas, as the next ones
    {"ulid", "[0-7][0-9A-HJKMNP-TV-Z]{25}"},
    {"nanoid", "[A-Za-z0-9_-]{21}"},
    {"cuid", "c[a-z0-9]{24}"},
    {"cuid2", "[a-z][a-z0-9]{23}"},
    {"base64", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
    {"base64url", "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?"},
    {"cidrv4", PEWTER_IPV4 "/(3[0-2]|[12]?[0-9])"},
    {"uri-reference", kReference},
    {"iri-reference", kReference},
    {"json-pointer", "(/([^~/]|~[01])*)*"},
    {"relative-json-pointer", "(0|[1-9][0-9]{0,8})(#|(/([^~/]|~[01])*)*)"},
    {"uri-template", "([A-Za-z0-9._~/:?=&-]|\\{[A-Za-z0-9_]+\\})*"},
    {"regex", "[A-Za-z0-9 _,;:=@#%&!~'\"<>/-]*"},
}};

// Names that no standard knows (int32, password, markdown) say nothing, as JSON Schema has it.
bool says_something(std::string_view name) {
  return std::ranges::find(kFormats, name, &Format::name) != kFormats.end();
}

// The texts that a `not` excludes.
Result<Expr> taken_texts(const SchemaNode& node, const TextWriting& writing) {
  std::vector<Expr> texts;
  for (const std::string& pattern : node.not_patterns) {
    Result<Expr> expr = parse_regex(pattern, {.encode = writing.encode});
    if (!expr) return expr.error().within(str_cat(node.pointer, "/not/pattern"));
    texts.push_back(*std::move(expr));
  }
  for (const Json& value : node.excluded) {
    if (!value.is_string()) continue;
    std::vector<Expr> characters;
    std::string_view rest = value.as_string();
    while (!rest.empty()) {
      const Utf8Step step = utf8_next(rest);
      characters.push_back(writing.encode({{step.code_point, step.code_point}}));
      rest.remove_prefix(static_cast<size_t>(step.length));
    }
    texts.push_back(sequence(std::move(characters)));
  }
  return texts.empty() ? nothing() : choice(std::move(texts));
}

struct Lengths {
  uint32_t least = 0, most = kUnlimited;
};

Result<Lengths> lengths_of(const SchemaNode& node) {
  if (node.min_length > kMostCount)
    return unsupported_keyword(node.pointer, str_cat("minLength above ", kMostCount));
  Lengths lengths{.least = static_cast<uint32_t>(node.min_length)};
  if (node.max_length && *node.max_length < kUnlimited)
    lengths.most = static_cast<uint32_t>(*node.max_length);
  return lengths;
}

}  // namespace

bool restricts_text(const SchemaNode& node) {
  return node.min_length > 0 || node.max_length || !node.patterns.empty() ||
         std::ranges::any_of(node.formats, says_something) || !node.not_patterns.empty() ||
         std::ranges::any_of(node.excluded, &Json::is_string);
}

Result<bool> admits_text(const SchemaNode& node, const Json& value) {
  if (!value.is_string()) return false;
  if (!restricts_text(node)) return true;
  const TextWriting writing{.encode = characters, .any = characters({{0, 0x10FFFF}})};
  TRY_ASSIGN(const Expr text, text_of(node, writing));
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> all, make_byte_dfa({text}, {}));
  return accepts(*all, value.as_string());
}

Result<Expr> text_of(const SchemaNode& node, const TextWriting& writing) {
  std::vector<Expr> conditions;
  for (const std::string& pattern : node.patterns) {
    Result<Expr> expr = parse_regex(pattern, {.encode = writing.encode});
    if (!expr) return expr.error().within(str_cat(node.pointer, "/pattern"));
    conditions.push_back(*std::move(expr));
  }
  for (const std::string& name : node.formats) {
    if (!says_something(name)) continue;
    const std::string_view regex = std::ranges::find(kFormats, name, &Format::name)->regex;
    TRY_ASSIGN(Expr expr, parse_regex(regex, {.encode = writing.encode, .whole = true}));
    conditions.push_back(std::move(expr));
  }
  TRY_ASSIGN(const Lengths lengths, lengths_of(node));
  if (lengths.least > lengths.most) return nothing();
  const bool has_lengths = lengths.least > 0 || lengths.most != kUnlimited;
  TRY_ASSIGN(const Expr taken, taken_texts(node, writing));
  const bool takes = taken->kind != Expression::Kind::kNothing;
  if (conditions.empty() && !takes) return repeat(writing.any, lengths.least, lengths.most);

  const ByteDfaOptions limits{.most_states = kMostPatternStates};
  if (conditions.size() == 1 && !has_lengths && !takes) {
    // Deterministic where that is small; else as it is, with counted repeats.
    const auto small = make_byte_dfa(conditions, limits);
    return small ? dfa(*small, {literal("")}) : conditions[0];
  }
  if (has_lengths || conditions.empty())
    conditions.push_back(repeat(writing.encode({{0, 0x10FFFF}}), lengths.least, lengths.most));
  std::shared_ptr<const ByteDfa> all;
  for (const Expr& condition : conditions) {
    Result<std::shared_ptr<const ByteDfa>> one = make_byte_dfa({condition}, limits);
    if (one && all) one = intersection(*all, **one, kMostPatternStates);
    if (!one)
      return unsupported_keyword(
          node.pointer, "pattern, format and lengths together are too large for this server");
    all = *one;
  }
  if (takes) {
    const auto without = make_byte_dfa({taken}, limits);
    const auto rest = without ? difference(*all, **without, kMostPatternStates) : without;
    if (!rest)
      return unsupported_keyword(
          node.pointer, "pattern, format, lengths and not together are too large for this server");
    all = *rest;
  }
  return dfa(std::move(all), {literal("")});
}

}  // namespace pewter::grammar
