#include "server/api.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/log.h"
#include "server/http/error_body.h"

namespace pewter::server {
namespace {

// What needs no key: probes and load balancers have none.
constexpr std::array<std::string_view, 5> kOpen = {"/health", "/v1/health", "/ping", "/version",
                                                   "/metrics"};

// Takes the same time whatever the first difference is.
bool same_key(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ b[i]));
  return difference == 0;
}

// JSON by its content type, or nothing said about it.
bool is_json(const HttpRequest& request) {
  const std::string* header = request.header("Content-Type");
  if (header == nullptr) return true;
  std::string_view type = std::string_view(*header).substr(0, header->find(';'));
  type = type.substr(0, type.find_last_not_of(" \t") + 1);
  if (type.empty() || equal_ignoring_case(type, "application/json") ||
      equal_ignoring_case(type, "text/json"))
    return true;
  return type.size() > 5 && equal_ignoring_case(type.substr(type.size() - 5), "+json");
}

// The key a request brings: "Authorization: Bearer KEY", or Anthropic's "x-api-key: KEY".
std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string* header = request.header("Authorization");
  if (header != nullptr && equal_ignoring_case(header->substr(0, kBearer.size()), kBearer))
    return std::string_view(*header).substr(kBearer.size());
  const std::string* plain = request.header("x-api-key");
  return plain == nullptr ? std::string_view() : *plain;
}

// Numbers only: what people write to a model is not for the log.
std::string describe(const GenerationPlan& plan) {
  const Request& request = plan.choices.front().request;
  const SamplingParams& sampling = request.sampling;
  return str_cat(plan.choices.size(), plan.stream ? " streamed" : "", " answers, ",
                 plan.prompt_tokens, " prompt tokens, max_tokens ", request.max_tokens,
                 ", temperature ", sampling.temperature, ", top_p ", sampling.top_p, ", top_k ",
                 sampling.top_k, ", presence_penalty ", sampling.presence_penalty, ", seed ",
                 sampling.seed ? str_cat(*sampling.seed) : "any");
}

}  // namespace

void log_unread(const std::vector<std::string>& fields) {
  constexpr size_t kMostNames = 256;
  static std::mutex mutex;
  static std::set<std::string> told;
  for (const std::string& field : fields) {
    const std::lock_guard lock(mutex);
    if (told.size() < kMostNames && told.insert(safe_quote(field)).second)
      LOG_INFO("requests have a field ", safe_quote(field), " that means nothing here: ignored");
  }
}

Api::Api(ApiOptions options)
    : options_(std::move(options)),
      router_(options_.cors),
      workers_(std::max(options_.worker_threads, 1)) {
  const auto health = [this](const std::shared_ptr<Exchange>& exchange) {
    const State state = this->state();
    if (state.model && state.problem.empty())
      return exchange->respond({.body = "{\"status\":\"ok\"}"});
    respond_error(exchange, {ErrorCode::kUnavailable, state.problem});
  };
  for (const char* path : {"/health", "/v1/health", "/ping"}) router_.add("GET", path, health);
  router_.add("GET", "/version", [this](const std::shared_ptr<Exchange>& exchange) {
    Json body;
    body.set("version", options_.version);
    exchange->respond({.body = body.dump()});
  });
  add("GET", "/v1/models", &list_models);
  add("GET", "/v1/models/", &show_model);
  add("POST", "/v1/chat/completions", &chat_completions);
  add("POST", "/v1/completions", &completions);
  add("POST", "/v1/messages", &messages);
  add("POST", "/v1/messages/count_tokens", &count_message_tokens);
  add("POST", "/v1/responses", &responses);
  add("POST", "/apply-template", &apply_template);
  add("POST", "/tokenize", &tokenize);
  add("POST", "/detokenize", &detokenize);
  for (const char* path : {"/v1/embeddings", "/v1/rerank", "/v1/audio/transcriptions"})
    router_.add("POST", path, [](const std::shared_ptr<Exchange>& exchange) {
      exchange->respond({.status = 501,
                         .body = error_body(501, "NotImplementedError",
                                            "models of this server generate text; use "
                                            "/v1/chat/completions or /v1/completions")});
    });
  state_.problem = "the model is loading";
}

void Api::serve(Model model) {
  const std::lock_guard lock(mutex_);
  state_ = {.model = std::move(model), .problem = ""};
}

void Api::failed(std::string why) {
  const std::lock_guard lock(mutex_);
  state_ = {.model = nullptr, .problem = std::move(why)};
}

void Api::drain() {
  const std::lock_guard lock(mutex_);
  state_.problem = "the server is shutting down";
}

Api::State Api::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

bool Api::has_key(const HttpRequest& request) const {
  if (options_.api_keys.empty() || request.method == "OPTIONS" ||
      std::ranges::find(kOpen, request.path) != kOpen.end())
    return true;
  const std::string_view given = key_of(request);
  return std::ranges::any_of(options_.api_keys,
                             [&](const std::string& key) { return same_key(given, key); });
}

void Api::handle(const std::shared_ptr<Exchange>& exchange) {
  if (!has_key(exchange->request()))
    return exchange->respond(
        {.status = 401,
         .headers = {{"WWW-Authenticate", "Bearer"}},
         .body = error_body(
             error_form(exchange->request().path),
             {.status = 401,
              .type = "authentication_error",
              .message =
                  "the key is missing or wrong: want Authorization: Bearer KEY, or x-api-key",
              .code = "invalid_api_key"})});
  router_.dispatch(exchange);
}

void Api::add(std::string method, std::string path, Endpoint endpoint) {
  router_.add(
      std::move(method), std::move(path),
      [this, endpoint](const std::shared_ptr<Exchange>& exchange) { run(exchange, endpoint); });
}

void Api::run(const std::shared_ptr<Exchange>& exchange, Endpoint endpoint) {
  const State state = this->state();
  if (!state.problem.empty())
    return respond_error(exchange, {ErrorCode::kUnavailable, state.problem});
  if (exchange->request().method == "POST" && !is_json(exchange->request()))
    return exchange->respond(
        {.status = 415,
         .body = error_body(error_form(exchange->request().path),
                            {.status = 415,
                             .type = "BadRequestError",
                             .message = "want Content-Type: application/json"})});
  const bool log = options_.log_requests;
  workers_.run([exchange, endpoint, log, model = state.model] {
    // Copied into the function that goes back, so it is held by a pointer.
    const auto outcome = std::make_shared<Result<Outcome>>(endpoint(exchange->request(), model));
    if (const auto* plan = *outcome ? std::get_if<GenerationPlan>(&**outcome) : nullptr;
        plan != nullptr && log)
      LOG_INFO(exchange->request().id, " asks for ", describe(*plan));
    exchange->executor()([exchange, outcome] {
      if (!*outcome) return respond_error(exchange, outcome->error());
      if (HttpResponse* response = std::get_if<HttpResponse>(&**outcome))
        return exchange->respond(std::move(*response));
      start_generation(exchange, std::get<GenerationPlan>(std::move(**outcome)));
    });
  });
}

}  // namespace pewter::server
