// ChoiceText: the tokens of one answer on their way to what a client reads: bytes become
// characters, reasoning, content and tool calls part, stop strings end it.
#pragma once

#include "engine/token_stream.h"
#include "server/answer/stop_strings.h"
#include "server/request/generation_fields.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"

namespace pewter::server {

struct ChoiceTextOptions {
  bool skip_special = true;
  std::vector<std::string> stops;
  bool include_stop = false;
  bool stop_in_reasoning = false;  // stops count in the raw text; otherwise in the content only
  int64_t min_tokens = 0;          // stops do not count in the text of so many first tokens
  std::optional<RepetitionLimit> repetition = {};
  OutputParserOptions parser = {};  // in_reasoning: the prompt has opened a <think> block
};

class ChoiceText {
 public:
  // The tokenizer must outlive this.
  ChoiceText(const Tokenizer& tokenizer, const ChoiceTextOptions& options)
      : options_(options),
        detokenizer_(tokenizer, options.skip_special),
        parser_(options.parser),
        stops_(options.stops, options.include_stop) {}

  // The text a token completes, perhaps none. Nothing comes after a stop string.
  OutputDelta push(const StreamToken& token);
  // What was held back, at the end. kLength: nothing but the limit ended it.
  OutputDelta finish(Ending ending);

  const std::optional<std::string>& stop_found() const { return stops_.found(); }
  // Nothing comes any more: a stop string, or the only call that is wanted, is complete.
  bool is_over() const { return stops_.found().has_value() || parser_.is_done() || repeats_; }
  // It ends because it says the same again and again.
  bool repeats() const { return repeats_; }
  // After finish(): "stop", "length", "tool_calls" or "repetition".
  std::string_view finish_reason() const {
    return repeats_ ? "repetition" : parser_.finish_reason();
  }
  bool in_reasoning() const { return parser_.in_reasoning(); }
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }  // up to and including </think>

 private:
  std::string match(std::string_view text);
  bool ends_in_repetition(const RepetitionLimit& limit) const;

  ChoiceTextOptions options_;
  IncrementalDetokenizer detokenizer_;
  OutputParser parser_;
  StopStrings stops_;
  std::vector<int32_t> heard_;  // with a limit of repetition
  bool repeats_ = false;
  int64_t tokens_ = 0, reasoning_tokens_ = 0;
};

}  // namespace pewter::server
