// Ops: the mathematics of this model family as stages. The model is written once against this
// interface; each backend implements it. Five laws hold (docs/architecture.md): ops allocate and
// read back nothing; in a decode step a row has the same bits whatever rows are beside it; a step
// never commits a guess; the weight format travels in the matrix; what is fused has an unfused
// twin.
//
// m counts rows, n outputs, k inputs. "act" is the activation dtype, chosen by Activations (f32 in
// the reference path, bf16 in the fast one); the residual stream is f32 in both. Norms, softmax,
// gates, RoPE angles, the recurrent state and sums are f32 inside a stage, with one rounding where
// a result leaves it. Shapes are CHECKed; no op fails at run time. Source of the formulas:
// docs/numerics.md.
#pragma once

#include <span>

#include "backend/batch.h"

namespace pewter {

// Tokens that ops have chosen, for rows that go on from them.
struct ChosenTokens {
  TensorView choices;  // [any] i32; -1, where nothing was to choose from, counts as 0
  TensorView ids;      // [N] i32: the token that each choice stands for; undefined: itself
};

// out[r] = table[token r], or the given embedding.
struct EmbedArgs {
  const Batch& batch;
  const WeightMatrix& table;  // [vocab, hidden]
  TensorView out;             // [m, hidden] f32
  ChosenTokens chosen = {};   // for rows whose token is negative
};

// out = RMSNorm(x)·(1 + norm) projected by each matrix, outputs side by side.
struct NormLinearArgs {
  TensorView x;     // [m, hidden] f32, the residual stream
  TensorView norm;  // [hidden] f32
  float epsilon = 0;
  std::span<const WeightMatrix* const> w;  // each [n_i, hidden]; formats may differ
  TensorView out;                          // [m, Σ n_i] act
};

// partial = x·Wᵀ, then residual += partial. With an undefined residual only the partial sum is
// formed (tensor parallelism adds the parts of all devices before add_residual).
struct LinearAddArgs {
  TensorView x;           // [m, k] act
  const WeightMatrix& w;  // [n, k]
  TensorView partial;     // [m, n] f32
  TensorView residual;    // [m, n] f32, or undefined
};

struct AddResidualArgs {
  TensorView partial, residual;  // [m, n] f32; residual += partial
};

// The Gated DeltaNet mixer between its projections: causal convolution, SiLU, unit-length q and k,
// gates, the delta rule, gated RMSNorm.
//   S ← exp(g)·S;  S ← S + k ⊗ β(v − Sᵀk);  o = Sᵀq / √dk         per value head; key head j / (Hv
//   / Hk)
// Decode: applies the accepted rows of each slot's tape to its state, then computes the new rows
// without storing their state, and writes their tape. Prefill: applies the tape, then the chunk (in
// chunks of kDeltaChunk rows counted from its first row), and commits it whole.
struct DeltaMixArgs {
  const Batch& batch;
  TensorView in;    // [m, 2·Hk·dk + 2·Hv·dv + 2·Hv] act: q k v z b a side by side
  TensorView conv;  // [channels, 4] f32, tap 3 is the current row's; channels = 2·Hk·dk + Hv·dv
  TensorView a_log, dt_bias;  // [Hv] f32;  g = −exp(a_log)·softplus(a + dt_bias)
  TensorView norm;            // [dv] f32, plain (no 1 +)
  float epsilon = 0;
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  RecurrentLayer state;
  TensorView out;  // [m, Hv·dv] act
};
inline constexpr int64_t kDeltaChunk = 64;

// Head norms and RoPE of q and k; writes k and v of the step's rows to the cache at positions
// context_length + 0, 1, … of each sequence.
struct AttentionPrepareArgs {
  const Batch& batch;
  TensorView in;              // [m, Nq·2·D + 2·Nkv·D] act: (q, gate) per head, then k, v
  TensorView q_norm, k_norm;  // [D] f32, the (1 + w) form
  float epsilon = 0;
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;
  TensorView inverse_frequency;  // [rotary_dim / 2] f32
  const int32_t* axis =
      nullptr;  // [rotary_dim / 2] position axis (0 t, 1 h, 2 w) of each frequency
  KvLayer kv;
  TensorView q;  // out [m, Nq·D] act
};

// Causal attention over the pages of each row's sequence, times sigmoid(gate).
struct AttentionArgs {
  const Batch& batch;
  TensorView q;   // [m, Nq·D] act
  TensorView in;  // as in AttentionPrepareArgs, for the gates
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  KvLayer kv;
  TensorView out;  // [m, Nq·D] act
  // A row sees the last so many positions up to its own; 0: all.
  int64_t window = 0;
};

// Which stages of a block run, by their place in it: all, or one alone to measure it as it is
// within the block, where a backend may hand on results in other forms than between ops. A stage
// alone finds what the stages before it left when they last ran.
struct BlockStages {
  int only = -1;  // -1: all
  constexpr bool runs(int stage) const { return only < 0 || only == stage; }
};

// Matrices that the blocks behind a token mixer read first, in their order: a hint. Where a mixer
// leaves memory idle, a backend may fetch them into a cache.
using NextWeights = std::span<const WeightMatrix* const>;

// A whole token mixer with its projections; by default the stages in turn.
struct DeltaNetArgs {
  NormLinearArgs in;
  DeltaMixArgs mix;
  LinearAddArgs out;
  NextWeights next = {};
  BlockStages stages = {};
};
struct AttentionNetArgs {
  NormLinearArgs in;
  AttentionPrepareArgs prepare;
  AttentionArgs attention;
  LinearAddArgs out;
  NextWeights next = {};
  BlockStages stages = {};
};

// RMSNorm(x)·(1 + norm), its top-k experts of the softmax over all (ties to the lower index) with
// weights renormalised to sum 1, and the shared expert's gate sigmoid(n·gᵀ).
struct RouteArgs {
  TensorView x;     // [m, hidden] f32
  TensorView norm;  // [hidden] f32
  float epsilon = 0;
  const WeightMatrix& router;       // [experts, hidden]
  const WeightMatrix& shared_gate;  // [1, hidden]
  TensorView normed;                // out [m, hidden] act
  TensorView expert;                // out [m, top_k] i32, by falling probability
  TensorView weight;                // out [m, top_k] f32
  TensorView shared_weight;         // out [m] f32
};

// silu(gate·n) ⊙ (up·n) of the routed experts and of the shared one.
struct ExpertsUpArgs {
  TensorView normed;         // [m, hidden] act
  TensorView expert;         // [m, top_k] i32
  const WeightMatrix& gate;  // [experts] of [I, hidden]
  const WeightMatrix& up;
  const WeightMatrix& shared_gate;  // [Is, hidden]
  const WeightMatrix& shared_up;
  TensorView hidden;         // out [m, top_k, I] act
  TensorView shared_hidden;  // out [m, Is] act
};

// partial = Σ_slot weight·down(hidden), in slot order, + shared_weight·shared_down(shared_hidden);
// then residual.
struct ExpertsDownAddArgs {
  TensorView hidden, shared_hidden;  // as above
  TensorView expert, weight, shared_weight;
  const WeightMatrix& down;         // [experts] of [hidden, I]
  const WeightMatrix& shared_down;  // [hidden, Is]
  TensorView partial;               // [m, hidden] f32
  TensorView residual;              // [m, hidden] f32, or undefined
};

// A whole MoE layer; by default the three stages in turn.
struct MoeArgs {
  RouteArgs route;
  ExpertsUpArgs up;
  ExpertsDownAddArgs down;
  BlockStages stages = {};
};

// Dense MLP, first half: out = silu(gate·n) ⊙ (up·n), n = RMSNorm(x)·(1 + norm).
struct MlpUpArgs {
  TensorView x;     // [m, hidden] f32
  TensorView norm;  // [hidden] f32
  float epsilon = 0;
  const WeightMatrix& gate;  // [I, hidden]
  const WeightMatrix& up;
  TensorView out;  // [m, I] act
};

// out = RMSNorm(x)·(1 + norm) of every row.
struct FinalNormArgs {
  TensorView x;     // [m, hidden] f32
  TensorView norm;  // [hidden] f32
  float epsilon = 0;
  TensorView out;  // [m, hidden] act
};

// Logits of the batch's logits_rows.
struct LogitsArgs {
  const Batch& batch;
  TensorView hidden;         // [m, hidden] act
  const WeightMatrix& head;  // [vocab, hidden]
  TensorView out;            // [logits_count, vocab] f32
};

// The entrance of a multi-token-prediction layer: fc · concat(norm(embedding of the row's token),
// norm(hidden)).
struct MtpCombineArgs {
  TensorView embedding;  // [m, hidden] f32
  TensorView hidden;     // [any, hidden] act, after the final norm: the target's, or its own
  const int32_t* hidden_rows = nullptr;    // [m] the row of `hidden` that each takes; null: its own
  TensorView embedding_norm, hidden_norm;  // [hidden] f32
  float epsilon = 0;
  const WeightMatrix& fc;  // [hidden, 2·hidden]
  TensorView out;          // [m, hidden] f32, the layer's residual stream

