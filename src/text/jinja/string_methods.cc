// Methods of strings.
#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode.h"

namespace pewter::jinja {
namespace {

struct Call {
  Budget& budget;
  const Text& self;
  std::string_view name;
  const Arguments& arguments;
};
using MethodFunction = Result<Value> (*)(const Call&);

Error fails(const Call& call, std::string_view what) {
  return Error{ErrorCode::kUnsupported, str_cat(call.name, "(): ", what)};
}

Result<Value> make_list(const Call& call, std::vector<Text> texts, Sequence::Kind kind) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) {
    text.markup = call.self.markup;
    TRY_ASSIGN(Value value, make_text(call.budget, std::move(text)));
    items.push_back(std::move(value));
  }
  return make_sequence(call.budget, kind, std::move(items));
}

Result<Value> strip_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"chars"}));
  const bool all = given[0] == nullptr || given[0]->is_none();
  TRY_ASSIGN(const Text* characters, text_argument(all ? nullptr : given[0], call.name));
  const Side side = call.name == "strip"    ? Side::kBoth
                    : call.name == "lstrip" ? Side::kLeft
                                            : Side::kRight;
  TRY(call.budget.spend_scan(call.self.size() *
                             (characters == nullptr ? 1 : characters->size() + 1)));
  return make_text(call.budget, strip(call.self, side, characters));
}

Result<Value> split_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"sep", "maxsplit"}));
  TRY_ASSIGN(const int64_t most, integer_argument(given[1], call.name, -1));
  const bool from_right = call.name == "rsplit";
  if (given[0] == nullptr || given[0]->is_none()) {
    TRY_ASSIGN(std::vector<Text> words, split_words(call.budget, call.self, most, from_right));
    return make_list(call, std::move(words), Sequence::Kind::kList);
  }
  TRY_ASSIGN(const Text* separator, text_argument(given[0], call.name));
  if (separator->empty()) return fails(call, "empty separator");
  TRY_ASSIGN(std::vector<Text> parts,
             split(call.budget, call.self, separator->view(), most, from_right));
  return make_list(call, std::move(parts), Sequence::Kind::kList);
}

Result<Value> splitlines_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"keepends"}));
  TRY_ASSIGN(const bool keep, flag_argument(given[0], false));
  TRY_ASSIGN(std::vector<Text> lines, split_lines(call.budget, call.self, keep));
  return make_list(call, std::move(lines), Sequence::Kind::kList);
}

Result<Value> partition_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"sep"}, 1));
  TRY_ASSIGN(const Text* separator, text_argument(given[0], call.name));
  if (separator->empty()) return fails(call, "empty separator");
  const bool from_right = call.name == "rpartition";
  TRY_ASSIGN(std::vector<Text> parts,
             split(call.budget, call.self, separator->view(), 1, from_right));
  if (parts.size() == 2)
    parts.insert(parts.begin() + 1, *separator);
  else
    parts.insert(from_right ? parts.begin() : parts.end(), 2, Text{});
  return make_list(call, std::move(parts), Sequence::Kind::kTuple);
}

// The text between two optional character positions, for find, count, startswith, endswith.
struct Window {
  size_t begin = 0, end = 0;  // bytes
  bool valid = true;          // false when begin is past the end
  std::vector<size_t> offsets;
};

Result<Window> window(const Call& call, const Value* start, const Value* stop) {
  Window out;
  out.end = call.self.size();
  const bool whole = (start == nullptr || start->is_none()) && (stop == nullptr || stop->is_none());
  if (whole) return out;
  out.offsets = code_point_offsets(call.self.view());
  const auto size = static_cast<int64_t>(out.offsets.size()) - 1;
  const auto position = [&](const Value* bound, int64_t otherwise) -> Result<int64_t> {
    if (bound == nullptr || bound->is_none()) return otherwise;
    TRY_ASSIGN(int64_t at, integer_argument(bound, call.name, 0));
    if (at < 0) at = std::max<int64_t>(0, at < -size ? 0 : at + size);
    return at;
  };
  TRY_ASSIGN(const int64_t begin, position(start, 0));
  TRY_ASSIGN(int64_t end, position(stop, size));
  end = std::min(end, size);
  out.valid = begin <= end;
  if (!out.valid) return out;
  out.begin = out.offsets[static_cast<size_t>(begin)];
  out.end = out.offsets[static_cast<size_t>(end)];
  return out;
}

