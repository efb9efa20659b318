// Engine::Job, for the engine's own files.
#pragma once

#include "base/clock.h"
#include "engine/engine.h"
#include "grammar/matcher.h"

namespace pewter {

// A request on its way: in the inbox, waiting, or running.
struct Engine::Job {
  int64_t id = -1;
  Request request;
  int64_t max_tokens = 0;  // what the context leaves of the request's
  std::shared_ptr<TokenChannel> channel;
  Completion completion;
  Stopwatch phase;  // of queued, prefill, decode
  // While it runs:
  SequenceState sequence;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<grammar::Matcher> matcher;  // of the request's grammar
  std::vector<uint32_t> allowed;              // bits of the request's allowed_ids, if it has some
  std::shared_ptr<PromptScores> scores;       // if the request asks for them
  std::vector<int32_t> next;  // the next step's rows: the token chosen last, then its drafts
  std::vector<int32_t> text;  // prompt and output, with a drafter
  bool started = false, ended = false;

  std::span<const int32_t> drafts() const { return std::span(next).subspan(next.empty() ? 0 : 1); }
  int64_t positions() const { return static_cast<int64_t>(request.prompt.size()) + max_tokens; }
};

}  // namespace pewter
