// The flags of `pewter serve`, and what they make of a loaded model.
#pragma once

#include "cli/accepted_flags.h"
#include "cli/shared_flags.h"
#include "server/api.h"
#include "server/http/server.h"

namespace pewter {

struct ServeFlags {
  ModelFlags model;
  std::optional<std::string> directory;  // the positional MODEL, which wins over --model
  std::string host = "127.0.0.1";
  std::optional<int64_t> port, max_sequences, chunk_rows, max_waiting, drain_seconds, max_body_mb,
      client_buffer_kb, reasoning_budget, ping_seconds, timeout_seconds;
  std::optional<std::string> chat_template, template_kwargs, generation_config, generation_override,
      reasoning_field, reasoning_parser, reasoning_message, reasoning_config, effort_budgets;
  std::vector<std::string> names, api_keys, origins, methods, headers;
  std::optional<std::string> api_key_file;
  std::vector<GivenFlag> accepted;
  bool own_templates = false, exclude_tools = false, stop_in_reasoning = false, strict_messages = false,
       strict_max_tokens = false, log_requests = false, allow_credentials = false;

  void declare(Flags& flags);
  // Also settles which model is meant.
  Status check();

  ModelOptions model_options() const;
  server::HttpServerOptions http_options() const;
  server::HttpLimits http_limits() const;
  server::CorsOptions cors() const;
  // Those of the flags and of the file. Errors: the file's.
  Result<std::vector<std::string>> keys() const;
  std::chrono::seconds drain() const { return std::chrono::seconds(drain_seconds.value_or(30)); }
  // The model as clients see it; it must outlive what is returned. Errors name the flag.
  Result<server::Model> served(const LoadedModel& loaded) const;
};

}  // namespace pewter