Result<Value> affix_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"prefix", "start", "end"}, 1));
  TRY_ASSIGN(const Window part, window(call, given[1], given[2]));
  const std::string_view bytes = call.self.view().substr(part.begin, part.end - part.begin);
  std::vector<Value> candidates = {*given[0]};
  if (given[0]->is_sequence() && given[0]->sequence()->kind == Sequence::Kind::kTuple)
    candidates = given[0]->sequence()->items;
  for (const Value& candidate : candidates) {
    TRY_ASSIGN(const Text* affix, text_argument(&candidate, call.name));
    TRY(call.budget.spend_scan(affix->size()));
    if (part.valid && (call.name == "startswith" ? bytes.starts_with(affix->view())
                                                 : bytes.ends_with(affix->view())))
      return Value(true);
  }
  return Value(false);
}

Result<Value> find_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"sub", "start", "end"}, 1));
  TRY_ASSIGN(const Text* needle, text_argument(given[0], call.name));
  TRY_ASSIGN(const Window part, window(call, given[1], given[2]));
  const bool from_right = call.name == "rfind" || call.name == "rindex";
  TRY(call.budget.spend_scan(call.self.size() * (from_right ? needle->size() + 1 : 1)));
  const std::string_view bytes = call.self.view().substr(part.begin, part.end - part.begin);
  const size_t found = !part.valid  ? std::string_view::npos
                       : from_right ? bytes.rfind(needle->view())
                                    : find_bytes(bytes, needle->view());
  if (found != std::string_view::npos)
    return Value(count_code_points(call.self.view().substr(0, part.begin + found)));
  if (call.name == "index" || call.name == "rindex") return fails(call, "substring not found");
  return Value(-1);
}

Result<Value> count_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"sub", "start", "end"}, 1));
  TRY_ASSIGN(const Text* needle, text_argument(given[0], call.name));
  TRY_ASSIGN(const Window part, window(call, given[1], given[2]));
  TRY(call.budget.spend_scan(call.self.size()));
  if (!part.valid) return Value(0);
  const std::string_view bytes = call.self.view().substr(part.begin, part.end - part.begin);
  if (needle->empty()) return Value(count_code_points(bytes) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = find_bytes(bytes, needle->view(), at)) != std::string_view::npos;
       at += needle->size())
    ++count;
  return Value(count);
}

Result<Value> replace_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"old", "new", "count"}, 2));
  TRY_ASSIGN(const Text* old_text, text_argument(given[0], call.name));
  TRY_ASSIGN(const Text* new_text, text_argument(given[1], call.name));
  TRY_ASSIGN(const int64_t most, integer_argument(given[2], call.name, -1));
  TRY_ASSIGN(Text result, replace(call.budget, call.self, *old_text,
                                  call.self.markup ? new_text->escaped() : *new_text, most));
  return make_text(call.budget, std::move(result));
}

Result<Value> remove_affix_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"affix"}, 1));
  TRY_ASSIGN(const Text* affix, text_argument(given[0], call.name));
  const std::string_view bytes = call.self.view();
  if (call.name == "removeprefix" && bytes.starts_with(affix->view()))
    return make_text(call.budget, call.self.part(affix->size(), bytes.size()));
  if (call.name == "removesuffix" && bytes.ends_with(affix->view()))
    return make_text(call.budget, call.self.part(0, bytes.size() - affix->size()));
  return Value(call.self);
}

Result<Value> case_method(const Call& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY(call.budget.spend_scan(call.self.size() * 4));
  const std::string_view bytes = call.self.view();
  std::string mapped;
  if (call.name == "upper") {
    mapped = to_upper(bytes);
  } else if (call.name == "lower" || call.name == "casefold") {
    mapped = to_lower(bytes);
  } else if (call.name == "title") {
    mapped = to_title(bytes);
  } else if (call.name == "capitalize") {
    mapped = capitalize(bytes);
  } else {
    mapped = swap_case(bytes);
  }
  return make_text(call.budget, call.self.rewritten(std::move(mapped)));
}

// isdigit and its like: every character passes, and there is one.
Result<Value> all_characters_method(const Call& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY(call.budget.spend_scan(call.self.size() * 4));
  const std::string_view bytes = call.self.view();
  const std::string_view name = call.name;
  bool cased = false;  // isupper and islower also want a letter that has case
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_next(bytes.substr(at));
    const char32_t c = step.code_point;
    at += static_cast<size_t>(step.length);
    cased |= is_upper(c) || is_lower(c);
    const bool passes = name == "isalpha"       ? is_alpha(c)
                        : name == "isdecimal"   ? is_decimal(c)
                        : name == "isdigit"     ? is_decimal(c)
                        : name == "isnumeric"   ? is_numeric(c)
                        : name == "isalnum"     ? is_alpha(c) || is_numeric(c)
                        : name == "isspace"     ? is_space(c)
                        : name == "isascii"     ? c < 0x80
                        : name == "isprintable" ? is_printable(c)
                        : name == "isupper"     ? !is_lower(c)
                                                : !is_upper(c);
    if (!passes) return Value(false);
  }
  if (name == "isupper" || name == "islower") return Value(cased);
  return Value(!bytes.empty() || name == "isascii" || name == "isprintable");
}

