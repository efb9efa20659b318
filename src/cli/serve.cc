// pewter serve: listens at once, loads, answers, and ends in order. What a request goes through is
// src/server's; the flags are serve_flags.h's.
//
// The main thread waits for signals, which all others have blocked, so that no handler runs in the
// middle of anything.
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory_info.h"
#include "cli/commands.h"
#include "cli/load_progress.h"
#include "cli/serve_flags.h"

namespace pewter {
namespace {

using server::Api;
using server::HttpServer;
using server::ServedRequest;

constexpr double kReportSeconds = 10;
// For telling those that are cut off.
constexpr std::chrono::milliseconds kLastWords{2000};

// SIGINT and SIGTERM, blocked in this thread and in those it will start.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    ::signal(SIGPIPE, SIG_IGN);  // whoever read the log may leave
  }
  ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // True when one came within the time.
  bool wait(std::chrono::milliseconds longest) const {
    const timespec time{.tv_sec = longest.count() / 1000,
                        .tv_nsec = longest.count() % 1000 * 1'000'000};
    return sigtimedwait(&set_, nullptr, &time) > 0;
  }

 private:
  sigset_t set_, before_;
};

// One line a request. Probes come every few seconds and say nothing when all is well.
void log_request(const ServedRequest& served) {
  const std::string& path = served.request.path;
  const bool probe = path == "/health" || path == "/ping" || path == "/v1/health";
  if (probe && served.status == 200) return;
  LOG_INFO(served.request.peer, " ", server::safe_quote(served.request.method + " " + path), " ",
           served.status == 0 ? "-" : str_cat(served.status), served.aborted ? " aborted" : "",
           ", ", fixed(served.seconds, 3), " s", served.note.empty() ? "" : ", ", served.note, ", ",
           served.request.id);
}

// Tokens per second of the last while, as long as there is something to say.
class ThroughputReport {
 public:
  void tick(const EngineStatus& now) {
    if (watch_.seconds() < kReportSeconds) return;
    const double seconds = watch_.seconds();
    watch_.restart();
    const auto rate = [&](int64_t to, int64_t from) {
      return fixed(static_cast<double>(to - from) / seconds, 1);
    };
    const bool busy =
        now.running > 0 || now.waiting > 0 || now.completion_tokens != last_.completion_tokens;
    const double used = now.cache_tokens > 0 ? 100.0 * static_cast<double>(now.cache_tokens_used) /
                                                   static_cast<double>(now.cache_tokens)
                                             : 0;
    if (busy)
      LOG_INFO("Avg prompt throughput: ", rate(now.prompt_tokens, last_.prompt_tokens),
               " tokens/s, Avg generation throughput: ",
               rate(now.completion_tokens, last_.completion_tokens),
               " tokens/s, Running: ", now.running, " reqs, Waiting: ", now.waiting,
               " reqs, KV cache usage: ", fixed(used, 1), "%");
    report_drafts(now.drafts.since(last_.drafts), seconds);
    last_ = now;
  }

 private:
  // In vLLM's words, which scripts look for.
  static void report_drafts(const DraftFigures& drafts, double seconds) {
    if (drafts.drafts == 0) return;
    const auto each = [](int64_t count, double of) {
      return fixed(static_cast<double>(count) / of, 3);
    };
    std::string positions;
    for (size_t i = 0; i < drafts.accepted_at.size() && drafts.accepted_at[i] > 0; ++i)
      positions += str_cat(i == 0 ? "" : ", ",
                           each(drafts.accepted_at[i], static_cast<double>(drafts.drafts)));
    LOG_INFO(
        "SpecDecoding metrics: Mean acceptance length: ", fixed(drafts.mean_acceptance_length(), 2),
        ", Accepted throughput: ", each(drafts.accepted_tokens, seconds),
        " tokens/s, Drafted throughput: ", each(drafts.draft_tokens, seconds),
        " tokens/s, Accepted: ", drafts.accepted_tokens, " tokens, Drafted: ", drafts.draft_tokens,
        " tokens, Per-position acceptance rate: ", positions.empty() ? "0.000" : positions,
        ", Avg Draft acceptance rate: ", fixed(100 * drafts.acceptance_rate(), 1), "%");
  }

  Stopwatch watch_;
  EngineStatus last_;
};

class ServeCommand final : public Command {
 public:
  void declare(Flags& flags) override { flags_.declare(flags); }
  Status check() override { return flags_.check(); }
  Result<int> run() override;

 private:
  Result<std::unique_ptr<LoadedModel>> load();
  void announce(const LoadedModel& loaded, const HttpServer& http) const;
  // Requests that run may end; then, or when time is up, or at a second signal, all is over.
  void drain(const Signals& signals, Api& api, Engine& engine, HttpServer& http) const;

