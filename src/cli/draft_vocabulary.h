// Which tokens guesses are chosen among (--draft-head-rows): all, the most frequent, or those of a
// file.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace pewter {

struct DraftVocabulary {
  int64_t rows = 0;  // as many as this
  std::string file;  // or those of a file: ids, with blanks or line ends between them
  bool is_all() const { return rows == 0 && file.empty(); }
};

// "32768", or else a file. Error: kInvalidArgument for a number that is not positive.
Result<DraftVocabulary> parse_draft_vocabulary(const std::string& text);

// Ascending ids, each once, below `limit`. Of a number: the added tokens, which open and close the
// parts of an answer, and the lowest ids, which are the most frequent where merges were learned by
// frequency. Empty when all are wanted, or no fewer. Errors name the file and what is wrong in it.
Result<std::vector<int32_t>> draft_vocabulary_ids(const DraftVocabulary& wanted,
                                                  const Tokenizer& tokenizer, int64_t limit);

}  // namespace pewter
