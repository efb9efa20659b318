// printf-style formatting: "%s: %05.2f" % (name, number).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/print.h"

namespace pewter::jinja {
namespace {

constexpr int64_t kMaxPrecision = 300;  // of a float: more digits than any double has

struct Conversion {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 's';
};

Error bad(std::string_view what) {
  return Error{ErrorCode::kUnsupported, str_cat("in a format string: ", what)};
}

class Formatter {
 public:
  Formatter(Budget& budget, const Text& format, const Value& values)
      : budget_(budget), format_(format), values_(values), out_(budget.limits().max_output_bytes) {
    tuple_ = values.is_sequence() && values.sequence()->kind == Sequence::Kind::kTuple;
  }

  Result<Value> run() {
    const std::string& text = format_.bytes;
    while (at_ < text.size()) {
      const size_t percent = std::min(text.find('%', at_), text.size());
      out_.append_part(format_, at_, percent);
      at_ = percent + 1;
      if (percent == text.size()) break;
      TRY(conversion());
    }
    if (out_.overflowed()) return budget_.too_long();
    const bool container = !tuple_ && (values_.is_dict() || values_.is_sequence());
    if (!container && !values_.is_undefined() &&
        used_ < (tuple_ ? values_.sequence()->items.size() : 1))
      return bad("not all arguments converted during string formatting");
    Text result = out_.take();
    result.markup = format_.markup;
    return make_text(budget_, std::move(result));
  }

 private:
  Result<Value> next_value() {
    if (keyed_ != nullptr) return *std::exchange(keyed_, nullptr);
    if (tuple_ && used_ < values_.sequence()->items.size())
      return values_.sequence()->items[used_++];
    if (!tuple_ && used_++ == 0) return values_;
    return bad("not enough arguments for format string");
  }

  Result<int64_t> number_or_star() {
    const std::string& text = format_.bytes;
    if (at_ < text.size() && text[at_] == '*') {
      ++at_;
      TRY_ASSIGN(const Value value, next_value());
      if (!value.is_int64()) return bad("* wants int");
      return value.as_int64();
    }
    int64_t number = 0;
    for (; at_ < text.size() && text[at_] >= '0' && text[at_] <= '9'; ++at_)
      number = std::min<int64_t>(number * 10 + (text[at_] - '0'), INT32_MAX);
    return number;
  }

  Status conversion() {
    const std::string& text = format_.bytes;
    Conversion conversion;
    if (at_ < text.size() && text[at_] == '(') {
      const size_t close = text.find(')', at_);
      if (close == std::string::npos) return bad("incomplete format key");
      if (!values_.is_dict()) return bad("format requires a mapping");
      keyed_ = values_.dict().find(std::string_view(text).substr(at_ + 1, close - at_ - 1));
      if (keyed_ == nullptr) return bad("the mapping lacks the key");
      at_ = close + 1;
    }
    for (; at_ < text.size(); ++at_) {
      if (text[at_] == '-')
        conversion.left = true;
      else if (text[at_] == '0')
        conversion.zero = true;
      else if (text[at_] == '+')
        conversion.plus = true;
      else if (text[at_] == ' ')
        conversion.space = true;
      else if (text[at_] == '#')
        conversion.alternate = true;
      else
        break;
    }
    TRY_ASSIGN(conversion.width, number_or_star());
    if (conversion.width < 0) {
      conversion.left = true;
      conversion.width = -std::max<int64_t>(conversion.width, -INT32_MAX);
    }
    if (at_ < text.size() && text[at_] == '.') {
      ++at_;
      TRY_ASSIGN(conversion.precision, number_or_star());
      conversion.precision = std::max<int64_t>(conversion.precision, 0);
    }
    while (at_ < text.size() && (text[at_] == 'h' || text[at_] == 'l' || text[at_] == 'L')) ++at_;
    if (at_ >= text.size()) return bad("incomplete format");
    conversion.type = text[at_++];
    if (conversion.type == '%') {
      out_.append_part(format_, at_ - 1, at_);
      keyed_ = nullptr;
      return {};
    }
    TRY_ASSIGN(const Value value, next_value());
    return convert(conversion, value);
  }

