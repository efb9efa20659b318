#include "backend/op_bytes.h"

namespace pewter {
namespace {

double number(int64_t integer) { return static_cast<double>(integer); }

double bytes_of(const WeightMatrix& w) { return number(weight_bytes(spec_of(w))); }
double bytes_of(const TensorView& vector) { return number(vector.bytes()); }

// A stack of experts, of which those that were chosen are read.
double bytes_of_chosen(const WeightMatrix& experts, const OpLoad& load) {
  return bytes_of(experts) / number(experts.count) * load.distinct_experts;
}

// Keys and values of one position.
double position_bytes(const KvLayer& kv) {
  return number(kv.key_page_bytes + kv.value_page_bytes) / number(kPageTokens);
}

}  // namespace

double op_bytes(const EmbedArgs& args, const OpLoad&) {
  return bytes_of(args.table) / number(args.table.n) * number(args.batch.rows);
}

double op_bytes(const NormLinearArgs& args, const OpLoad&) {
  double bytes = bytes_of(args.norm);
  for (const WeightMatrix* w : args.w) bytes += bytes_of(*w);
  return bytes;
}

double op_bytes(const LinearAddArgs& args, const OpLoad&) { return bytes_of(args.w); }

double op_bytes(const DeltaMixArgs& args, const OpLoad&) {
  const double slots = number(args.state.state.dim(0));
  const double slot = (bytes_of(args.state.state) + bytes_of(args.state.window)) / slots;
  return bytes_of(args.conv) + bytes_of(args.a_log) + bytes_of(args.dt_bias) + bytes_of(args.norm) +
         2 * number(args.batch.sequences) * slot;
}

double op_bytes(const AttentionPrepareArgs& args, const OpLoad&) {
  return bytes_of(args.q_norm) + bytes_of(args.k_norm) +
         number(args.batch.rows) * position_bytes(args.kv);
}

double op_bytes(const AttentionArgs& args, const OpLoad& load) {
  return number(args.batch.sequences) * load.context * position_bytes(args.kv);
}

double op_bytes(const RouteArgs& args, const OpLoad&) {
  return bytes_of(args.norm) + bytes_of(args.router) + bytes_of(args.shared_gate);
}

double op_bytes(const ExpertsUpArgs& args, const OpLoad& load) {
  return bytes_of_chosen(args.gate, load) + bytes_of_chosen(args.up, load) +
         bytes_of(args.shared_gate) + bytes_of(args.shared_up);
}

double op_bytes(const ExpertsDownAddArgs& args, const OpLoad& load) {
  return bytes_of_chosen(args.down, load) + bytes_of(args.shared_down);
}

double op_bytes(const MlpUpArgs& args, const OpLoad&) {
  return bytes_of(args.norm) + bytes_of(args.gate) + bytes_of(args.up);
}

double op_bytes(const FinalNormArgs& args, const OpLoad&) { return bytes_of(args.norm); }

double op_bytes(const LogitsArgs& args, const OpLoad&) { return bytes_of(args.head); }

double op_bytes(const SampleArgs&, const OpLoad&) { return 0; }

}  // namespace pewter
