// Fields: the members of a JSON object, read one by one into native types. Each read names what is
// wrong with its path ("stream_options.include_usage: …"); null counts as absent; what was never
// read can be asked for at the end.
#pragma once

#include <optional>
#include <set>

#include "base/json.h"
#include "server/request/errors.h"

namespace pewter::server {

// Parses a body as a JSON object within the limits of a request. Errors never repeat the client's
// bytes.
Result<Json> parse_body(std::string_view body);

class Fields {
 public:
  // The object must outlive this. Error: kInvalidArgument when it is none. `path` is its own, ""
  // for the body.
  static Result<Fields> of(const Json& object, std::string path);

  // Leaves `into` alone when the field is absent.
  Status read(std::string_view key, bool& into);
  Status read(std::string_view key, std::optional<bool>& into);
  Status read(std::string_view key, std::string& into);
  Status read(std::string_view key, std::optional<std::string>& into);
  struct IntegerRange {
    int64_t least = INT64_MIN, most = INT64_MAX;
  };
  Status read(std::string_view key, int64_t& into, IntegerRange range);
  Status read(std::string_view key, std::optional<int64_t>& into, IntegerRange range);
  // Ranges of real numbers are SamplingParams::validate's.
  Status read(std::string_view key, float& into);
  // A string, or a list of strings.
  Status read_strings(std::string_view key, std::vector<std::string>& into, size_t most);
  Status read_ids(std::string_view key, std::vector<int32_t>& into);

  // The value as it is, or nullptr when absent or null. Counts as read.
  const Json* take(std::string_view key);
  // Fields that change nothing here.
  void ignore(std::initializer_list<std::string_view> keys);
  // Fields that would change the answer and that this server does not know how to follow: an error
  // when one is present, unless its value says that nothing is wanted (null, false, "", [], {}).
  Status refuse(std::initializer_list<std::string_view> keys);

  std::string path_of(std::string_view key) const;
  std::vector<std::string> unread() const;
  // Names that have been read by now, present or not; without those of ignore and refuse.
  std::vector<std::string> read_names() const { return {read_.begin(), read_.end()}; }

 private:
  Fields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {}

  const Json* object_;
  std::string path_;
  std::set<std::string, std::less<>> seen_, read_;
};

// "a string", "a number", …: for messages.
std::string_view kind_name(const Json& value);
// Error: not an integer in the range. 4.0 counts as 4.
Result<int64_t> integer_value(const Json& value, const std::string& path,
                              Fields::IntegerRange range);

}  // namespace pewter::server
