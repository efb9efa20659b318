#include "engine/sampler.h"

#include "base/in_range.h"

#include <algorithm>
#include <cmath>

namespace pewter {
namespace {

// Above whatever logits, biases and penalties can make, and far from the largest float.
constexpr float kForced = 1e9f;

}  // namespace

Status SamplingParams::validate(int64_t vocab_size) const {
  TRY(in_range("temperature", temperature, 0, 100));
  TRY(in_range("top_k", top_k, -1, INT32_MAX));
  TRY(in_range("top_p", top_p, 0, 1));
  if (top_p == 0) return Error{ErrorCode::kInvalidArgument, "top_p: 0 is not above 0"};
  TRY(in_range("min_p", min_p, 0, 1));
  TRY(in_range("repetition_penalty", repetition_penalty, 1e-3, 1e3));
  TRY(in_range("presence_penalty", presence_penalty, -2, 2));
  TRY(in_range("frequency_penalty", frequency_penalty, -2, 2));
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_size)
      return Error{
          ErrorCode::kInvalidArgument,
          str_cat("logit_bias: token id ", token, " is not in the vocabulary of ", vocab_size)};
    TRY(in_range("logit_bias", bias, -100, 100));
  }
  return {};
}

Sampler::Sampler(const Request& request, const Options& options)
    : params_(request.sampling),
      stop_ids_(request.stop_ids),
      ignore_stop_(request.ignore_stop),
      min_tokens_(request.min_tokens),
      top_logprobs_(request.top_logprobs),
      seed_(request.sampling.seed.value_or(options.seed)),
      tracks_output_(params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
                     params_.frequency_penalty != 0),
      reasoning_(request.reasoning) {
  const bool sees_prompt = params_.repetition_penalty != 1;
  stops_suppressed_ = ignore_stop_ || min_tokens_ > 0;
  if (!request.banned.empty())
    banned_ = std::make_shared<const std::vector<std::vector<int32_t>>>(request.banned);

  // One edit for each token that has a reason; pushes add to them without allocating.
  std::vector<int32_t> tokens;
  tokens.reserve(params_.logit_bias.size());
  for (const auto& [token, bias] : params_.logit_bias) tokens.push_back(token);
  if (stops_suppressed_) tokens.insert(tokens.end(), stop_ids_.begin(), stop_ids_.end());
  tokens.insert(tokens.end(), reasoning_.closing.begin(), reasoning_.closing.end());
  for (const std::vector<int32_t>& ban : request.banned) {
    tokens.push_back(ban.back());
    longest_ban_ = std::max(longest_ban_, ban.size());
  }
  if (sees_prompt) tokens.insert(tokens.end(), request.prompt.begin(), request.prompt.end());
  recent_.reserve(longest_ban_);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  edits_.reserve(tokens.size() + static_cast<size_t>(tracks_output_ ? options.max_tokens : 0));
  for (const int32_t token : tokens) edits_.push_back({.token = token});

  if (sees_prompt)
    for (const int32_t token : request.prompt) edit_of(token).seen = true;
  forced_ = forced_token();
  apply_biases();
}

int32_t Sampler::forced_token() const {
  if (!reasoning_.is_set() || reasoning_ended_ || generated_ < reasoning_.budget) return -1;
  const int64_t at = generated_ - reasoning_.budget;
  return at < std::ssize(reasoning_.closing) ? reasoning_.closing[static_cast<size_t>(at)] : -1;
}

LogitEdit& Sampler::edit_of(int32_t token) {
  auto at = std::lower_bound(edits_.begin(), edits_.end(), token,
                             [](const LogitEdit& edit, int32_t t) { return edit.token < t; });
  if (at == edits_.end() || at->token != token) at = edits_.insert(at, {.token = token});
  return *at;
}

// The request's biases; minus infinity instead for stop ids that must not be chosen yet, whose own
// bias, if any, counts afterwards; and what is forced stands above all.
void Sampler::apply_biases() {
  for (LogitEdit& edit : edits_) edit.bias = 0;
  for (const auto& [token, bias] : params_.logit_bias) edit_of(token).bias += bias;
  if (stops_suppressed_)
    for (const int32_t token : stop_ids_) edit_of(token).bias = -INFINITY;
  if (banned_) apply_bans();
  if (forced_ >= 0) edit_of(forced_).bias = kForced;
}

void Sampler::apply_bans() {
  for (const std::vector<int32_t>& ban : *banned_) {
    const size_t before = ban.size() - 1;
    if (before <= recent_.size() &&
        std::equal(ban.begin(), ban.end() - 1, recent_.end() - static_cast<int64_t>(before)))
      edit_of(ban.back()).bias = -INFINITY;
  }
}

SamplingRow Sampler::row() const {
  return {.temperature = params_.temperature,
          .top_p = params_.top_p,
          .min_p = params_.min_p,
          .top_k = std::max(params_.top_k, 0),
          .repetition_penalty = params_.repetition_penalty,
          .presence_penalty = params_.presence_penalty,
          .frequency_penalty = params_.frequency_penalty,
          .seed = seed_,
          .index = static_cast<uint64_t>(generated_),
          .top_logprobs = top_logprobs_};
}

bool Sampler::is_settled() const {
  const int64_t next = generated_ + 1;
  const bool admits_stops = stops_suppressed_ && !ignore_stop_ && next >= min_tokens_;
  const bool may_close = reasoning_.is_set() && !reasoning_ended_ && next >= reasoning_.budget &&
                         generated_ - reasoning_.budget < std::ssize(reasoning_.closing);
  return !tracks_output_ && longest_ban_ <= 1 && !admits_stops && !may_close;
}

void Sampler::follow(const Sampler& other) {
  edits_.reserve(other.edits_.capacity());
  *this = other;
}

void Sampler::push(int32_t token) {
  if (token == reasoning_.end_token && generated_ < reasoning_.budget) reasoning_ended_ = true;
  ++generated_;
  if (tracks_output_) {
    LogitEdit& edit = edit_of(token);
    edit.seen = params_.repetition_penalty != 1;
    ++edit.output_count;
  }
  bool changed = false;
  if (longest_ban_ > 1) {
    if (recent_.size() + 1 == longest_ban_) recent_.erase(recent_.begin());
    recent_.push_back(token);
    changed = true;
  }
  if (stops_suppressed_ && !ignore_stop_ && generated_ >= min_tokens_) {
    stops_suppressed_ = false;
    changed = true;
  }
  if (const int32_t forced = forced_token(); forced != forced_) {
    forced_ = forced;
    changed = true;
  }
  if (changed) apply_biases();
}

}  // namespace pewter
