// Filters that make texts of texts.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode.h"

namespace pewter::jinja {
namespace {

Result<Value> trim(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"chars"}));
  const bool all = given[0] == nullptr || given[0]->is_none();
  TRY_ASSIGN(const Text* characters, text_argument(all ? nullptr : given[0], call.name));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  TRY(call.budget.spend_scan(value.text().size() *
                             (characters == nullptr ? 1 : characters->size() + 1)));
  return make_text(call.budget, strip(value.text(), Side::kBoth, characters));
}

// Jinja's own title(): a word begins after blanks, hyphens and opening brackets only.
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  size_t word = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_next(text.substr(at));
    const auto length = static_cast<size_t>(step.length);
    const char32_t c = step.code_point;
    const bool separates = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (!separates && begins) {
      out += to_upper(text.substr(at, length));
      word = at + length;
    }
    const bool last = at + length >= text.size();
    if (!begins && separates) out += to_lower(text.substr(word, at - word));
    if (!separates && last) out += to_lower(text.substr(word, at + length - word));
    if (separates) out += text.substr(at, length);
    begins = separates;
    at += length;
  }
  return out;
}

Result<Value> change_case(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  const Text& text = value.text();
  TRY(call.budget.spend_scan(text.size() * 4));
  Text out = text.rewritten(call.name == "upper"   ? to_upper(text.view())
                            : call.name == "lower" ? to_lower(text.view())
                            : call.name == "title" ? title_words(text.view())
                                                   : capitalize(text.view()));
  if (call.name == "title") out.markup = false;
  return make_text(call.budget, std::move(out));
}

Result<Value> replace_filter(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"old", "new", "count"}, 2));
  const bool all = given[2] == nullptr || given[2]->is_none();
  TRY_ASSIGN(const int64_t most, integer_argument(all ? nullptr : given[2], call.name, -1));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  TRY_ASSIGN(const Value old_value, str(call.budget, *given[0]));
  TRY_ASSIGN(const Value new_value, str(call.budget, *given[1]));
  TRY_ASSIGN(Text out,
             replace(call.budget, value.text(), old_value.text(), new_value.text(), most));
  out.markup = false;
  return make_text(call.budget, std::move(out));
}

Result<Value> join(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"d", "attribute"}));
  Value separator = Value::authored("");
  if (given[0] != nullptr) {
    TRY_ASSIGN(separator, str(call.budget, *given[0]));
  }
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  TextBuilder out(call.budget.limits().max_output_bytes);
  for (size_t i = 0; i < items->items.size(); ++i) {
    Value value = items->items[i];
    if (given[1] != nullptr && !given[1]->is_none()) {
      TRY_ASSIGN(value, value_at_path(call.budget, value, *given[1]));
    }
    if (i > 0) out.append(separator.text());
    TRY(append_str(call.budget, out, value));
    if (out.overflowed()) return call.budget.too_long();
  }
  return make_text(call.budget, out);
}

Result<Value> string(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  return str(call.budget, call.input);
}

Result<Value> safe(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  if (value.text().markup) return value;
  Text text = value.text();
  text.markup = true;
  return make_text(call.budget, std::move(text));
}

Result<Value> escape(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  TRY(call.budget.spend_memory(static_cast<int64_t>(value.text().size())));
  Text text = value.text();
  if (call.name == "forceescape") text.markup = false;
  return make_text(call.budget, text.escaped());
}

Result<Value> center(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"width"}));
  TRY_ASSIGN(const int64_t width, integer_argument(given[0], call.name, 80));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  TRY_ASSIGN(Text out,
             pad(call.budget, value.text(), width, Text::from_client(" "), Align::kCenter));
  return make_text(call.budget, std::move(out));
}

Result<Value> format(const FilterCall& call) {
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  const Arguments& arguments = call.arguments;
  if (!arguments.named.empty() && !arguments.positional.empty())
    return call.fails("takes positional or named values, not both");
  if (arguments.named.empty()) {
    TRY_ASSIGN(const Value values,
               make_sequence(call.budget, Sequence::Kind::kTuple, arguments.positional));
    return percent_format(call.budget, value.text(), values);
  }
  std::vector<Dict::Item> items;
  for (const auto& [name, named] : arguments.named)
    items.emplace_back(Value(Text::from_client(name)), named);
  TRY_ASSIGN(const Value values, make_dict(call.budget, std::move(items)));
  return percent_format(call.budget, value.text(), values);
}

