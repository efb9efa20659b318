// An Exchange for tests: keeps what it is told. Its executor runs things at once.
#pragma once

#include <optional>

#include "server/http/exchange.h"

namespace pewter::server {

struct RecordedExchange final : Exchange {
  explicit RecordedExchange(HttpRequest asked) : asked_for(std::move(asked)) {}

  const HttpRequest& request() const override { return asked_for; }
  Executor executor() const override {
    return [](const std::function<void()>& function) { function(); };
  }
  bool gone() const override { return is_gone; }
  void attach(std::shared_ptr<Activity> what) override { activity = std::move(what); }
  void respond(HttpResponse given) override { response = std::move(given); }
  void start_stream(HttpResponse head) override { response = std::move(head); }
  void send(std::string_view bytes) override { streamed += bytes; }
  void finish() override { is_finished = true; }
  void abandon() override { is_abandoned = true; }
  void note(std::string text) override { remark = std::move(text); }

  HttpRequest asked_for;
  std::optional<HttpResponse> response;
  std::shared_ptr<Activity> activity;
  std::string streamed, remark;
  bool is_gone = false, is_finished = false, is_abandoned = false;
};

}  // namespace pewter::server
