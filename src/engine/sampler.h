// Sampler: turns a request's sampling parameters and its tokens so far into the arguments of the
// sample op, and reads the op's answer. One per sequence; the draw for output index i depends on
// (seed, i) alone. It also closes reasoning that has used up its budget: the edits of such a row
// leave the model no choice, so that drafts are held against it like against any other row.
#pragma once

#include "backend/ops.h"
#include "engine/request.h"

namespace pewter {

class Sampler {
 public:
  struct Options {
    uint64_t seed = 0;  // used when the request has none
    int64_t max_tokens =
        0;  // most tokens that will be pushed: room for their edits is made at once
  };
  // Prompt tokens count as seen for the repetition penalty.
  Sampler(const Request& request, const Options& options);

  // Parameters of the next output token.
  SamplingRow row() const;
  // Every token whose logit changes for the next output token, each once. Valid until the next
  // push.
  std::span<const LogitEdit> edits() const { return edits_; }
  // Records a generated token.
  void push(int32_t token);
  // Whether edits() stay what they are whatever the next token is.
  bool is_settled() const;
  // Becomes a copy of another, with the same room for pushes.
  void follow(const Sampler& other);

  // No push makes edits() longer than this.
  int64_t most_edits() const { return static_cast<int64_t>(edits_.capacity()); }

  // The token that is chosen next whatever the model says; -1: the model chooses.
  int32_t forced() const { return forced_; }

  int64_t generated() const { return generated_; }
  uint64_t seed() const { return seed_; }

 private:
  LogitEdit& edit_of(int32_t token);
  void apply_biases();
  // Minus infinity for the last id of every banned list whose others were generated last.
  void apply_bans();
  // The token that closes the reasoning and is next; -1: the model chooses.
  int32_t forced_token() const;

  SamplingParams params_;
  std::vector<int32_t> stop_ids_;
  bool ignore_stop_;
  int64_t min_tokens_, generated_ = 0;
  int32_t top_logprobs_;
  uint64_t seed_;
  bool stops_suppressed_ = false;                                    // stop ids cannot be chosen
  bool tracks_output_;                                               // some penalty is on
  std::shared_ptr<const std::vector<std::vector<int32_t>>> banned_;  // null: nothing is
  size_t longest_ban_ = 0;
  std::vector<int32_t> recent_;  // the last generated, one less than longest_ban_ at most
  ReasoningLimit reasoning_;
  bool reasoning_ended_ = false;  // by the model itself
  int32_t forced_ = -1;           // forced_token(), as the edits have it
  std::vector<LogitEdit> edits_;  // by rising token
};

}  // namespace pewter
