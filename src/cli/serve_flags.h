// The flags of `pewter serve`, and what they make of a loaded model.
#pragma once

#include "cli/shared_flags.h"
#include "server/api.h"
#include "server/http/server.h"

namespace pewter {

struct ServeFlags {
  ModelFlags model;
  std::string host = "127.0.0.1";
  std::optional<int64_t> port, max_sequences, chunk_rows, max_waiting, drain_seconds, max_body_mb,
      client_buffer_kb, reasoning_budget;
  std::optional<std::string> chat_template, template_kwargs, generation_config, generation_override,
      reasoning_field, reasoning_parser, reasoning_message, effort_budgets;
  std::vector<std::string> names, api_keys;
  bool stop_in_reasoning = false, strict_messages = false, strict_max_tokens = false,
       log_requests = false;

  void declare(Flags& flags);
  Status check() const;

  ModelOptions model_options() const;
  server::HttpServerOptions http_options() const;
  server::HttpLimits http_limits() const;
  std::chrono::seconds drain() const { return std::chrono::seconds(drain_seconds.value_or(30)); }
  // The model as clients see it; it must outlive what is returned. Errors name the flag.
  Result<server::Model> served(const LoadedModel& loaded) const;
};

}  // namespace pewter
