// The rules of the house as pure functions of file texts, so that each can be seen to fail on a
// made-up file (house_rules_test.cc) and then be held against the repository (house_test.cc).
// A rule returns its complaints, "path:line: what is wrong"; none means that all is well.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pewter::house {

struct SourceFile {
  std::string path;  // from the root of the repository, with '/'
  std::string text;
};

using Complaints = std::vector<std::string>;

// Includes of a file under src/, tests/ or bench/:
//   the arrow      base → tensor → {checkpoint, backend} → model → engine → server → cli; text and
//                  grammar need base only: text is used by server and cli, grammar by engine,
//                  server and cli. Files under src/ only.
//   the leaves     backend/cpu and backend/cuda are included by themselves, backend/factory.cc,
//                  tests and benches; never by each other.
//   the factory    backend/factory.h is included by cli/, tests, benches and its own file.
//   the spelling   "room/file.h" from src/, in quotes, without "..".
Complaints check_includes(const SourceFile& file);

// A header (.h, .cuh) says #pragma once. An _inl.h is compiled once per instruction set, so it has
// a guard that Highway's HWY_TARGET_TOGGLE flips instead.
Complaints check_pragma_once(const SourceFile& file);

// No path that exists on one machine only: home directories, workspaces.
Complaints check_machine_paths(const SourceFile& file);

inline constexpr int64_t kLongestFile = 600;  // lines

// "path lines" per line, '#' starts a comment. Errors: kCorruptData.
Result<std::map<std::string, int64_t>> parse_long_files(std::string_view text);

int64_t count_lines(std::string_view text);

// A file of at most kLongestFile lines is fine. A longer one must be listed with exactly its
// length: above it the file has grown, below it the list must be lowered. Entries for files that
// are short or gone must go.
Complaints check_lengths(const std::map<std::string, int64_t>& lines_of,
                         const std::map<std::string, int64_t>& long_files);

// Paths that a Markdown file names, in `backticks` or as a relative link, exist. Looked at are
// spans that start with a top-level folder of the repository, and files named from src/
// ("backend/ops.h"). Blocks of code are not.
Complaints check_doc_paths(const SourceFile& doc,
                           const std::function<bool(const std::string&)>& exists);

inline constexpr int64_t kLargestTreeBytes = int64_t{36} << 20;

Complaints check_tree_size(int64_t bytes);

}  // namespace pewter::house
