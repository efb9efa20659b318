// Cuts text into the pieces that byte-pair merging works on: every match of a regular expression is
// a piece, and so is every stretch between matches ("Isolated" in tokenizer.json).
//
// The expressions are written for Oniguruma and run by PCRE2. What means the same in both passes
// as it is, \s and \S are spelt as the property they mean (PCRE2's \s would add U+180E), and what
// is read differently is refused by name. PCRE2 10.42 knows Unicode 14: a character assigned later
// counts as unassigned, neither letter nor mark.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;

namespace pewter {

class PreSplit {
 public:
  // Errors: kUnsupported for constructs that the two engines read differently and for expressions
  // that match the empty string, kCorruptData for a broken expression.
  static Result<PreSplit> compile(std::string_view expression);

  // What one caller needs while it matches; not shared between threads.
  class Matcher {
   public:
    explicit Matcher(const PreSplit& split);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // Sets ends to the end offset of every piece of text, in order; the last one is text.size().
    // text must be valid UTF-8. Errors: kResourceExhausted when the expression backtracks without
    // end.
    Status split(std::string_view text, std::vector<size_t>& ends);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// The expression in PCRE2's spelling; the first half of compile().
Result<std::string> translate_expression(std::string_view expression);

}  // namespace pewter
