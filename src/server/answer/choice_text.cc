#include "server/answer/choice_text.h"

#include <algorithm>

namespace pewter::server {

std::string ChoiceText::match(std::string_view text) {
  return tokens_ <= options_.min_tokens ? stops_.pass(text) : stops_.push(text);
}

// The last tokens are some pattern, `count` times.
bool ChoiceText::ends_in_repetition(const RepetitionLimit& limit) const {
  for (int64_t size = limit.shortest; size <= limit.longest; ++size) {
    const int64_t length = size * limit.count;
    if (length > std::ssize(heard_)) return false;
    const auto begin = heard_.end() - length;
    if (std::equal(begin + size, heard_.end(), begin)) return true;
  }
  return false;
}

OutputDelta ChoiceText::push(const StreamToken& token) {
  ++tokens_;
  if (options_.repetition && !token.is_stop) {
    heard_.push_back(token.token);
    repeats_ = ends_in_repetition(*options_.repetition);
  }
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
