#include "cli/table.h"

#include <algorithm>

#include "base/check.h"
#include "base/str_cat.h"

namespace pewter {
namespace {

constexpr size_t kGap = 2;

}  // namespace

void Table::row(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size(), cells.size(), " cells in ", columns_.size(), " columns");
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths(columns_.size());
  size_t width = 0;
  for (size_t column = 0; column < columns_.size(); ++column) {
    for (const std::vector<std::string>& cells : rows_)
      if (!cells.empty()) widths[column] = std::max(widths[column], cells[column].size());
    width += widths[column] + (column == 0 ? 0 : kGap);
  }
  std::string text;
  for (const std::vector<std::string>& cells : rows_) {
    std::string line(kGap, ' ');
    if (cells.empty()) line.append(width, '-');
    for (size_t column = 0; column < cells.size(); ++column) {
      const std::string padding(widths[column] - cells[column].size(), ' ');
      if (column > 0) line.append(kGap, ' ');
      line += columns_[column] == Align::kRight ? padding + cells[column] : cells[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string grouped(int64_t number) {
  std::string digits = str_cat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, 1, ' ');
  return digits;
}

std::string percent(double share, int digits) { return fixed(100 * share, digits) + " %"; }

}  // namespace pewter
