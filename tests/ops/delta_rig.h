// One Gated DeltaNet layer with a few slots on some Ops, fed rows of one seeded table.
#pragma once

#include "ops/op_rig.h"

namespace pewter::test {

struct DeltaShape {
  std::string name;
  int64_t key_heads, value_heads, key_dim, value_dim;

  int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  int64_t width() const { return channels() + value_heads * (value_dim + 2); }
  int64_t out_width() const { return value_heads * value_dim; }
};

class DeltaRig {
 public:
  static constexpr int64_t kSlots = 8, kTableRows = 400;

  DeltaRig(Ops& ops, const DeltaShape& shape);

  // One sequence of a step: rows first … first + rows − 1 of the table.
  struct Part {
    int64_t slot = 0, accepted = 0, first = 0, rows = 1;
  };
  // Outputs of all rows, one part after another.
  Floats decode(const std::vector<Part>& parts) { return run(Phase::kDecode, parts); }
  Floats prefill(const Part& part) { return run(Phase::kPrefill, {part}); }
  void fold(int64_t slot, int64_t accepted);

  Floats state(int64_t slot) const;
  Floats window(int64_t slot) const;

 private:
  Floats run(Phase phase, const std::vector<Part>& parts);
  DeltaMixArgs args(const Batch& batch, const TensorView& in, const TensorView& out) const;

  Ops& ops_;
  DeltaShape shape_;
  Floats table_;
  Tensor conv_, a_log_, dt_bias_, norm_;
  Tensor state_, window_, tape_, gates_;
};

}  // namespace pewter::test
