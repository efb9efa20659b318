#include "house/house_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/str_cat.h"

namespace pewter::house {
namespace {

// What each room may include besides itself.
const std::map<std::string, std::set<std::string>, std::less<>>& allowed_rooms() {
  static const std::map<std::string, std::set<std::string>, std::less<>> rooms = {
      {"base", {}},
      {"text", {"base"}},
      {"grammar", {"base"}},
      {"tensor", {"base"}},
      {"checkpoint", {"base", "tensor"}},
      {"backend", {"base", "tensor"}},
      {"model", {"base", "tensor", "checkpoint", "backend"}},
      {"engine", {"base", "tensor", "checkpoint", "backend", "model", "grammar"}},
      {"server", {"base", "tensor", "checkpoint", "backend", "model", "engine", "text", "grammar"}},
      {"cli",
       {"base", "tensor", "checkpoint", "backend", "model", "engine", "text", "grammar", "server"}},
  };
  return rooms;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string_view first_component(std::string_view path) { return path.substr(0, path.find('/')); }

std::string folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : path.substr(0, slash + 1));
}

struct Include {
  std::string path;
  bool quoted = false;
};

// The include a line holds, with an empty path when it holds none.
Include include_of(std::string_view line) {
  line = trim(line);
  if (!line.starts_with('#')) return {};
  line = trim(line.substr(1));
  if (!line.starts_with("include")) return {};
  line = trim(line.substr(7));
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return {};
  const bool quoted = line[0] == '"';
  const size_t end = line.find(quoted ? '"' : '>', 1);
  if (end == std::string_view::npos) return {};
  return {std::string(line.substr(1, end - 1)), quoted};
}

// "backend/cpu/" for a path in that leaf, "" for one in no leaf.
std::string leaf_of(std::string_view path_from_src) {
  for (const std::string_view leaf : {"backend/cpu/", "backend/cuda/"})
    if (path_from_src.starts_with(leaf)) return std::string(leaf);
  return "";
}

bool is_test_or_bench(std::string_view path) {
  return !path.starts_with("src/") || path.find("_test.") != std::string_view::npos;
}

// What is wrong with one include, or "".
std::string judge_include(std::string_view file, const Include& include) {
  if (include.path.find("..") != std::string::npos)
    return str_cat("\"", include.path, "\" climbs with \"..\"; write it from src/");
  const std::string room(first_component(include.path));
  const bool names_room = allowed_rooms().contains(room) && room != include.path;
  if (!include.quoted)
    return names_room ? str_cat("<", include.path, "> is ours; write it in quotes") : "";
  const bool in_src = file.starts_with("src/");
  if (!names_room)
    return in_src ? str_cat("\"", include.path, "\" is not written from src/ as \"room/file.h\"")
                  : "";

  if (in_src) {
    const std::string own(first_component(file.substr(4)));
    const auto allowed = allowed_rooms().find(own);
    if (allowed == allowed_rooms().end()) return str_cat("there is no room named ", own);
    if (room != own && !allowed->second.contains(room))
      return str_cat(own, " may not include ", room, " (\"", include.path, "\")");
  }
  if (is_test_or_bench(file)) return "";
  const std::string_view from_src = file.substr(4);
  const std::string leaf = leaf_of(include.path);
  if (!leaf.empty() && leaf != leaf_of(from_src) && from_src != "backend/factory.cc")
    return str_cat("only backend/factory.cc includes the leaf ", leaf, " (\"", include.path, "\")");
  if (include.path == "backend/factory.h" && !from_src.starts_with("cli/") &&
      from_src != "backend/factory.cc")
    return "only cli/, tests and benches include backend/factory.h";
  return "";
}

bool is_path_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '/';
}

// Whether a `span` of a document means a file or folder of ours.
bool names_our_path(std::string_view span) {
  static constexpr std::array<std::string_view, 8> kTopFolders = {
      "src", "tests", "tools", "docs", "models", "bench", "cmake", ".ci"};
  static constexpr std::array<std::string_view, 5> kSourceEndings = {".h", ".cc", ".cu", ".cuh",
                                                                     ".py"};
  if (span.find('/') == std::string_view::npos || !std::ranges::all_of(span, is_path_character))
    return false;
  const std::string_view first = first_component(span);
  if (std::ranges::find(kTopFolders, first) != kTopFolders.end()) return true;
  return allowed_rooms().contains(first) &&
         std::ranges::any_of(kSourceEndings,
                             [&](std::string_view ending) { return span.ends_with(ending); });
}

// Text between the pairs of `open` and `close` of a line.
std::vector<std::string> between(std::string_view line, std::string_view open,
                                 std::string_view close) {
  std::vector<std::string> found;
  size_t at = 0;
  while ((at = line.find(open, at)) != std::string_view::npos) {
    const size_t begin = at + open.size();
    const size_t end = line.find(close, begin);
    if (end == std::string_view::npos) break;
    found.emplace_back(line.substr(begin, end - begin));
    at = end + close.size();
  }
  return found;
}

// "docs/../tests/x" → "tests/x".
std::string normalise(const std::string& path) {
  std::vector<std::string> parts;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string part(first_component(rest));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part == ".." && !parts.empty() && parts.back() != "..")
      parts.pop_back();
    else if (part != "." && !part.empty())
      parts.push_back(part);
  }
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "/") + part;
  return out;
}

}  // namespace

