#include "text/jinja/print.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/compare.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace pewter::jinja {
namespace {

using Kind = Value::Kind;

constexpr char kHex[] = "0123456789abcdef";

void append_hex(std::string& out, uint32_t number, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[(number >> shift) & 15];
}

std::string scalar_text(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.as_bool() ? "True" : "False";
    case Kind::kInteger:
      return str_cat(value.as_int64());
    case Kind::kBigInteger:
      return value.big_digits();
    case Kind::kFloat:
      return python_float_repr(value.as_double());
    default:
      return str_cat("<", value.type_name(), ">");
  }
}

Status append_items_repr(Budget& budget, TextBuilder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append_foreign(", ");
    TRY(append_repr(budget, out, items[i]));
  }
  return {};
}

Status append_sequence_repr(Budget& budget, TextBuilder& out, const Sequence& sequence) {
  using SequenceKind = Sequence::Kind;
  switch (sequence.kind) {
    case SequenceKind::kGenerator:
      out.append_foreign("<generator object>");
      return {};
    case SequenceKind::kTuple:
      out.append_foreign("(");
      TRY(append_items_repr(budget, out, sequence.items));
      out.append_foreign(sequence.items.size() == 1 ? ",)" : ")");
      return {};
    case SequenceKind::kRange: {
      const auto& [start, stop, step] = sequence.range;
      out.append_foreign(step == 1 ? str_cat("range(", start, ", ", stop, ")")
                                   : str_cat("range(", start, ", ", stop, ", ", step, ")"));
      return {};
    }
    default:
      break;
  }
  const bool view = sequence.kind != SequenceKind::kList;
  if (view) {
    out.append_foreign(
        Value(std::make_shared<const Sequence>(Sequence{sequence.kind, {}})).type_name());
    out.append_foreign("(");
  }
  out.append_foreign("[");
  TRY(append_items_repr(budget, out, sequence.items));
  out.append_foreign(view ? "])" : "]");
  return {};
}

Status append_dict_repr(Budget& budget, TextBuilder& out, const Dict& dict) {
  out.append_foreign("{");
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out.append_foreign(", ");
    TRY(append_repr(budget, out, dict.items[i].first));
    out.append_foreign(": ");
    TRY(append_repr(budget, out, dict.items[i].second));
  }
  out.append_foreign("}");
  return {};
}

