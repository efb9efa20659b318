// What `pewter bench accept` prints: a table, CSV, and a chart.
#include <algorithm>

#include "base/str_cat.h"
#include "cli/bench_accept.h"
#include "cli/table.h"

namespace pewter {
namespace {

// Sizes of the chart, in pixels.
constexpr int kBar = 12, kGap = 10, kLabels = 110, kChart = 520, kTop = 46, kKey = 110;
// Colours that stay apart in grey and for most who do not see all.
constexpr const char* kColours[] = {"#9aa0a6", "#0072b2", "#e69f00", "#009e73",
                                    "#cc79a7", "#56b4e9", "#d55e00", "#8c6d00"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string label(int x, int y, std::string_view text, std::string_view anchor = "start") {
  return str_cat("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">", escaped(text),
                 "</text>\n");
}

std::string rectangle(int x, int y, int width, int height, std::string_view colour) {
  return str_cat("<rect x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"", height,
                 "\" fill=\"", colour, "\"/>\n");
}

const char* colour_of(size_t method) { return kColours[method % std::size(kColours)]; }

}  // namespace

std::string accept_text(const AcceptResult& result) {
  std::vector<Table::Align> columns(result.options.methods.size() + 1, Table::Align::kRight);
  columns[0] = Table::Align::kLeft;
  Table table(columns);
  std::vector<std::string> head = {"tokens/s (tokens a step)"};
  for (const AcceptMethod& method : result.options.methods) head.push_back(method.name);
  table.row(head);
  table.rule();
  for (size_t f = 0; f < result.families.size(); ++f) {
    if (f + 1 == result.families.size()) table.rule();
    std::vector<std::string> row = {result.families[f]};
    for (const AcceptCell& cell : result.cells[f])
      row.push_back(
          str_cat(fixed(cell.tokens_per_second(), 1), " (", fixed(cell.tokens_per_step(), 2), ")"));
    table.row(row);
  }
  std::vector<std::string> right = {"guesses that were right"};
  for (const AcceptCell& cell : result.cells.back())
    right.push_back(cell.drafts.draft_tokens > 0 ? percent(cell.drafts.acceptance_rate()) : "-");
  table.row(right);
  return table.text();
}

std::string accept_csv(const AcceptResult& result) {
  std::string csv =
      "device,sequences,temperature,family,method,prompts,tokens,steps,drafts,draft_tokens,"
      "accepted_tokens,tokens_per_step,seconds,tokens_per_second\n";
  for (size_t f = 0; f < result.families.size(); ++f)
    for (size_t m = 0; m < result.options.methods.size(); ++m) {
      const AcceptCell& cell = result.cells[f][m];
      csv += str_cat(result.device, ",", result.options.sequences, ",",
                     fixed(result.options.temperature, 2), ",", result.families[f], ",",
                     result.options.methods[m].name, ",", cell.prompts, ",", cell.tokens, ",",
                     cell.steps(), ",", cell.drafts.drafts, ",", cell.drafts.draft_tokens, ",",
                     cell.drafts.accepted_tokens, ",", fixed(cell.tokens_per_step(), 4), ",",
                     fixed(cell.seconds, 5), ",", fixed(cell.tokens_per_second(), 2), "\n");
    }
  return csv;
}

std::string accept_svg(const AcceptResult& result) {
  const auto methods = static_cast<int>(result.options.methods.size());
  const auto families = static_cast<int>(result.families.size());
  const int group = methods * kBar + kGap, height = kTop + families * group;
  double most = 1;
  for (const auto& row : result.cells)
    for (const AcceptCell& cell : row) most = std::max(most, cell.tokens_per_step());
  std::string svg =
      str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kLabels + kChart + kKey,
              "\" height=\"", height, "\" font-family=\"sans-serif\" font-size=\"11\">\n");
  svg += rectangle(0, 0, kLabels + kChart + kKey, height, "white");
  svg += label(kLabels, 16, "Tokens a step, by family and method");
  for (int m = 0; m < methods; ++m) {
    const int x = kLabels + m * 90;
    svg += rectangle(x, 24, kBar, kBar, colour_of(static_cast<size_t>(m)));
    svg += label(x + kBar + 4, 34, result.options.methods[static_cast<size_t>(m)].name);
  }
  for (int f = 0; f < families; ++f) {
    const int top = kTop + f * group;
    svg += label(kLabels - 8, top + methods * kBar / 2 + 4, result.families[static_cast<size_t>(f)],
                 "end");
    for (int m = 0; m < methods; ++m) {
      const double value =
          result.cells[static_cast<size_t>(f)][static_cast<size_t>(m)].tokens_per_step();
      const int width = static_cast<int>(value / most * kChart), y = top + m * kBar;
      svg += rectangle(kLabels, y, width, kBar - 2, colour_of(static_cast<size_t>(m)));
      svg += label(kLabels + width + 4, y + kBar - 3, fixed(value, 2));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace pewter