Result<Value> pad_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"width", "fillchar"}, 1));
  TRY_ASSIGN(const int64_t width, integer_argument(given[0], call.name, 0));
  TRY_ASSIGN(const Text* fill, text_argument(given[1], call.name));
  if (fill != nullptr && count_code_points(fill->view()) != 1)
    return fails(call, "the fill character must be exactly one character long");
  const Align align = call.name == "ljust"   ? Align::kLeft
                      : call.name == "rjust" ? Align::kRight
                                             : Align::kCenter;
  TRY_ASSIGN(Text result, pad(call.budget, call.self, width,
                              fill == nullptr ? Text::from_client(" ") : *fill, align));
  return make_text(call.budget, std::move(result));
}

Result<Value> zfill_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"width"}, 1));
  TRY_ASSIGN(const int64_t width, integer_argument(given[0], call.name, 0));
  const bool sign = !call.self.empty() && (call.self.bytes[0] == '-' || call.self.bytes[0] == '+');
  const Text rest = call.self.part(sign ? 1 : 0, call.self.size());
  TRY_ASSIGN(const Text padded, pad(call.budget, rest, width - (sign && width > INT32_MIN ? 1 : 0),
                                    Text::from_client("0"), Align::kRight));
  TextBuilder out(call.budget.limits().max_output_bytes);
  out.append_part(call.self, 0, sign ? 1 : 0);
  out.append(padded);
  return make_text(call.budget, out);
}

Result<Value> join_method(const Call& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"iterable"}, 1));
  TRY_ASSIGN(const auto items, iterate(call.budget, *given[0]));
  TextBuilder out(call.budget.limits().max_output_bytes);
  for (size_t i = 0; i < items->items.size() && !out.overflowed(); ++i) {
    TRY(call.budget.spend_steps(1));
    TRY_ASSIGN(const Text* text, text_argument(&items->items[i], call.name));
    if (i > 0) out.append(call.self);
    out.append(call.self.markup ? text->escaped() : *text);
  }
  if (out.overflowed()) return call.budget.too_long();
  Text joined = out.take();
  joined.markup = call.self.markup;
  return make_text(call.budget, std::move(joined));
}

constexpr std::array<std::pair<std::string_view, MethodFunction>, 39> kMethods = {{
    {"strip", strip_method},
    {"lstrip", strip_method},
    {"rstrip", strip_method},
    {"split", split_method},
    {"rsplit", split_method},
    {"splitlines", splitlines_method},
    {"partition", partition_method},
    {"rpartition", partition_method},
    {"startswith", affix_method},
    {"endswith", affix_method},
    {"find", find_method},
    {"rfind", find_method},
    {"index", find_method},
    {"rindex", find_method},
    {"count", count_method},
    {"replace", replace_method},
    {"removeprefix", remove_affix_method},
    {"removesuffix", remove_affix_method},
    {"upper", case_method},
    {"lower", case_method},
    {"casefold", case_method},
    {"title", case_method},
    {"capitalize", case_method},
    {"swapcase", case_method},
    {"isalpha", all_characters_method},
    {"isdecimal", all_characters_method},
    {"isdigit", all_characters_method},
    {"isnumeric", all_characters_method},
    {"isalnum", all_characters_method},
    {"isspace", all_characters_method},
    {"isascii", all_characters_method},
    {"isprintable", all_characters_method},
    {"isupper", all_characters_method},
    {"islower", all_characters_method},
    {"ljust", pad_method},
    {"rjust", pad_method},
    {"center", pad_method},
    {"zfill", zfill_method},
    {"join", join_method},
}};

MethodFunction find_string_method(std::string_view name) {
  for (const auto& [known, function] : kMethods)
    if (known == name) return function;
  return nullptr;
}

}  // namespace

bool has_string_method(std::string_view name) { return find_string_method(name) != nullptr; }

Result<Value> call_string_method(Budget& budget, const Text& self, std::string_view name,
                                 const Arguments& arguments) {
  const MethodFunction function = find_string_method(name);
  CHECK(function != nullptr, "no string method ", name);
  return function(Call{budget, self, name, arguments});
}

}  // namespace pewter::jinja
