// StopStrings: finds the texts a client wants to stop at in a text that streams. Whatever could
// still become one is held back, so that no client sees half of a stop.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pewter::server {

class StopStrings {
 public:
  // None of the strings is empty. include: the stop itself is given out too.
  StopStrings(std::vector<std::string> stops, bool include)
      : stops_(std::move(stops)), include_(include) {}

  // What may be given out by now. The earliest stop wins, of those that begin at one place the
  // longest that is complete; after it everything is swallowed.
  std::string push(std::string_view text);
  // The same without looking for stops: what was held back, and the text.
  std::string pass(std::string_view text);
  // What is held back, when the text has ended.
  std::string flush() { return pass({}); }

  // The string that was found.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace pewter::server
