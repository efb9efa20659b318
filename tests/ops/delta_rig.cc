#include "ops/delta_rig.h"

namespace pewter::test {

DeltaRig::DeltaRig(Ops& ops, const DeltaShape& shape)
    : ops_(ops),
      shape_(shape),
      table_(random_values(kTableRows * shape.width(), 1)),
      conv_(Tensor::of(DType::kF32, {shape.channels(), 4},
                       random_values(shape.channels() * 4, 2, 0.5f))),
      norm_(Tensor::of(DType::kF32, {shape.value_dim}, random_values(shape.value_dim, 5))) {
  const int64_t heads = shape.value_heads, channels = shape.channels();
  const DType act = ops.activation_dtype();
  Floats a_log = random_values(heads, 3);  // decays from e^−0.01 to e^−1 a row
  for (float& a : a_log) a = a * 0.8f - 2.5f;
  a_log_ = Tensor::of(DType::kF32, {heads}, a_log);
  dt_bias_ = Tensor::of(DType::kF32, {heads}, random_values(heads, 4));
  state_ = Tensor::zeros(DType::kF32, {kSlots, heads, shape.key_dim, shape.value_dim});
  window_ = Tensor::zeros(act, {kSlots, 3, channels});
  tape_ = Tensor::zeros(act, {kSlots, kMaxDecodeRows, channels});
  gates_ = Tensor::zeros(DType::kF32, {kSlots, kMaxDecodeRows, 2, heads});
}

DeltaMixArgs DeltaRig::args(const Batch& batch, const TensorView& in, const TensorView& out) const {
  return {.batch = batch,
          .in = in,
          .conv = conv_.view,
          .a_log = a_log_.view,
          .dt_bias = dt_bias_.view,
          .norm = norm_.view,
          .epsilon = 1e-6f,
          .key_heads = shape_.key_heads,
          .value_heads = shape_.value_heads,
          .key_dim = shape_.key_dim,
          .value_dim = shape_.value_dim,
          .state = {.state = state_.view,
                    .window = window_.view,
                    .tape = tape_.view,
                    .gates = gates_.view},
          .out = out};
}

Floats DeltaRig::run(Phase phase, const std::vector<Part>& parts) {
  std::vector<int32_t> begin = {0}, slot, accepted;
  Floats rows;
  for (const Part& part : parts) {
    begin.push_back(begin.back() + static_cast<int32_t>(part.rows));
    slot.push_back(static_cast<int32_t>(part.slot));
    accepted.push_back(static_cast<int32_t>(part.accepted));
    rows.insert(rows.end(), table_.begin() + part.first * shape_.width(),
                table_.begin() + (part.first + part.rows) * shape_.width());
  }
  const Batch batch{.phase = phase,
                    .rows = begin.back(),
                    .sequences = static_cast<int64_t>(parts.size()),
                    .row_begin = begin.data(),
                    .slot = slot.data(),
                    .accepted = accepted.data()};
  const DType act = ops_.activation_dtype();
  const Tensor in = Tensor::of(act, {batch.rows, shape_.width()}, rows);
  const Tensor out = Tensor::zeros(act, {batch.rows, shape_.out_width()});
  const DeltaMixArgs call = args(batch, in.view, out.view);
  run_ops(ops_, [&] { ops_.delta_mix(call); });
  return out.floats();
}

void DeltaRig::fold(int64_t slot, int64_t accepted) {
  const Batch none;
  const DeltaMixArgs call = args(none, {}, {});
  run_ops(ops_, [&] { ops_.fold(call, slot, accepted); });
}

Floats DeltaRig::state(int64_t slot) const {
  const auto* at = state_.view[slot].data_as<float>();
  return {at, at + state_.view[slot].elements()};
}
Floats DeltaRig::window(int64_t slot) const {
  const TensorView view = window_.view[slot];
  Floats out(static_cast<size_t>(view.elements()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_float(view.data(), view.dtype(), static_cast<int64_t>(i));
  return out;
}

}  // namespace pewter::test
