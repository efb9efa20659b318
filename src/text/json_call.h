// Tool calls of the JSON dialect, {"name": NAME, "arguments": {…}} between <tool_call> tags. An
// object is judged as a whole, since a broken one is text: its arguments go out when it closes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pewter {

// Looks for the end of a JSON object that arrives in pieces.
class JsonObjectScanner {
 public:
  enum class Found : uint8_t { kUnsure, kComplete, kBroken };
  // `text` begins with '{' and goes on from what the scanner has seen. kBroken: no JSON object can
  // begin like this (not every fault is seen).
  Found scan(std::string_view text);
  size_t size() const { return at_; }  // of the object, once complete

 private:
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

struct JsonCall {
  std::string name;
  std::string arguments;  // JSON text of an object
};

// Nothing when the object is no call. "parameters" is another name for "arguments", which may be
// JSON text in a string, null or missing.
std::optional<JsonCall> parse_json_call(std::string_view object);

// A call whose object was cut off inside its arguments; these stay unterminated. Nothing when what
// there is does not show a name and the beginning of arguments, in this order.
std::optional<JsonCall> parse_cut_json_call(std::string_view beginning);

}  // namespace pewter
