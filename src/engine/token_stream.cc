#include "engine/token_stream.h"

#include <utility>

namespace pewter {

TokenChannel::TokenChannel(int32_t top_logprobs, std::function<void()> on_news)
    : on_news_(std::move(on_news)) {
  news_.tokens.reserve(kReserved);
  news_.top_logprobs.reserve(kReserved * static_cast<size_t>(top_logprobs));
}

template <typename Change>
void TokenChannel::change(const Change& apply) {
  bool tell = false;
  {
    const std::lock_guard lock(mutex_);
    apply(news_);
    tell = std::exchange(drained_, false);
  }
  if (!tell) return;
  arrived_.notify_one();
  const std::lock_guard lock(notify_mutex_);
  if (on_news_) on_news_();
}

void TokenChannel::push(const StreamToken& token, std::span<const TopLogprob> top) {
  change([&](StreamNews& news) {
    news.tokens.push_back(token);
    news.top_logprobs.insert(news.top_logprobs.end(), top.begin(), top.end());
  });
}

void TokenChannel::progress(int64_t prompt_done) {
  change([&](StreamNews& news) {
    news.prompt_done = prompt_done;
    news.progressed = true;
  });
}

void TokenChannel::scored(std::shared_ptr<const PromptScores> scores) {
  change([&](StreamNews& news) { news.prompt_scores = std::move(scores); });
}

void TokenChannel::finish(Completion completion) {
  change([&](StreamNews& news) { news.end = std::move(completion); });
}

// Copies, so that both sides keep the memory they have.
void TokenChannel::take(StreamNews& news) {
  news.tokens.assign(news_.tokens.begin(), news_.tokens.end());
  news.top_logprobs.assign(news_.top_logprobs.begin(), news_.top_logprobs.end());
  news.prompt_done = news_.prompt_done;
  news.prompt_scores = news_.prompt_scores;
  news.progressed = std::exchange(news_.progressed, false);
  news.end = news_.end;
  news_.tokens.clear();
  news_.top_logprobs.clear();
  drained_ = true;
}

void TokenChannel::poll(StreamNews& news) {
  const std::lock_guard lock(mutex_);
  take(news);
}

void TokenChannel::wait(StreamNews& news) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !drained_ || news_.end; });
  take(news);
}

void TokenChannel::detach() {
  cancel();
  const std::lock_guard lock(notify_mutex_);
  on_news_ = nullptr;
}

}  // namespace pewter