  ServeFlags flags_;
};

Result<std::unique_ptr<LoadedModel>> ServeCommand::load() {
  LoadProgress progress(flags_.model.model, /*quiet=*/false);
  Result<std::unique_ptr<LoadedModel>> loaded = LoadedModel::load(
      flags_.model_options(),
      {.progress = [&progress](int64_t done, int64_t total) { progress.update(done, total); },
       .on_plan = [&progress](const MemoryReport& plan) { progress.plan(plan); }});
  if (!loaded) return loaded;
  progress.finish((*loaded)->report);
  for (const std::string& warning : (*loaded)->report.warnings) LOG_WARNING(warning);
  return loaded;
}

void ServeCommand::announce(const LoadedModel& loaded, const HttpServer& http) const {
  const EngineStatus status = loaded.engine->status();
  const int64_t context = loaded.engine->max_context();
  LOG_INFO("KV cache size: ", status.cache_tokens, " tokens, shared by at most ",
           loaded.engine->runner().options().max_sequences, " requests at once");
  LOG_INFO("Maximum concurrency for ", context, " tokens per request: ",
           fixed(static_cast<double>(status.cache_tokens) / static_cast<double>(context), 2), "x");
  const DraftOptions& draft = loaded.engine->draft_options();
  if (draft.enabled())
    LOG_INFO("Speculation: ", draft_method_name(draft.method), draft.look_up ? " and suffix" : "",
             ", ", draft.depth == DraftLength::kByCost ? "as pays, at most " : "", draft.tokens,
             " tokens a step");
  LOG_INFO("Application startup complete: ", http.address());
}

void ServeCommand::drain(const Signals& signals, Api& api, Engine& engine, HttpServer& http) const {
  LOG_INFO("shutting down: ", http.busy(), " requests may take ", flags_.drain().count(),
           " s to end");
  api.drain();
  engine.drain();
  http.drain();
  const Stopwatch watch;
  const auto left = [&] { return static_cast<double>(flags_.drain().count()) - watch.seconds(); };
  while (!http.wait_idle(std::chrono::milliseconds(50)) && left() > 0)
    if (signals.wait(std::chrono::milliseconds(50))) break;
  if (const int64_t busy = http.busy(); busy > 0) {
    LOG_WARNING(busy, " requests did not end in time and are cancelled");
    engine.cancel_all();
    http.wait_idle(kLastWords);
  }
  // Answers that are complete may still be on their way to the client.
  const double until = watch.seconds() + std::max(left(), 1.0);
  while (http.connections() > 0 && watch.seconds() < until)
    if (signals.wait(std::chrono::milliseconds(50))) break;
}

Result<int> ServeCommand::run() {
  const Signals signals;
  for (const std::string& note : accepted_notes(flags_.accepted)) LOG_INFO(note);
  TRY_ASSIGN(std::vector<std::string> keys, flags_.keys());
  server::HttpService service{
      .limits = flags_.http_limits(), .headers = {{"Server", "pewter"}}, .served = &log_request};
  const server::CorsOptions cors = flags_.cors();
  if (cors.is_open())
    service.headers.emplace_back("Access-Control-Allow-Origin", "*");
  else
    service.headers_for = [cors](const server::HttpRequest& request) {
      return cors_headers(cors, request);
    };

  // In the order in which they may end: the model last.
  std::unique_ptr<LoadedModel> loaded;
  Api api({.api_keys = std::move(keys),
           .version = PEWTER_VERSION,
           .log_requests = flags_.log_requests,
           .cors = cors});
  service.handler = [&api](const auto& exchange) { api.handle(exchange); };
  TRY_ASSIGN(const std::unique_ptr<HttpServer> http,
             HttpServer::start(flags_.http_options(), std::move(service)));
  LOG_INFO("listening on ", http->address(), ", loading ", flags_.model.model);

  std::atomic<bool> ready{false};
  Result<std::unique_ptr<LoadedModel>> outcome = Error{};
  std::thread loader([&] {
    outcome = load();
    ready = true;
  });
  while (!ready)
    if (signals.wait(std::chrono::milliseconds(20)) && !ready) {
      // Loading cannot be broken off, and there is nothing to lose: leave without unwinding.
      LOG_INFO("stopped while loading");
      std::_Exit(kExitOk);
    }
  loader.join();
  if (!outcome) return outcome.error();
  loaded = *std::move(outcome);
  TRY_ASSIGN(const server::Model model, flags_.served(*loaded));
  api.serve(model);
  announce(*loaded, *http);

  ThroughputReport report;
  while (!signals.wait(std::chrono::milliseconds(500))) report.tick(loaded->engine->status());
  drain(signals, api, *loaded->engine, *http);
  api.stop();
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace pewter
