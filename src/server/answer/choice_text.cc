#include "server/answer/choice_text.h"

namespace pewter::server {

std::string ChoiceText::match(std::string_view text) {
  return tokens_ <= options_.min_tokens ? stops_.pass(text) : stops_.push(text);
}

OutputDelta ChoiceText::push(const StreamToken& token) {
  ++tokens_;
  if (parser_.in_reasoning()) ++reasoning_tokens_;
  // The token that ends a sequence is markup.
  if (token.is_stop && !options_.include_stop) return {};
  const std::string text = detokenizer_.push(token.token);
  if (options_.stop_in_reasoning) {
    OutputDelta delta = parser_.push(match(text));
    if (stops_.found()) delta.append(parser_.finish());
    return delta;
  }
  OutputDelta delta = parser_.push(text);
  delta.answer = match(delta.answer);
  return delta;
}

OutputDelta ChoiceText::finish(Ending ending) {
  if (stops_.found()) {
    parser_.finish();
    return {};
  }
  const std::string text = detokenizer_.flush();
  OutputDelta delta = parser_.push(options_.stop_in_reasoning ? stops_.pass(text) : text);
  delta.append(parser_.finish(ending));
  if (!options_.stop_in_reasoning) delta.answer = stops_.pass(delta.answer);
  return delta;
}

}  // namespace pewter::server
