#include "grammar/string_schema.h"

#include <algorithm>
#include <array>

#include "grammar/limits.h"
#include "grammar/nfa.h"
#include "grammar/regex.h"

namespace pewter::grammar {
namespace {

constexpr uint32_t kMostPatternStates = 4096;
constexpr uint64_t kMostCount = 1 << 20;

struct Format {
  std::string_view name, regex;  // of the whole text; "": any text
};

#define PEWTER_TIME \
  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define PEWTER_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
// Without days that a month does not have, nor the 29th of February, which most years do not have.
#define PEWTER_DAY                                                            \
  "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|" \
  "02-(0[1-9]|1\\d|2[0-8]))"

// Each admits a part of what the format's standard does, and nothing else.
constexpr std::array<Format, 19> kFormats = {{
    {"date", "[1-9]\\d{3}-" PEWTER_DAY},
    {"time", PEWTER_TIME},
    {"date-time", "[1-9]\\d{3}-" PEWTER_DAY "T" PEWTER_TIME},
    {"duration",
     "P(\\d+W|\\d+Y(\\d+M(\\d+D)?)?(T\\d+H(\\d+M(\\d+S)?)?)?|\\d+M(\\d+D)?|\\d+D|T(\\d+H(\\d+M("
     "\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4", "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
    {"ipv6",
     "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::([0-9a-fA-F]{1,4}:){0,5}[0-9a-fA-F]{1,4}|"
     "([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}"},
    {"email", "[A-Za-z0-9_%+-]+(\\.[A-Za-z0-9_%+-]+)*@(" PEWTER_LABEL "\\.)+[A-Za-z]{2,24}"},
    {"hostname", "(" PEWTER_LABEL "\\.){0,8}" PEWTER_LABEL},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]*:(//)?[A-Za-z0-9._~@-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*"
     "(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
    // Of numbers, or of how a text is shown: nothing to hold a text to.
    {"int32", ""},
    {"int64", ""},
    {"uint32", ""},
    {"uint64", ""},
    {"float", ""},
    {"double", ""},
    {"password", ""},
    {"binary", ""},
    {"byte", ""},
}};

Result<std::optional<Expr>> format_of(const std::string& name, const std::string& pointer,
                                      const TextWriting& writing) {
  const auto at = std::ranges::find(kFormats, name, &Format::name);
  if (at == kFormats.end())
    return unsupported_keyword(pointer, str_cat("the format \"", name, "\" is not supported"));
  if (at->regex.empty()) return std::optional<Expr>();
  TRY_ASSIGN(Expr expr, parse_regex(at->regex, {.encode = writing.encode, .whole = true}));
  return std::optional<Expr>(std::move(expr));
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
  return node.min_length > 0 || node.max_length || !node.patterns.empty() || !node.formats.empty();
}

Result<Expr> text_of(const SchemaNode& node, const TextWriting& writing) {
  std::vector<Expr> conditions;
  for (const std::string& pattern : node.patterns) {
    Result<Expr> expr = parse_regex(pattern, {.encode = writing.encode});
    if (!expr) return expr.error().within(str_cat(node.pointer, "/pattern"));
    conditions.push_back(*std::move(expr));
  }
  for (const std::string& format : node.formats) {
    TRY_ASSIGN(std::optional<Expr> expr, format_of(format, node.pointer, writing));
    if (expr) conditions.push_back(*std::move(expr));
  }
  TRY_ASSIGN(const Lengths lengths, lengths_of(node));
  if (lengths.least > lengths.most) return nothing();
  const bool has_lengths = lengths.least > 0 || lengths.most != kUnlimited;
  if (conditions.empty()) return repeat(writing.any, lengths.least, lengths.most);

  const ByteDfaOptions limits{.most_states = kMostPatternStates};
  if (conditions.size() == 1 && !has_lengths) {
    // Deterministic where that is small; else as it is, with counted repeats.
    const auto small = make_byte_dfa(conditions, limits);
    return small ? dfa(*small, {literal("")}) : conditions[0];
  }
  if (has_lengths)
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
  return dfa(std::move(all), {literal("")});
}

}  // namespace pewter::grammar