void append_json_text(TextBuilder& out, std::string_view text, bool ascii) {
  std::string quoted_text;
  append_json_string(quoted_text, text);
  if (!ascii) {
    out.append_foreign(quoted_text);
    return;
  }
  std::string escaped;
  for (size_t i = 0; i < quoted_text.size();) {
    const Utf8Step step = utf8_next(std::string_view(quoted_text).substr(i));
    const char32_t c = step.code_point;
    i += static_cast<size_t>(step.length);
    if (c < 0x7F) {
      escaped += static_cast<char>(c);
      continue;
    }
    escaped += "\\u";
    if (c < 0x10000) {
      append_hex(escaped, c, 4);
    } else {
      append_hex(escaped, 0xD800 + ((c - 0x10000) >> 10), 4);
      escaped += "\\u";
      append_hex(escaped, 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
    }
  }
  out.append_foreign(escaped);
}

class JsonPrinter {
 public:
  JsonPrinter(Budget& budget, const JsonStyle& style, TextBuilder& out)
      : budget_(budget), style_(style), out_(out) {}

  Status print(const Value& value, int depth) {
    TRY(budget_.spend_steps(1));
    if (out_.overflowed()) return budget_.too_long();
    switch (value.kind()) {
      case Kind::kNone:
        out_.append_foreign("null");
        return {};
      case Kind::kBool:
      case Kind::kInteger:
      case Kind::kBigInteger:
      case Kind::kFloat:
        out_.append_foreign(number(value));
        return {};
      case Kind::kString:
        TRY(budget_.spend_scan(value.text().size()));
        append_json_text(out_, value.text().view(), style_.ascii);
        return {};
      case Kind::kSequence:
        if (value.sequence()->kind == Sequence::Kind::kList ||
            value.sequence()->kind == Sequence::Kind::kTuple)
          return print_list(value.sequence()->items, depth);
        break;
      case Kind::kDict:
        return print_dict(value.dict(), depth);
      default:
        break;
    }
    return Error{ErrorCode::kUnsupported,
                 str_cat("Object of type ", value.type_name(), " is not JSON serializable")};
  }

 private:
  static std::string number(const Value& value) {
    if (value.is_bool()) return value.as_bool() ? "true" : "false";
    if (value.is_float() && std::isnan(value.as_double())) return "NaN";
    if (value.is_float() && std::isinf(value.as_double()))
      return value.as_double() > 0 ? "Infinity" : "-Infinity";
    return scalar_text(value);
  }

  Status new_line(int depth) {
    if (!style_.lines) return {};
    out_.append_foreign("\n");
    out_.append_repeated(Text::from_client(style_.indent), depth);
    return {};
  }

  Status print_list(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_.append_foreign("[]");
      return {};
    }
    out_.append_foreign("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append_foreign(style_.item_separator);
      TRY(new_line(depth + 1));
      TRY(print(items[i], depth + 1));
    }
    TRY(new_line(depth));
    out_.append_foreign("]");
    return {};
  }

  Status print_dict(const Dict& dict, int depth) {
    if (dict.items.empty()) {
      out_.append_foreign("{}");
      return {};
    }
    std::vector<const Dict::Item*> items;
    for (const Dict::Item& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) TRY(sort(items));
    out_.append_foreign("{");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append_foreign(style_.item_separator);
      TRY(new_line(depth + 1));
      TRY(print_key(items[i]->first));
      out_.append_foreign(style_.key_separator);
      TRY(print(items[i]->second, depth + 1));
    }
    TRY(new_line(depth));
    out_.append_foreign("}");
    return {};
  }

  Status print_key(const Value& key) {
    if (key.is_string())
      append_json_text(out_, key.text().view(), style_.ascii);
    else if (key.is_number())
      out_.append_foreign("\"" + number(key) + "\"");
    else if (key.is_none())
      out_.append_foreign("\"null\"");
    else
      return Error{ErrorCode::kUnsupported,
                   str_cat("keys must be str, int, float, bool or None, not ", key.type_name())};
    return {};
  }

  Status sort(std::vector<const Dict::Item*>& items) {
    Status failure;
    std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
      const Result<int> result = order(budget_, a->first, b->first);
      if (!result && failure) failure = result.error();
      return result.has_value() && *result == -1;
    });
    return failure;
  }

  Budget& budget_;
  const JsonStyle& style_;
  TextBuilder& out_;
};

}  // namespace

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_next(text.substr(i));
    const char32_t c = step.code_point;
    const auto length = static_cast<size_t>(step.length);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(i, length);
    } else if (c < 0x100) {
      out += "\\x";
      append_hex(out, c, 2);
    } else if (c < 0x10000) {
      out += "\\u";
      append_hex(out, c, 4);
    } else {
      out += "\\U";
      append_hex(out, c, 8);
    }
    i += length;
  }
  out += quote;
  return out;
}

Status append_repr(Budget& budget, TextBuilder& out, const Value& value) {
  TRY(budget.spend_steps(1));
  if (out.overflowed()) return budget.too_long();
  switch (value.kind()) {
    case Kind::kUndefined:
      out.append_foreign("Undefined");
      return {};
    case Kind::kString: {
      TRY(budget.spend_scan(value.text().size()));
      const std::string text = quoted(value.text().view());
      out.append_foreign(value.text().markup ? "Markup(" + text + ")" : text);
      return {};
    }
    case Kind::kSequence:
      return append_sequence_repr(budget, out, *value.sequence());
    case Kind::kDict:
      return append_dict_repr(budget, out, value.dict());
    case Kind::kMacro:
      out.append_foreign(str_cat("<Macro ", quoted(value.macro()->node->name), ">"));
      return {};
    case Kind::kLoop:
      out.append_foreign(str_cat("<LoopContext ", value.loop()->index + 1, "/",
                                 value.loop()->items->items.size(), ">"));
      return {};
    default:
      out.append_foreign(scalar_text(value));
      return {};
  }
}

Status append_str(Budget& budget, TextBuilder& out, const Value& value) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return append_repr(budget, out, value);
  TRY(budget.spend_scan(value.text().size()));
  out.append(value.text());
  return {};
}

Result<Value> str(Budget& budget, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(budget.limits().max_output_bytes);
  TRY(append_str(budget, out, value));
  return make_text(budget, out);
}

Result<Value> to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  TextBuilder out(budget.limits().max_output_bytes);
  TRY(JsonPrinter(budget, style, out).print(value, 0));
  return make_text(budget, out);
}

}  // namespace pewter::jinja