  int64_t hidden_row(int64_t row) const { return hidden_rows != nullptr ? hidden_rows[row] : row; }
};

// Copies a tensor on the step's stream (drafter taps of the residual stream).
struct CopyArgs {
  TensorView from, to;  // same shape and dtype, dense
};

inline constexpr int64_t kTopLogprobs = 20;

// How one row of logits is turned into a token. Neutral values change nothing.
struct SamplingRow {
  float temperature = 0;  // 0: the largest logit
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;  // 0: off
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 0;
  uint64_t index = 0;  // of the output token: the draw is a pure function of (seed, index)
  int32_t top_logprobs =
      kTopLogprobs;  // likeliest tokens to list; the others' places are undefined
};

// A token whose logit a row changes: by penalties (it stood in the prompt or the output) and by
// bias. One row names a token once.
struct LogitEdit {
  int32_t token = 0;
  int32_t output_count = 0;  // times the row's sequence has generated it
  float bias = 0;
  bool seen = false;  // in prompt or output: the repetition penalty applies
};

// Per row: bias and mask, penalties, temperature, min-p, top-k, top-p, then a draw.
// Log-probabilities are those of the unmodified logits.
struct SampleArgs {
  TensorView logits;                    // [n, vocab] f32, unchanged
  int64_t vocab_limit = 0;              // ids from here on are never chosen
  const SamplingRow* rows = nullptr;    // [n]
  const LogitEdit* edits = nullptr;     // rows' edits one after another
  const int32_t* edit_begin = nullptr;  // [n + 1]
  const uint32_t* masks = nullptr;      // [n, ⌈vocab/32⌉] allowed-token bits, or null: all allowed
  TensorView token;                     // out [n] i32; -1 when the row's logits are not finite or
                                        // nothing is left to choose from
  TensorView logprob;                   // out [n] f32, of the chosen token
  TensorView top_token, top_logprob;    // out [n, kTopLogprobs] i32, f32, by falling probability
};

// The largest sizes any step of this model asks for; an Ops reserves its scratch once.
struct OpsLimits {
  int64_t rows = 0, sequences = 0, logits_rows = 0;
  int64_t widest_input = 0;   // largest k of any linear
  int64_t widest_output = 0;  // largest n, the vocabulary included
  int64_t experts = 0, top_k = 0, expert_width = 0, shared_width = 0;
  int64_t delta_channels = 0, key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t decode_rows = kMaxDecodeRows;  // of one sequence in a decode step
  int64_t cache_positions = 0;           // in the cache, all sequences together

