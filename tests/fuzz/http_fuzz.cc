// The HTTP layer from bytes to bytes: a session without a socket, fed with any cut of any input,
// with answers that come at once, late, in pieces, or never. The first bytes of the input choose
// the cuts and the answers; the rest is what the client sends.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/http/error_body.h"
#include "server/http/router.h"
#include "server/http/session.h"

using namespace pewter;
using namespace pewter::server;

namespace {

constexpr size_t kPlanBytes = 16;

struct Silent final : Activity {
  void client_gone() override {
    CHECK(!gone, "told twice");
    gone = true;
  }
  void tick(Clock::time_point) override {}
  bool gone = false;
};

class Play {
 public:
  explicit Play(std::string_view plan) : plan_(plan) {
    const auto answers = [this](const std::shared_ptr<Exchange>& exchange) { answer(exchange); };
    router_.add("GET", "/", answers);
    router_.add("POST", "/", answers);
    router_.add("POST", "/a", answers);
    service_.limits = {
        .body_bytes = 4096, .header_bytes = 1024, .ahead_bytes = 2048, .unsent_bytes = 2048};
    service_.headers = {{"Server", "fuzz"}};
    service_.handler = [this](const std::shared_ptr<Exchange>& exchange) {
      CHECK(exchange->request().body.size() <= 4096, "a body beyond the limit");
      CHECK(is_valid_utf8(exchange->request().path), "a path that is not UTF-8");
      router_.dispatch(exchange);
    };
    service_.busy = [this](int change) {
      busy_ += change;
      CHECK(busy_ == 0 || busy_ == 1, "requests being served: ", busy_);
    };
    session_ = HttpSession::make(
        service_, "fuzz", [](const std::function<void()>& function) { function(); }, [] {});
  }

  void run(std::string_view input) {
    while (!input.empty() && !session_->broken()) {
      const size_t piece = std::min<size_t>(input.size(), 1 + next());
      if (session_->wants_input()) session_->receive(input.substr(0, piece));
      input.remove_prefix(piece);
      take();
      if (next() % 4 == 0) session_->tick(Clock::now() + std::chrono::seconds(next()));
      if (next() % 2 == 0) finish_late();
      take();
    }
    if (next() % 2 == 0) session_->receive_end();
    finish_late();
    take();
    session_->abort();
    CHECK(busy_ == 0, "a request that is never over");
    late_.reset();
    session_.reset();
  }

 private:
  uint8_t next() { return static_cast<uint8_t>(plan_[at_++ % plan_.size()]); }

  void take() {
    const std::string output = std::exchange(session_->output(), {});
    CHECK(is_valid_utf8(output), "output that is not UTF-8");
    session_->set_in_flight(output.size() / 2);
  }

  void answer(const std::shared_ptr<Exchange>& exchange) {
    switch (next() % 5) {
      case 0:
        return exchange->respond({.body = error_body(400, "t", exchange->request().body)});
      case 1:
        exchange->start_stream({.content_type = "text/event-stream"});
        exchange->send(std::string(next() * 8u, 'x'));
        return exchange->finish();
      case 2:
        exchange->attach(std::make_shared<Silent>());
        exchange->start_stream({});
        late_ = exchange;
        is_streaming_ = true;
        return;
      case 3:
        return exchange->abandon();
      default:
        late_ = exchange;
        is_streaming_ = false;
    }
  }

  void finish_late() {
    const std::shared_ptr<Exchange> exchange = std::exchange(late_, nullptr);
    if (!exchange) return;
    if (exchange->gone() && next() % 2 == 0) return exchange->abandon();
    // One that has begun to stream goes on; another one answers now.
    if (is_streaming_) {
      exchange->send(std::string(next() * 16u, 'y'));
      exchange->finish();
    } else {
      exchange->respond({.body = std::string(next(), 'z')});
    }
  }

  std::string_view plan_;
  size_t at_ = 0;
  int busy_ = 0;
  HttpService service_;
  Router router_;
  std::shared_ptr<Exchange> late_;  // not yet answered, or not to its end
  bool is_streaming_ = false;       // the latter
  std::shared_ptr<HttpSession> session_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kPlanBytes) return 0;
  set_log_level(LogLevel::kError);  // dropped readers are no news here
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  Play(input.substr(0, kPlanBytes)).run(input.substr(kPlanBytes));
  return 0;
}
