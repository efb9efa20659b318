// TokenStream: what a client holds of a running request: its tokens as they come, its end, and the
// right to cancel it. The engine's thread writes into the channel behind it and never waits for the
// reader; what is unread is bounded by the request's own max_tokens.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "engine/request.h"

namespace pewter {

struct StreamToken {
  int32_t token = 0;
  bool is_stop = false;  // one of stop_ids: the last of the sequence
  float logprob = 0;     // under the model's unmodified distribution
};

// What has arrived between two looks at a stream.
struct StreamNews {
  std::vector<StreamToken> tokens;
  // The likeliest tokens by falling probability, request.top_logprobs of them for each of `tokens`;
  // ids past the vocabulary are -1.
  std::vector<TopLogprob> top_logprobs;
  int64_t prompt_done = 0;  // prompt tokens read so far, since the start
  // Before the first token, of requests that ask for it; stays.
  std::shared_ptr<const PromptScores> prompt_scores;
  std::optional<Completion> end;  // after it nothing comes

  // Nothing but old progress.
  bool empty() const { return tokens.empty() && !end && !progressed; }
  bool progressed = false;  // prompt_done grew since the last news
};

// The engine's end of a stream. Thread-safe.
class TokenChannel {
 public:
  // Unread tokens there is room for without allocating: many steps of a reader that lags.
  static constexpr size_t kReserved = 256;

  TokenChannel(int32_t top_logprobs, std::function<void()> on_news);

  void push(const StreamToken& token, std::span<const TopLogprob> top);
  void progress(int64_t prompt_done);
  void scored(std::shared_ptr<const PromptScores> scores);
  void finish(Completion completion);

  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void poll(StreamNews& news);
  void wait(StreamNews& news);
  // Cancels, and waits out a call of on_news in progress; there is none afterwards.
  void detach();

 private:
  // Makes a change under the lock, then tells the reader if it had read everything before.
  template <typename Change>
  void change(const Change& apply);
  void take(StreamNews& news);

  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable arrived_;
  StreamNews news_;      // guarded by mutex_
  bool drained_ = true;  // guarded by mutex_: the reader knows all there is
  std::mutex notify_mutex_;
  std::function<void()> on_news_;  // guarded by notify_mutex_
};

// The reader's end; destroying it cancels the request.
class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<TokenChannel> channel) : channel_(std::move(channel)) {}
  TokenStream(TokenStream&&) noexcept = default;
  TokenStream& operator=(TokenStream&& other) noexcept {
    if (channel_ && channel_ != other.channel_) channel_->detach();
    channel_ = std::move(other.channel_);
    return *this;
  }
  ~TokenStream() {
    if (channel_) channel_->detach();
  }

  // Takes what has arrived, perhaps nothing. `news` is overwritten; its memory is reused.
  void poll(StreamNews& news) { channel_->poll(news); }
  // Blocks until there is something. After the end it returns the end again.
  void wait(StreamNews& news) { channel_->wait(news); }
  // Ends the request within a step with reason kCancelled. From any thread; harmless after the end.
  void cancel() { channel_->cancel(); }

 private:
  std::shared_ptr<TokenChannel> channel_;
};

}  // namespace pewter
