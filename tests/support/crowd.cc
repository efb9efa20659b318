#include "support/crowd.h"

#include <chrono>
#include <thread>

#include "base/rng.h"

namespace pewter::test {

CrowdRig::CrowdRig(const RigCase& rig_case, const EngineOptions& options) {
  backend = make_rig_backend(rig_case);
  model =
      make_random_model(*backend.device, rig_case.config, rig_case.formats, rig_case.seed).value();
  engine = Engine::make(model, *backend.device, *backend.ops, options).value();
}

Output CrowdRig::run(const Request& request) {
  TokenStream stream = engine->submit(request).value();
  return read_all(stream);
}

bool CrowdRig::returned_everything() {
  const StatePool& pool = engine->runner().pool();
  return pool.kv.free_pages() == pool.kv.pages() &&
         pool.recurrent.free_slots() == pool.recurrent.slots();
}

Output read_all(TokenStream& stream) {
  Output output;
  StreamNews news;
  do {
    stream.wait(news);
    for (const StreamToken& token : news.tokens) {
      output.tokens.push_back(token.token);
      output.logprobs.push_back(token.logprob);
    }
  } while (!news.end);
  output.completion = *news.end;
  return output;
}

bool becomes_idle(const Engine& engine) {
  for (int i = 0; i < 2000; ++i) {
    const EngineStatus status = engine.status();
    if (status.running == 0 && status.waiting == 0 && status.cache_tokens_used == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

std::vector<Request> crowd(const RigCase& rig_case, int count, uint64_t seed) {
  // The scalar path is slow, and slower under sanitizers; prompts of several chunks are the fast
  // one's.
  const double longest = rig_case.is_exact() ? 40 : 150;
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    const auto draw = [&](uint64_t index) {
      return random_uniform(seed, static_cast<uint64_t>(i) * 16 + index);
    };
    Request request{
        .prompt = random_tokens(rig_case.config, 1 + static_cast<int64_t>(draw(0) * longest),
                                seed + static_cast<uint64_t>(i)),
        .sampling = {.temperature = draw(1) < 0.3 ? 0.0f : 1.0f,
                     .top_k = draw(2) < 0.5 ? 0 : 30,
                     .top_p = draw(3) < 0.5 ? 1.0f : 0.9f,
                     .repetition_penalty = draw(4) < 0.5 ? 1.0f : 1.2f,
                     .seed = 100 + static_cast<uint64_t>(i)},
        .max_tokens = 1 + static_cast<int64_t>(draw(5) * 30)};
    if (draw(6) < 0.5) request.stop_ids = {7, 11, 13, 17, 19, 23};
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace pewter::test
