// Text in columns, for people.
#pragma once

#include <string>
#include <vector>

namespace pewter {

class Table {
 public:
  enum class Align { kLeft, kRight };
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  // One cell per column; ASCII, so that a byte is a column of the screen.
  void row(std::vector<std::string> cells);
  // A line between what is above and what follows.
  void rule() { rows_.emplace_back(); }
  // Every line indented by two spaces and ended by a newline; no blanks at the end of a line.
  std::string text() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty one is a rule
};

// 1234567 -> "1 234 567".
std::string grouped(int64_t number);
// 0.1234 -> "12.3 %".
std::string percent(double share, int digits = 1);

}  // namespace pewter
