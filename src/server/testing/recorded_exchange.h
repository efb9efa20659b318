// An Exchange for tests: keeps what it is told. What is posted waits until run_posted().
#pragma once

#include <mutex>
#include <optional>

#include "server/http/exchange.h"

namespace pewter::server {

struct RecordedExchange final : Exchange {
  explicit RecordedExchange(HttpRequest asked) : asked_for(std::move(asked)) {}

  const HttpRequest& request() const override { return asked_for; }
  Executor executor() const override {
    return [queue = posted](std::function<void()> function) {
      const std::lock_guard lock(queue->mutex);
      queue->functions.push_back(std::move(function));
    };
  }
  // Runs what was posted by now; false when there was nothing.
  bool run_posted() const {
    std::vector<std::function<void()>> functions;
    {
      const std::lock_guard lock(posted->mutex);
      functions.swap(posted->functions);
    }
    for (const std::function<void()>& function : functions) function();
    return !functions.empty();
  }
  bool gone() const override { return is_gone; }
  void attach(std::shared_ptr<Activity> what) override { activity = std::move(what); }
  void respond(HttpResponse given) override { response = std::move(given); }
  void start_stream(HttpResponse head) override { response = std::move(head); }
  void send(std::string_view bytes) override { streamed += bytes; }
  void finish() override { is_finished = true; }
  void abandon() override { is_abandoned = true; }
  void note(std::string text) override { remark = std::move(text); }

  struct Posted {
    std::mutex mutex;
    std::vector<std::function<void()>> functions;
  };
  const std::shared_ptr<Posted> posted = std::make_shared<Posted>();
  HttpRequest asked_for;
  std::optional<HttpResponse> response;
  std::shared_ptr<Activity> activity;
  std::string streamed, remark;
  bool is_gone = false, is_finished = false, is_abandoned = false;
};

}  // namespace pewter::server
