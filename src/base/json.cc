#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/utf8.h"

namespace pewter {
namespace {

// Receives nlohmann's parse events and builds a Json; it sees numbers as written, which the DOM
// does not.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const Json::ParseOptions& options) : options_(options) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return add(Json(static_cast<int64_t>(value)));
    return add(Json(Json::BigInteger{std::to_string(value)}));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    if (integer) return add(Json(Json::BigInteger{text}));
    return add(Json(value));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    if (static_cast<int64_t>(stack_.back().as_object().size()) >= options_.max_keys) {
      error_ = str_cat("an object has more than ", options_.max_keys, " keys");
      return false;
    }
    keys_.back() = std::move(value);
    return true;
  }
  bool start_object(std::size_t) override { return open(Json(Json::Object{})); }
  bool start_array(std::size_t) override { return open(Json(Json::Array{})); }
  bool end_object() override { return resolve_duplicates(stack_.back().as_object()) && close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    if (error_.empty()) {
      // "[json.exception.parse_error.101] parse error at line 1, column 5: …" -> from "at line".
      const std::string what = exception.what();
      const size_t at = what.find("at line");
      error_ = at == std::string::npos ? str_cat("not valid JSON near byte ", position)
                                       : "not valid JSON " + replace_invalid_utf8(what.substr(at));
    }
    return false;
  }

  Json take_root() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  bool add(Json value) {
    if (++values_ > options_.max_values) {
      error_ = str_cat("more than ", options_.max_values, " values");
      return false;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().as_array().push_back(std::move(value));
    } else {
      stack_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= options_.max_depth) {
      error_ = str_cat("nested deeper than ", options_.max_depth, " levels");
      return false;
    }
    stack_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }
  // Sorts indexes rather than searching at each insertion, so that large objects stay cheap.
  bool resolve_duplicates(Json::Object& object) {
    std::vector<size_t> order(object.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return object[a].first < object[b].first; });
    std::vector<bool> drop(object.size());
    bool any = false;
    for (size_t i = 0; i < order.size();) {
      size_t end = i + 1;
      while (end < order.size() && object[order[end]].first == object[order[i]].first) ++end;
      if (end - i > 1) {
        if (options_.reject_duplicate_keys) {
          error_ = "duplicate key \"" + object[order[i]].first + "\"";
          return false;
        }
        object[order[i]].second = std::move(object[order[end - 1]].second);
        for (size_t j = i + 1; j < end; ++j) drop[order[j]] = true;
        any = true;
      }
      i = end;
    }
    if (!any) return true;
    Json::Object kept;
    for (size_t i = 0; i < object.size(); ++i)
      if (!drop[i]) kept.push_back(std::move(object[i]));
    object = std::move(kept);
    return true;
  }

  const Json::ParseOptions options_;
  std::vector<Json> stack_;
  std::vector<std::string> keys_;
  Json root_;
  int64_t values_ = 0;
  std::string error_;
};

void append_newline(std::string& out, int indent, int depth) {
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

void append_dump(std::string& out, const Json& value, const Json::DumpOptions& options, int depth) {
  const bool lines = options.indent >= 0;
  const std::string_view comma = options.spaced && !lines ? ", " : ",";
  const std::string_view colon = options.spaced || lines ? ": " : ":";
  switch (value.type()) {
    case Json::Type::kNull:
      out += "null";
      break;
    case Json::Type::kBool:
      out += value.as_bool() ? "true" : "false";
      break;
    case Json::Type::kInteger:
      append_piece(out, value.as_integer());
      break;
    case Json::Type::kBigInteger:
      out += value.as_big_integer().digits;
      break;
    case Json::Type::kFloat: {
      const double number =
          value.as_double();  // Python's json.dumps spells these three its own way
      if (std::isnan(number))
        out += "NaN";
      else if (std::isinf(number))
        out += number > 0 ? "Infinity" : "-Infinity";
      else
        out += python_float_repr(number);
      break;
    }
    case Json::Type::kString:
      append_json_string(out, value.as_string());
      break;
    case Json::Type::kArray: {
      const auto& array = value.as_array();
      out += '[';
      for (size_t i = 0; i < array.size(); ++i) {
        if (i > 0) out += comma;
        if (lines) append_newline(out, options.indent, depth + 1);
        append_dump(out, array[i], options, depth + 1);
      }
      if (lines && !array.empty()) append_newline(out, options.indent, depth);
      out += ']';
      break;
    }
    case Json::Type::kObject: {
      const auto& object = value.as_object();
      out += '{';
      for (size_t i = 0; i < object.size(); ++i) {
        if (i > 0) out += comma;
        if (lines) append_newline(out, options.indent, depth + 1);
        append_json_string(out, object[i].first);
        out += colon;
        append_dump(out, object[i].second, options, depth + 1);
      }
      if (lines && !object.empty()) append_newline(out, options.indent, depth);
      out += '}';
      break;
    }
  }
}

}  // namespace

Result<Json> Json::parse(std::string_view text, const ParseOptions& options) {
  Builder builder(options);
  bool ok = false;
  try {
    ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& e) {
    return Error{ErrorCode::kCorruptData, e.what()};
  }
  if (!ok)
    return Error{ErrorCode::kCorruptData,
                 builder.error().empty() ? std::string("not valid JSON") : builder.error()};
  return builder.take_root();
}

double Json::as_double() const {
  switch (type()) {
    case Type::kInteger:
      return static_cast<double>(as_integer());
    case Type::kBigInteger:
      return std::strtod(as_big_integer().digits.c_str(), nullptr);
    default:
      return get<double>("number");
  }
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object())
    if (name == key) return &value;
  return nullptr;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) *this = Json(Object{});
  Object& object = as_object();
  const auto found = std::find_if(object.begin(), object.end(),
                                  [&](const Member& member) { return member.first == key; });
  if (found != object.end()) return found->second = std::move(value);
  return object.emplace_back(std::string(key), std::move(value)).second;
}

std::string Json::dump(const DumpOptions& options) const {
  std::string out;
  append_dump(out, *this, options, 0);
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[(c >> 4) & 15];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

std::string python_float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Python prints fixed notation for decimal exponents in [-4, 16), scientific otherwise.
  std::array<char, 64> buffer;
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(scientific.ptr - buffer.data()));
  const int exponent = std::atoi(std::string(text.substr(text.find('e') + 1)).c_str());
  if (value != 0.0 && (exponent < -4 || exponent >= 16)) return std::string(text);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string out(buffer.data(), fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

}  // namespace pewter