  // Room for the attention and the projections of another model, whose steps have no more rows.
  void cover(const OpsLimits& other);
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual DType activation_dtype() const = 0;
  virtual KvFormat kv_format() const = 0;  // of the cache unless told otherwise
  // Bytes reserve() takes, on the device or, for the CPU, on the host.
  virtual int64_t scratch_bytes(const OpsLimits& limits) const = 0;
  virtual Status reserve(const OpsLimits& limits) = 0;

  virtual void embed(const EmbedArgs&) = 0;
  virtual void norm_linear(const NormLinearArgs&) = 0;
  virtual void linear_add(const LinearAddArgs&) = 0;
  virtual void add_residual(const AddResidualArgs&) = 0;
  virtual void delta_mix(const DeltaMixArgs&) = 0;
  virtual void attention_prepare(const AttentionPrepareArgs&) = 0;
  virtual void attention(const AttentionArgs&) = 0;
  virtual void delta_net(const DeltaNetArgs& args);
  virtual void attention_net(const AttentionNetArgs& args);
  virtual void route(const RouteArgs&) = 0;
  virtual void experts_up(const ExpertsUpArgs&) = 0;
  virtual void experts_down_add(const ExpertsDownAddArgs&) = 0;
  virtual void moe(const MoeArgs& args);
  virtual void mlp_up(const MlpUpArgs&) = 0;
  virtual void final_norm(const FinalNormArgs&) = 0;
  virtual void logits(const LogitsArgs&) = 0;
  virtual void mtp_combine(const MtpCombineArgs&) = 0;
  virtual void copy(const CopyArgs&) = 0;
  virtual void sample(const SampleArgs&) = 0;
  // Applies the first `accepted` rows of the slot's tape to its state and window: what the next
  // step would do. The tape is empty afterwards; the caller passes accepted = 0 from then on.
  // args.in and args.out are unused.
  virtual void fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) = 0;
};

}  // namespace pewter