Complaints check_includes(const SourceFile& file) {
  Complaints complaints;
  int64_t line_number = 0;
  for (const std::string_view line : split_lines(file.text)) {
    ++line_number;
    const Include include = include_of(line);
    if (include.path.empty()) continue;
    const std::string wrong = judge_include(file.path, include);
    if (!wrong.empty()) complaints.push_back(str_cat(file.path, ":", line_number, ": ", wrong));
  }
  return complaints;
}

Complaints check_pragma_once(const SourceFile& file) {
  if (file.path.ends_with("_inl.h")) {
    if (file.text.find("HWY_TARGET_TOGGLE") != std::string::npos) return {};
    return {str_cat(file.path, ":1: no include guard that HWY_TARGET_TOGGLE flips")};
  }
  for (const std::string_view line : split_lines(file.text))
    if (trim(line) == "#pragma once") return {};
  return {str_cat(file.path, ":1: no #pragma once")};
}

Complaints check_machine_paths(const SourceFile& file) {
  // In pieces, so that this file does not name them.
  static const std::array<std::string, 5> kMachineFolders = {
      str_cat("/ho", "me/"), str_cat("/ro", "ot/"), str_cat("/Us", "ers/"), str_cat("/wo", "rk/"),
      str_cat("/mn", "t/")};
  static constexpr std::string_view kBefore = " \t\"'`(=:<,[";
  Complaints complaints;
  int64_t line_number = 0;
  for (const std::string_view line : split_lines(file.text)) {
    ++line_number;
    for (const std::string& folder : kMachineFolders) {
      size_t at = 0;
      for (; (at = line.find(folder, at)) != std::string_view::npos; ++at)
        if (at == 0 || kBefore.find(line[at - 1]) != std::string_view::npos)
          complaints.push_back(
              str_cat(file.path, ":", line_number, ": a path of one machine: ", line.substr(at)));
    }
  }
  return complaints;
}

Result<std::map<std::string, int64_t>> parse_long_files(std::string_view text) {
  std::map<std::string, int64_t> allowed;
  int64_t line_number = 0;
  for (std::string_view line : split_lines(text)) {
    ++line_number;
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t space = line.rfind(' ');
    int64_t lines = 0;
    const char* end = line.data() + line.size();
    if (space == std::string_view::npos ||
        std::from_chars(line.data() + space + 1, end, lines).ptr != end || lines <= 0)
      return Error{ErrorCode::kCorruptData, str_cat("line ", line_number, ": want \"path lines\"")};
    allowed[std::string(trim(line.substr(0, space)))] = lines;
  }
  return allowed;
}

int64_t count_lines(std::string_view text) {
  return std::ranges::count(text, '\n') + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

Complaints check_lengths(const std::map<std::string, int64_t>& lines_of,
                         const std::map<std::string, int64_t>& long_files) {
  Complaints complaints;
  for (const auto& [path, lines] : lines_of) {
    const auto listed = long_files.find(path);
    if (listed == long_files.end()) {
      if (lines > kLongestFile)
        complaints.push_back(str_cat(path, ": ", lines, " lines, more than ", kLongestFile,
                                     "; look for the second idea inside"));
      continue;
    }
    if (lines > listed->second)
      complaints.push_back(str_cat(path, ": grown from ", listed->second, " to ", lines, " lines"));
    else if (lines <= kLongestFile)
      complaints.push_back(
          str_cat(path, ": ", lines, " lines now; take it off the list of long files"));
    else if (lines < listed->second)
      complaints.push_back(
          str_cat(path, ": ", lines, " lines now; lower its entry from ", listed->second));
  }
  for (const auto& entry : long_files)
    if (!lines_of.contains(entry.first))
      complaints.push_back(str_cat(entry.first, ": on the list of long files, and not there"));
  return complaints;
}

Complaints check_doc_paths(const SourceFile& doc,
                           const std::function<bool(const std::string&)>& exists) {
  Complaints complaints;
  bool in_code = false;
  int64_t line_number = 0;
  for (const std::string_view line : split_lines(doc.text)) {
    ++line_number;
    if (trim(line).starts_with("```")) in_code = !in_code;
    if (in_code) continue;
    for (const std::string& span : between(line, "`", "`"))
      if (names_our_path(span) && !exists(normalise(span)) && !exists(normalise("src/" + span)))
        complaints.push_back(str_cat(doc.path, ":", line_number, ": no such file: ", span));
    for (std::string target : between(line, "](", ")")) {
      target = target.substr(0, target.find('#'));
      if (target.empty() || target.find("://") != std::string::npos) continue;
      if (!exists(normalise(folder_of(doc.path) + target)))
        complaints.push_back(str_cat(doc.path, ":", line_number, ": link to nothing: ", target));
    }
  }
  return complaints;
}

Complaints check_tree_size(int64_t bytes) {
  if (bytes <= kLargestTreeBytes) return {};
  return {str_cat("the tracked files hold ", bytes, " bytes, more than ", kLargestTreeBytes)};
}

}  // namespace pewter::house