Result<Value> indent(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"width", "first", "blank"}));
  TRY_ASSIGN(const bool first, flag_argument(given[1], false));
  TRY_ASSIGN(const bool blank, flag_argument(given[2], false));
  if (!call.input.is_string()) return call.fails("wants a string");
  const int64_t limit = call.budget.limits().max_output_bytes;
  TextBuilder margin(limit);
  if (given[0] != nullptr && given[0]->is_string()) {
    margin.append(given[0]->text());
  } else {
    TRY_ASSIGN(const int64_t width, integer_argument(given[0], call.name, 4));
    margin.append_repeated(Text::authored(" "), width);
  }
  if (margin.overflowed()) return call.budget.too_long();
  const Text margin_text = margin.take();
  // A newline is added and taken off again by the split, so that a trailing one makes a last line.
  TextBuilder whole(limit);
  whole.append(call.input.text());
  whole.append_authored("\n");
  TRY_ASSIGN(const std::vector<Text> lines, split_lines(call.budget, whole.take(), false));
  TextBuilder out(limit);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append_authored("\n");
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(margin_text);
    out.append(lines[i]);
    if (out.overflowed()) return call.budget.too_long();
  }
  Text result = out.take();
  result.markup = call.input.text().markup;
  return make_text(call.budget, std::move(result));
}

Result<Value> truncate(const FilterCall& call) {
  TRY_ASSIGN(const auto given,
             bind(call.arguments, call.name, {"length", "killwords", "end", "leeway"}));
  TRY_ASSIGN(const int64_t length, integer_argument(given[0], call.name, 255));
  TRY_ASSIGN(const bool kill_words, flag_argument(given[1], false));
  TRY_ASSIGN(const Text* end_text, text_argument(given[2], call.name));
  const bool no_leeway = given[3] == nullptr || given[3]->is_none();
  TRY_ASSIGN(const int64_t leeway, integer_argument(no_leeway ? nullptr : given[3], call.name, 5));
  const Text end = end_text == nullptr ? Text::authored("...") : *end_text;
  if (!call.input.is_string()) return call.fails("wants a string");
  const Text& text = call.input.text();
  TRY(call.budget.spend_scan(text.size()));
  const auto offsets = code_point_offsets(text.view());
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  const int64_t keep = length - count_code_points(end.view());
  if (keep < 0 || leeway < 0) return call.fails("the length is too small");
  if (count <= length || count - length <= leeway) return call.input;
  size_t cut = offsets[static_cast<size_t>(std::min(keep, count))];
  if (!kill_words) {
    const size_t blank = text.view().substr(0, cut).rfind(' ');
    if (blank != std::string_view::npos) cut = blank;
  }
  TextBuilder out(call.budget.limits().max_output_bytes);
  out.append_part(text, 0, cut);
  out.append(end);
  return make_text(call.budget, out);
}

Result<Value> wordcount(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  TRY(call.budget.spend_scan(value.text().size() * 4));
  int64_t count = 0;
  bool inside = false;
  const std::string_view text = value.text().view();
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_next(text.substr(at));
    const bool word = is_word(step.code_point);
    count += word && !inside;
    inside = word;
    at += static_cast<size_t>(step.length);
  }
  return Value(count);
}

Result<Value> urlencode(const FilterCall& call) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  static constexpr std::string_view kPlain = "_.-~/";
  TRY(bind(call.arguments, call.name, {}));
  if (call.input.is_dict() || call.input.is_sequence())
    return call.fails("of a mapping is not implemented");
  TRY_ASSIGN(const Value value, str(call.budget, call.input));
  TRY(call.budget.spend_memory(static_cast<int64_t>(value.text().size()) * 3));
  std::string out;
  for (const char c : value.text().bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && (std::isalnum(byte) != 0 || kPlain.find(c) != std::string_view::npos)) {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return make_text(call.budget, Text::from_client(out));
}

constexpr FilterEntry kFilters[] = {
    {"trim", trim},
    {"upper", change_case},
    {"lower", change_case},
    {"title", change_case},
    {"capitalize", change_case},
    {"replace", replace_filter},
    {"join", join},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", escape},
    {"center", center},
    {"format", format},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"urlencode", urlencode},
};

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace pewter::jinja
