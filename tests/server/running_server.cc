#include "running_server.h"

#include <thread>

#include "server/answer/answer_grammar.h"

namespace pewter::server_test {

RunningServer::RunningServer(const Options& options)
    : api({.api_keys = options.api_keys, .version = "test"}) {
  ModelOptions load{.model = std::string(PEWTER_SOURCE_DIR) + "/models/demo",
                    .backend = {.device = "cpu", .threads = options.threads},
                    .max_model_len = options.max_context};
  load.runner.max_sequences = options.max_sequences;
  load.runner.chunk_rows = options.chunk_rows;
  load.max_waiting = options.max_waiting;
  load.draft = options.draft;
  loaded = LoadedModel::load(load, {}).value();
  auto served = std::make_shared<server::ServedModel>();
  served->names = {options.name};
  served->tokenizer = &loaded->tokenizer;
  served->chat_template = &*loaded->chat_template;
  served->engine = loaded->engine.get();
  served->stop_ids = loaded->stop_ids;
  served->grammars = server::make_grammar_compiler(loaded->tokenizer, loaded->engine->vocab_size());
  served->schema.defaults = loaded->defaults.sampling;
  served->reasoning = options.reasoning;
  served->schema.own_templates = options.own_templates;
  served->exclude_unwanted_tools = options.exclude_unwanted_tools;
  model = std::move(served);
  if (options.ready) api.serve(model);
  server::HttpLimits limits;
  limits.unsent_bytes = options.unsent_bytes;
  http = server::HttpServer::start(
             {.port = 0, .send_buffer_bytes = options.send_buffer_bytes},
             {.handler = [this](const auto& exchange) { api.handle(exchange); }, .limits = limits})
             .value();
}

bool RunningServer::is_idle_within(std::chrono::milliseconds time) const {
  const auto end = std::chrono::steady_clock::now() + kSlowness * time;
  while (true) {
    const EngineStatus status = loaded->engine->status();
    if (status.running == 0 && status.waiting == 0 && http->busy() == 0) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace pewter::server_test
