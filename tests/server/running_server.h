// A server in the process of a test: the demo model behind all of src/server, on a free port.
#pragma once

#include "cli/loaded_model.h"
#include "server/api.h"
#include "server/http/server.h"

namespace pewter::server_test {

// Sanitizers make everything slower: limits of time count in these units.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowness = 20;
#else
inline constexpr int kSlowness = 1;
#endif

struct RunningServer {
  struct Options {
    int64_t max_sequences = 8, max_waiting = 256, max_context = 0, chunk_rows = 512;
    int64_t unsent_bytes = int64_t{1} << 20;
    int send_buffer_bytes = 0;
    int threads = 2;  // of the model
    std::string name = "m";
    DraftOptions draft = {};
    std::vector<std::string> api_keys = {};
    server::ReasoningOptions reasoning = {};
    bool own_templates = false, exclude_unwanted_tools = false;
    bool ready = true;  // false: as if the model were still loading
  };
  explicit RunningServer(const Options& options);
  RunningServer() : RunningServer(Options{}) {}

  int port() const { return http->port(); }
  // Waits until the engine has nothing to do; false when it takes longer (times kSlowness).
  bool is_idle_within(std::chrono::milliseconds time) const;

  std::unique_ptr<LoadedModel> loaded;
  server::Model model;
  server::Api api;
  std::unique_ptr<server::HttpServer> http;
};

}  // namespace pewter::server_test
