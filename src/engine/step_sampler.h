// StepSampler: chooses the next token of every row of a step with one sample op. A row that follows
// drafts is sampled as if they had been generated, with the penalties and the grammar's mask that
// this makes. Masks are worked out on the host while the device computes the logits. It owns the
// op's inputs and outputs on the device and their copies on the host.
#pragma once

#include <array>

#include "backend/ops.h"
#include "engine/sampler.h"
#include "tensor/buffer.h"

namespace pewter::grammar {
class Matcher;
}

namespace pewter {

class StepSampler {
 public:
  struct Options {
    int64_t rows = 1;         // most rows in a step
    int64_t vocab_limit = 0;  // ids from here on are never chosen
    int64_t mask_words = 0;   // ⌈vocabulary / 32⌉
    // Bits of the ids that may be chosen, ⌈vocabulary / 32⌉ words; empty: all below the limit.
    std::vector<uint32_t> token_mask;
  };
  // device and ops outlive it. Error: kResourceExhausted.
  static Result<StepSampler> make(Device& device, Ops& ops, const Options& options);

  // Room for so many edits in a step, all rows together. Error: kResourceExhausted.
  Status reserve_edits(int64_t edits);
  // Room for rows that follow a grammar or may choose only some ids. Error: kResourceExhausted.
  Status reserve_masks();

  struct Choice {
    int32_t token = 0;  // -1: the row's logits are not finite, or nothing is left to choose from
    float logprob = 0;
    // [kTopLogprobs], until the next call; undefined from where the row wants no more of them.
    std::span<const TopLogprob> top;
  };
  // The rows of one sequence: one after its tokens so far, one more after each draft.
  struct Rows {
    const Sampler* sampler = nullptr;
    std::span<const int32_t> drafts = {};
    // Where the text stands in its grammar, if it follows one; is where it was afterwards. The
    // drafts are tokens that it can read.
    grammar::Matcher* matcher = nullptr;
    std::span<const int32_t> stop_ids = {};  // may be chosen where the text may end
    std::span<const uint32_t> allowed = {};  // bits of the only ids that may be chosen; empty: any
    // The choice behind the one that is under way, whatever that one is; the sampler is settled.
    bool ahead = false;
    int64_t count() const { return 1 + static_cast<int64_t>(drafts.size()); }
  };
  // A choice for each row of logits, which are the sequences' rows one after another. The result is
  // valid until the next call.
  std::span<const Choice> sample(const TensorView& logits, std::span<const Rows> sequences) {
    start(logits, sequences);
    return finish();
  }
  // The same in two parts. At most two starts, the earlier of which is finished first, are under
  // way.
  void start(const TensorView& logits, std::span<const Rows> sequences);
  std::span<const Choice> finish();
  // [rows] i32 on the device, of the last start: what rows that are run ahead go on from.
  TensorView choices() const { return {results_.data(), DType::kI32, {rows_}}; }
  // For each row of logits what it says of this token: its log-probability, and the likeliest
  // ones. The result is valid until the next call.
  std::span<const Choice> score(const TensorView& logits, std::span<const int32_t> tokens);

 private:
  StepSampler(Device& device, Ops& ops) : device_(&device), ops_(&ops) {}
  // Results on their way to the host.
  struct Pending {
    std::vector<int32_t> results;
    int64_t rows = 0;
    bool listed = false;  // lists of likeliest tokens are among them
    HostCopy copy;
  };
  void add_row(const Sampler& sampler, bool ahead = false);
  void send_inputs();
  void run(const TensorView& logits, int64_t vocab_limit, bool masked);
  // Masks of a step's rows; false when every row may choose every id.
  bool set_masks(std::span<const Rows> sequences);
  void set_mask(int64_t row, const Rows& rows);
  void upload_mask(int64_t row, std::span<const uint32_t> mask);

  Device* device_;
  Ops* ops_;
  int64_t vocab_limit_ = 0;
  // On the device: [rows] parameters, [rows + 1] where each row's edits begin, [rows] masks, edits;
  // then the results, one block.
  Buffer inputs_;  // parameters and edit_begin of the rows, one behind the other
  Buffer masks_, edits_, results_;
  std::vector<std::byte> host_inputs_;
  std::vector<SamplingRow> host_parameters_, sent_parameters_;  // sent: what inputs_ holds
  std::vector<int32_t> host_edit_begin_, sent_edit_begin_;
  std::vector<LogitEdit> host_edits_;
  std::array<Pending, 2> pending_;
  int64_t started_ = 0, finished_ = 0;
  std::vector<Choice> choices_;
  std::vector<TopLogprob> top_;
  std::optional<Sampler> ahead_;  // a sequence's sampler, after its drafts
  int64_t rows_ = 0, mask_words_ = 0;
  bool has_token_mask_ = false;
  std::vector<uint32_t> token_mask_;  // of rows with no mask of their own, once there are masks
  std::vector<uint32_t> row_masks_;   // [rows, mask_words] of rows with one
  std::vector<char> has_own_mask_;    // [rows] the mask on the device is not token_mask_
  std::vector<int32_t> forced_;       // [rows] of the step: what must be chosen, or -1
};

}  // namespace pewter
