// Holds the rules of house_rules.h against this repository: the files git tracks, and new ones it
// does not ignore. Without git (a source archive) every file outside build folders counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "house/house_rules.h"

namespace pewter::house {
namespace {

namespace fs = std::filesystem;

const fs::path& root() {
  static const fs::path path = PEWTER_SOURCE_DIR;
  return path;
}

// Paths git lists, NUL-separated; empty when git or its repository is missing.
std::vector<std::string> git_files() {
  const std::string command = "git -C '" + root().string() +
                              "' ls-files -z --cached --others --exclude-standard 2>/dev/null";
  std::string output;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return {};
  std::array<char, 4096> piece;
  size_t count = 0;
  while ((count = fread(piece.data(), 1, piece.size(), pipe.get())) > 0)
    output.append(piece.data(), count);
  std::vector<std::string> paths;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = output.find('\0', begin);
    paths.push_back(output.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

std::vector<std::string> walked_files() {
  std::vector<std::string> paths;
  for (auto it = fs::recursive_directory_iterator(root()); it != fs::end(it); ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() &&
        (name.starts_with("build") || name == ".git" || name == ".cache" || name == "__pycache__"))
      it.disable_recursion_pending();
    else if (it->is_regular_file())
      paths.push_back(fs::relative(it->path(), root()).string());
  }
  return paths;
}

const std::vector<std::string>& repository_files() {
  static const std::vector<std::string> files = [] {
    std::vector<std::string> paths = git_files();
    if (paths.empty()) paths = walked_files();
    std::erase_if(paths,
                  [](const std::string& path) { return !fs::is_regular_file(root() / path); });
    std::ranges::sort(paths);
    return paths;
  }();
  return files;
}

SourceFile load(const std::string& path) {
  auto text = read_file((root() / path).string());
  EXPECT_TRUE(text.has_value()) << path;
  return {path, text.has_value() ? *std::move(text) : ""};
}

bool ends_with_any(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return path.ends_with(end); });
}

bool is_cpp(std::string_view path) { return ends_with_any(path, {".cc", ".h", ".cu", ".cuh"}); }

bool is_code(std::string_view path) {
  return is_cpp(path) || ends_with_any(path, {".py", ".sh"}) || path == "dev" || path == ".ci/run";
}

// Runs a rule over the files that `wanted` picks and reports every complaint.
template <typename Wanted, typename Rule>
void expect_rule(const Wanted& wanted, const Rule& rule) {
  int64_t looked_at = 0;
  for (const std::string& path : repository_files()) {
    if (!wanted(path)) continue;
    ++looked_at;
    for (const std::string& complaint : rule(load(path))) ADD_FAILURE() << complaint;
  }
  EXPECT_GT(looked_at, 0) << "no file to look at: is the rule's selection right?";
}

TEST(House, IncludesFollowTheArrows) { expect_rule(is_cpp, check_includes); }

TEST(House, HeadersSayPragmaOnce) {
  expect_rule([](const std::string& path) { return ends_with_any(path, {".h", ".cuh"}); },
              check_pragma_once);
}

TEST(House, NoPathOfOneMachine) {
  expect_rule(
      [](const std::string& path) {
        return is_code(path) ||
               ends_with_any(path, {".md", ".txt", ".json", ".cmake", ".jinja", ".tsv"});
      },
      check_machine_paths);
}

TEST(House, FilesStayShort) {
  std::map<std::string, int64_t> lines_of;
  for (const std::string& path : repository_files())
    if (is_code(path)) lines_of[path] = count_lines(load(path).text);
  std::vector<std::pair<int64_t, std::string>> largest;
  largest.reserve(lines_of.size());
  for (const auto& [path, lines] : lines_of) largest.emplace_back(lines, path);
  std::ranges::sort(largest, std::greater<>());
  largest.resize(std::min<size_t>(largest.size(), 8));
  for (const auto& [lines, path] : largest)
    std::printf("%6lld lines  %s\n", static_cast<long long>(lines), path.c_str());

  const auto long_files = parse_long_files(load("tests/house/long_files.txt").text);
  ASSERT_TRUE(long_files.has_value()) << long_files.error().message;
  for (const std::string& complaint : check_lengths(lines_of, *long_files))
    ADD_FAILURE() << complaint;
}

TEST(House, DocsNameFilesThatExist) {
  expect_rule([](const std::string& path) { return path.ends_with(".md"); },
              [](const SourceFile& doc) {
                return check_doc_paths(
                    doc, [](const std::string& path) { return fs::exists(root() / path); });
              });
}

TEST(House, TheTreeIsSmall) {
  int64_t bytes = 0;
  for (const std::string& path : repository_files())
    bytes += static_cast<int64_t>(fs::file_size(root() / path));
  std::printf("%lld bytes in %zu files\n", static_cast<long long>(bytes),
              repository_files().size());
  for (const std::string& complaint : check_tree_size(bytes)) ADD_FAILURE() << complaint;
}

}  // namespace
}  // namespace pewter::house
