#include "cli/draft_vocabulary.h"

#include <algorithm>
#include <charconv>

#include "base/file.h"

namespace pewter {
namespace {

constexpr int64_t kFileLimit = int64_t{16} << 20;

Result<std::vector<int32_t>> ids_of_file(const std::string& file, int64_t limit) {
  TRY_ASSIGN(const std::string text, read_file(file, kFileLimit));
  std::vector<int32_t> ids;
  constexpr std::string_view kBlanks = " \t\r\n";
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string::npos;
       at = text.find_first_not_of(kBlanks, at)) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    int32_t id = -1;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || rest != text.data() + end || id < 0 || id >= limit)
      return Error{ErrorCode::kInvalidArgument,
                   str_cat(file, ": \"", text.substr(at, end - at),
                           "\" is no token id of this model, which has ", limit)};
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) return Error{ErrorCode::kInvalidArgument, file + ": holds no token ids"};
  return ids;
}

}  // namespace

Result<DraftVocabulary> parse_draft_vocabulary(const std::string& text) {
  DraftVocabulary wanted;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, wanted.rows);
  if (error == std::errc() && rest == end) {
    if (wanted.rows > 0) return wanted;
    return Error{ErrorCode::kInvalidArgument, str_cat(wanted.rows, " is not positive")};
  }
  return DraftVocabulary{.file = text};
}

Result<std::vector<int32_t>> draft_vocabulary_ids(const DraftVocabulary& wanted,
                                                  const Tokenizer& tokenizer, int64_t limit) {
  std::vector<int32_t> ids;
  if (!wanted.file.empty()) {
    TRY_ASSIGN(ids, ids_of_file(wanted.file, limit));
  } else {
    if (wanted.is_all() || wanted.rows >= limit) return ids;
    for (const AddedToken& token : tokenizer.added_tokens())
      if (token.id < limit && std::ssize(ids) < wanted.rows) ids.push_back(token.id);
    for (int32_t id = 0; id < limit && std::ssize(ids) < wanted.rows; ++id)
      if (tokenizer.has(id) && !tokenizer.is_added(id)) ids.push_back(id);
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

}  // namespace pewter
