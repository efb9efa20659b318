#include "checkpoint/model_path.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace pewter {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";

// Names in a directory, sorted; empty when it cannot be read.
std::vector<std::string> list_directory(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  if (names.empty()) return "nothing";
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += str_cat(i > 0 ? ", " : "", names[i]);
  if (names.size() > kShown) text += str_cat(" and ", names.size() - kShown, " more");
  return text;
}

bool have_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}
bool have_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<fs::path> resolve_hub_cache(const fs::path& folder) {
  const fs::path snapshots = folder / "snapshots";
  const std::vector<std::string> revisions = list_directory(snapshots);
  if (revisions.size() == 1) return snapshots / revisions[0];
  if (revisions.empty())
    return Error{ErrorCode::kNotFound,
                 str_cat(snapshots.string(), ": no snapshot in this hub cache folder")};
  const Result<std::string> main = read_file((folder / "refs" / "main").string(), 4096);
  if (!main)
    return Error{ErrorCode::kNotFound,
                 str_cat(folder.string(), ": ", revisions.size(), " snapshots (", joined(revisions),
                         ") and no refs/main to choose by; name one of them")};
  std::string revision = *main;
  while (!revision.empty() && static_cast<unsigned char>(revision.back()) <= ' ')
    revision.pop_back();
  if (std::ranges::find(revisions, revision) == revisions.end())
    return Error{ErrorCode::kNotFound,
                 str_cat(folder.string(), ": refs/main names snapshot ", revision,
                         ", which is not among ", joined(revisions))};
  return snapshots / revision;
}

}  // namespace

Result<ModelPath> resolve_model_path(const std::string& path) {
  fs::path place(path);
  if (!place.has_filename()) place = place.parent_path();  // a trailing slash
  ModelPath result;
  if (have_file(place)) {
    if (place.extension() != kExtension)
      return Error{ErrorCode::kInvalidArgument,
                   str_cat(path, ": a model is a directory or a ", kExtension, " file")};
    result.single_file = true;
    result.files = {place.filename().string()};
    place = place.has_parent_path() ? place.parent_path() : fs::path(".");
  } else if (!have_directory(place)) {
    return Error{ErrorCode::kNotFound, str_cat(path, ": no such file or directory")};
  } else if (have_directory(place / "snapshots") && !have_file(place / "config.json")) {
    TRY_ASSIGN(place, resolve_hub_cache(place));
  }
  result.directory = place.string();

  const std::vector<std::string> names = list_directory(place);
  if (!have_file(place / "config.json"))
    return Error{ErrorCode::kNotFound,
                 str_cat(result.directory,
                         ": looked for config.json (or, in a hub cache folder, "
                         "snapshots/*/config.json) and found ",
                         joined(names))};
  if (result.single_file) return result;
  for (const std::string& name : names)
    if (name.ends_with(kExtension) && !name.starts_with('.') && have_file(place / name))
      result.files.push_back(name);
  if (result.files.empty())
    return Error{ErrorCode::kNotFound,
                 str_cat(result.directory, ": looked for *.safetensors and found ", joined(names))};
  return result;
}

}  // namespace pewter