  Status convert(const Conversion& conversion, const Value& value) {
    switch (conversion.type) {
      case 's':
      case 'r':
        return text_conversion(conversion, value);
      case 'c': {
        std::string character;
        if (value.is_string() && count_code_points(value.text().view()) == 1)
          character = value.text().bytes;
        else if (value.is_int64() && value.as_int64() >= 0 && value.as_int64() < 0xD800)
          append_utf8(character, static_cast<char32_t>(value.as_int64()));
        else
          return bad("%c requires int or char");
        return pad(conversion, Text::from_client(character));
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer_conversion(conversion, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return float_conversion(conversion, value);
      default:
        return bad(str_cat("unsupported format character '", conversion.type, "'"));
    }
  }

  Status text_conversion(const Conversion& conversion, const Value& value) {
    TextBuilder piece(budget_.limits().max_output_bytes);
    if (conversion.type == 's')
      TRY(append_str(budget_, piece, value));
    else
      TRY(append_repr(budget_, piece, value));
    if (piece.overflowed()) return budget_.too_long();
    Text text = piece.take();
    if (format_.markup) text = text.escaped();
    if (conversion.precision >= 0) {
      const auto offsets = code_point_offsets(text.view());
      const auto keep =
          std::min<size_t>(static_cast<size_t>(conversion.precision), offsets.size() - 1);
      text = text.part(0, offsets[keep]);
    }
    return pad(conversion, text);
  }

  Status integer_conversion(const Conversion& conversion, const Value& value) {
    const bool decimal = conversion.type == 'd' || conversion.type == 'i' || conversion.type == 'u';
    std::string digits;
    if (value.kind() == Value::Kind::kBigInteger && decimal) {
      digits = value.big_digits();
    } else if (value.is_float() && decimal && std::isfinite(value.as_double())) {
      std::array<char, 400> buffer;
      const int length =
          std::snprintf(buffer.data(), buffer.size(), "%.0f", std::trunc(value.as_double()));
      digits.assign(buffer.data(), static_cast<size_t>(length));
      if (digits == "-0") digits = "0";
    } else if (value.is_int64()) {
      const int base = decimal ? 10 : conversion.type == 'o' ? 8 : 16;
      std::array<char, 72> buffer;
      digits.assign(
          buffer.data(),
          std::to_chars(buffer.data(), buffer.data() + buffer.size(), value.as_int64(), base).ptr);
    } else {
      return bad(
          str_cat("%", conversion.type, " format: a number is required, not ", value.type_name()));
    }
    std::string sign = conversion.plus ? "+" : conversion.space ? " " : "";
    if (digits[0] == '-') {
      sign = "-";
      digits.erase(0, 1);
    }
    if (conversion.precision > static_cast<int64_t>(digits.size())) {
      if (conversion.precision > kMaxPrecision) return bad("precision too large");
      digits.insert(0, static_cast<size_t>(conversion.precision) - digits.size(), '0');
    }
    if (conversion.alternate && !decimal) sign += conversion.type == 'o' ? "0o" : "0x";
    if (conversion.type == 'X')
      for (std::string* part : {&sign, &digits})
        for (char& c : *part) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    return pad_number(conversion, sign, digits);
  }

  Status float_conversion(const Conversion& conversion, const Value& value) {
    if (!value.is_number()) return bad(str_cat("must be real number, not ", value.type_name()));
    const int64_t precision = conversion.precision < 0 ? 6 : conversion.precision;
    if (precision > kMaxPrecision) return bad("precision too large");
    const double number = value.as_double();
    const char format[] = {'%',
                           conversion.alternate ? '#' : '.',
                           conversion.alternate ? '.' : '*',
                           conversion.alternate ? '*' : conversion.type,
                           conversion.alternate ? conversion.type : '\0',
                           '\0'};
    std::array<char, 700> buffer;
    const int length = std::snprintf(buffer.data(), buffer.size(), format,
                                     static_cast<int>(precision), std::fabs(number));
    std::string sign = conversion.plus ? "+" : conversion.space ? " " : "";
    if (std::signbit(number) && !std::isnan(number)) sign = "-";
    return pad_number(conversion, sign, std::string(buffer.data(), static_cast<size_t>(length)));
  }

  Status pad_number(const Conversion& conversion, const std::string& sign,
                    const std::string& digits) {
    const auto length = static_cast<int64_t>(sign.size() + digits.size());
    if (!conversion.zero || conversion.left || length >= conversion.width)
      return pad(conversion, Text::from_client(sign + digits));
    out_.append_foreign(sign);
    out_.append_repeated(Text::from_client("0"), conversion.width - length);
    out_.append_foreign(digits);
    return {};
  }

  Status pad(const Conversion& conversion, const Text& text) {
    const int64_t blanks = conversion.width - count_code_points(text.view());
    if (!conversion.left) out_.append_repeated(Text::from_client(" "), blanks);
    out_.append(text);
    if (conversion.left) out_.append_repeated(Text::from_client(" "), blanks);
    return out_.overflowed() ? Status(budget_.too_long()) : Status();
  }

  Budget& budget_;
  const Text& format_;
  const Value& values_;
  TextBuilder out_;
  bool tuple_ = false;
  size_t at_ = 0;
  size_t used_ = 0;
  const Value* keyed_ = nullptr;  // the value a (key) named
};

}  // namespace

Result<Value> percent_format(Budget& budget, const Text& format, const Value& values) {
  TRY(budget.spend_scan(format.size()));
  return Formatter(budget, format, values).run();
}

}  // namespace pewter::jinja
