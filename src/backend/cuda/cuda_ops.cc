#include "backend/cuda/cuda_ops.h"

#include <algorithm>

#include "backend/cuda/attention/net.h"
#include "backend/cuda/common/cuda_check.h"
#include "backend/cuda/common/rows.h"
#include "backend/cuda/delta/net.h"
#include "backend/cuda/kernel_arguments.h"
#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/stream_wide.h"
#include "backend/cuda/sampling/sampling.h"

namespace pewter {
namespace {

using cuda::StreamArgs;
using cuda::StreamOutput;

// Hands out aligned stretches of a block; without one it only measures.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <typename T>
  void take(T*& to, int64_t count) {
    to = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += cuda::round_up(count * static_cast<int64_t>(sizeof(T)), 256);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

cuda::AttentionShape shape_of(int64_t query_heads, int64_t kv_heads, int64_t head_dim) {
  return {to_int(query_heads), to_int(kv_heads), to_int(head_dim)};
}
// Of one sequence in a decode step.
int most_rows(const Batch& batch) {
  return to_int(std::min<int64_t>(kMaxDecodeRows, batch.rows - batch.sequences + 1));
}
cuda::AttentionBatch batch_of(const Batch& batch) {
  return {.row_sequence = batch.row_sequence,
          .row_begin = batch.row_begin,
          .context_length = batch.context_length,
          .page_table = batch.page_table,
          .page_table_stride = batch.page_table_stride,
          .rows = to_int(batch.rows),
          .sequences = to_int(batch.sequences)};
}
cuda::PagedCache cache_of(const KvLayer& kv) {
  CHECK(kv.key_format == KvFormat::kBF16 && kv.value_format == KvFormat::kBF16,
        "the GPU caches keys and values as bf16");
  return {kv.keys, kv.values, kv.key_page_bytes};
}

}  // namespace

template <typename Arena>
void CudaOps::lay_out(Arena& arena) {
  const OpsLimits& l = limits_;
  const int64_t logits_rows = std::max<int64_t>(l.logits_rows, 1);
  const int64_t rows = std::max(l.rows, logits_rows), pairs = rows * l.top_k;
  arena.take(scratch_.normed, rows * l.widest_input);
  arena.take(scratch_.router_logits, rows * (l.experts + 1));
  arena.take(scratch_.route_words.logits, l.experts + 1);
  arena.take(scratch_.route_words.chosen, l.top_k + 1);
  arena.take(scratch_.pairs, pairs);
  // Few rows have more, smaller blocks than many.
  const int64_t few = std::min<int64_t>(rows, cuda::kFewRows);
  arena.take(scratch_.blocks,
             std::max(cuda::most_blocks(rows, l.experts, l.top_k, cuda::block_rows(rows)),
                      cuda::most_blocks(few, l.experts, l.top_k, cuda::block_rows(few))));
  arena.take(scratch_.block_count, 1);
  arena.take(scratch_.claims, 2);
  arena.take(scratch_.arrived, 1);
  arena.take(scratch_.partials,
             cuda::kWideSlices * std::min<int64_t>(rows, cuda::kMostWideRows) * l.widest_input);
  arena.take(scratch_.net_words, cuda::kNetWords);
  arena.take(scratch_.net_mixed, std::max(l.value_heads, 2 * l.query_heads));
  // Not in codes, where rows are that a net reads.
  arena.take(scratch_.mixed_codes, cuda::kMostNetRows * cuda::coded_row_bytes(l.widest_input));
  // Of a row all that the mixer takes in: its channels, as many gates at most, two numbers a head;
  // or queries, their gates, keys and values.
  arena.take(scratch_.arrivals, std::max(cuda::kMostNetRows * (l.delta_channels + l.value_heads),
                                         (l.query_heads + l.kv_heads) * l.head_dim));
  arena.take(scratch_.expert_outputs, l.top_k > 0 ? (pairs + rows) * l.widest_input : 0);
  arena.take(
      scratch_.codes,
      std::max(rows * cuda::coded_row_bytes(l.widest_input),
               (pairs + rows) * cuda::coded_row_bytes(std::max(l.expert_width, l.shared_width))));
  arena.take(scratch_.readers, l.sequences * l.key_heads);
  arena.take(scratch_.mixed, (rows + 16 * l.sequences) * l.delta_channels);
  arena.take(scratch_.mixed_gates, (rows + 16 * l.sequences) * 2 * l.value_heads);
  arena.take(scratch_.edited_logits, logits_rows * l.widest_output);
  arena.take(scratch_.sample_parts, logits_rows * cuda::kSampleParts);
  const cuda::AttentionShape shape = shape_of(l.query_heads, l.kv_heads, l.head_dim);
  if (cuda::can_split(shape))
    arena.take(scratch_.attention_partials,
               cuda::split_partial_floats(shape, l.cache_positions, l.sequences, l.decode_rows));
}

int64_t CudaOps::scratch_bytes(const OpsLimits& limits) const {
  CudaOps other(device_);
  other.limits_ = limits;
  Arena measure(nullptr);
  other.lay_out(measure);
  return measure.used();
}

Status CudaOps::reserve(const OpsLimits& limits) {
  limits_ = limits;
  Arena measure(nullptr);
  lay_out(measure);
  memory_ = Buffer();
  TRY_ASSIGN(memory_, device_->allocate(measure.used()));
  Arena arena(memory_.data());
  lay_out(arena);
  device_->zero(memory_.data(), measure.used());  // counters begin at zero
  return {};
}

void CudaOps::product(const StreamArgs& args) {
  StreamArgs job = args;
  job.codes = scratch_.codes;
  job.claims = scratch_.claims;
  job.partials = scratch_.partials;
  job.partial_outputs = limits_.widest_input;
  cuda::stream_product(stream(), gpu(), job);
}

// RMSNorm of x's rows into scratch, and their codes where a matrix of `job` wants them.
void CudaOps::norm_rows_of(StreamArgs& job, const TensorView& x, const TensorView& weight,
                           float epsilon) {
  const int64_t width = x.dim(1);
  CHECK(width <= limits_.widest_input, "rows of ", width);
  cuda::NormRows norm{.x = x.data_as<float>(),
                      .x_stride = x.stride(0),
                      .weight = weight.data_as<float>(),
                      .epsilon = epsilon,
                      .out = scratch_.normed,
                      .out_stride = width,
                      .rows = to_int(x.dim(0)),
                      .width = to_int(width)};
  if (cuda::has_coded(job) && cuda::can_code(norm)) {
    norm.codes = scratch_.codes;
    norm.halves = job.halves;
    job.has_codes = true;
  }
  cuda::norm_rows(stream(), norm);
}

void CudaOps::embed(const EmbedArgs& args) {
  CHECK(args.table.format == WeightFormat::kBF16, "embedding table of ",
        weight_format_name(args.table.format));
  const auto ints = [](const TensorView& view) {
    return view.defined() ? view.data_as<int32_t>() : nullptr;
  };
  cuda::embed_rows(stream(), {.tokens = args.batch.tokens,
                              .choices = ints(args.chosen.choices),
                              .ids = ints(args.chosen.ids),
                              .embedding_index = args.batch.embedding_index,
                              .embeddings = args.batch.embeddings.defined()
                                                ? args.batch.embeddings.data_as<float>()
                                                : nullptr,
                              .table = cuda::stack_of(args.table),
                              .out = args.out.data_as<float>(),
                              .rows = to_int(args.batch.rows),
                              .hidden = to_int(args.out.dim(1))});
}

// The product of rows that norm_rows_of is to leave in scratch.
StreamArgs CudaOps::normed_product(const NormLinearArgs& args) const {
  const int64_t hidden = args.x.dim(1);
  StreamArgs job = dense(scratch_.normed, hidden, hidden, args.x.dim(0));
  job.out = args.out.data();
  job.out_stride = args.out.stride(0);
  job.output = args.out.dtype() == DType::kF32 ? StreamOutput::kF32 : StreamOutput::kBF16;
  job.codes = scratch_.codes;
  CHECK(args.w.size() <= StreamArgs::kMaxStacks, args.w.size(), " matrices side by side");
  int64_t column = 0;
  for (const WeightMatrix* w : args.w) {
    CHECK(w->k == hidden, "projection of ", w->k, " inputs on ", hidden);
    job.w[job.stacks++] = cuda::stack_of(*w, column);
    column += w->n;
  }
  CHECK(column == args.out.dim(1), "outputs ", column, " into ", args.out.dim(1));
  return job;
}

void CudaOps::norm_linear(const NormLinearArgs& args) {
  StreamArgs job = normed_product(args);
  job.halves = cuda::wants_halves(gpu(), job);
  norm_rows_of(job, args.x, args.norm, args.epsilon);
  product(job);
}

void CudaOps::linear_add(const LinearAddArgs& args) { add_product(args, false); }

StreamArgs CudaOps::adding_product(const LinearAddArgs& args) const {
  StreamArgs job = dense(bf16(args.x), args.x.stride(0), args.w.k, args.x.dim(0));
  job.w[job.stacks++] = cuda::stack_of(args.w);
  job.codes = scratch_.codes;
  job.out = args.partial.data();
  job.out_stride = args.partial.stride(0);
  job.output = StreamOutput::kF32;
  if (args.residual.defined()) {
    job.output = StreamOutput::kAddF32;
    job.residual = args.residual.data_as<float>();
    job.residual_stride = args.residual.stride(0);
  }
  return job;
}

bool CudaOps::wants_halves(const LinearAddArgs& args) const {
  return cuda::wants_halves(gpu(), adding_product(args));
}

void CudaOps::add_product(const LinearAddArgs& args, bool has_codes) {
  StreamArgs job = adding_product(args);
  job.has_codes = has_codes;
  job.halves = cuda::wants_halves(gpu(), job);
  product(job);
}

void CudaOps::add_residual(const AddResidualArgs& args) {
  cuda::add_values(stream(), args.partial.data_as<float>(), args.residual.data_as<float>(),
                   args.partial.elements());
}

cuda::DeltaArgs CudaOps::delta_args(const DeltaMixArgs& args) const {
  cuda::DeltaArgs delta{.conv = args.conv.data_as<float>(),
                        .a_log = args.a_log.data_as<float>(),
                        .dt_bias = args.dt_bias.data_as<float>(),
                        .norm = args.norm.data_as<float>(),
                        .epsilon = args.epsilon,
                        .key_heads = to_int(args.key_heads),
                        .value_heads = to_int(args.value_heads),
                        .key_dim = to_int(args.key_dim),
                        .value_dim = to_int(args.value_dim),
                        .sharers = to_int(args.value_heads / args.key_heads),
                        .state = args.state.state.data_as<float>(),
                        .window = bf16(args.state.window),
                        .tape = bf16(args.state.tape),
                        .gates = args.state.gates.data_as<float>(),
                        .tape_rows = to_int(limits_.decode_rows),
                        .readers = scratch_.readers,
                        .mixed = scratch_.mixed,
                        .mixed_gates = scratch_.mixed_gates};
  return delta;
}

void CudaOps::delta_mix(const DeltaMixArgs& args) { mix(args, nullptr, true); }

cuda::DeltaArgs CudaOps::mix_args(const DeltaMixArgs& args) const {
  cuda::DeltaArgs delta = delta_args(args);
  delta.slot = args.batch.slot;
  delta.accepted = args.batch.accepted;
  delta.row_begin = args.batch.row_begin;
  delta.sequences = to_int(args.batch.sequences);
  delta.most_rows = most_rows(args.batch);
  delta.in = bf16(args.in);
  delta.in_stride = args.in.stride(0);
  delta.out = bf16(args.out);
  delta.out_stride = args.out.stride(0);
  return delta;
}

// True when the rows are coded, as the next product wants them.
bool CudaOps::mix(const DeltaMixArgs& args, const LinearAddArgs* next, bool runs) {
  cuda::DeltaArgs delta = mix_args(args);
  if (args.batch.phase == Phase::kPrefill) {
    if (runs) cuda::delta_prefill(stream(), delta);
    return false;
  }
  const bool codes = next != nullptr && cuda::is_coded(next->w.format) && cuda::can_code(delta);
  if (codes) delta.codes = scratch_.codes, delta.halves = wants_halves(*next);
  if (runs) cuda::delta_decode(stream(), delta);
  return codes;
}

// In one kernel for few rows of one sequence. Otherwise as the stages in turn; the rows between the
// last two are coded by the kernel that makes them.
void CudaOps::delta_net(const DeltaNetArgs& args) {
  if (args.stages.only < 0 && args.mix.batch.phase == Phase::kDecode && fused_delta_net(args))
    return;
  if (args.stages.runs(0)) norm_linear(args.in);
  const bool coded = mix(args.mix, &args.out, args.stages.runs(1));
  if (args.stages.runs(2)) add_product(args.out, coded);
}

cuda::NetProducts CudaOps::net_products(const NormLinearArgs& in, const LinearAddArgs& out,
                                        NextWeights next) const {
  return {.in = normed_product(in),
          .out = adding_product(out),
          .next = prefetch_of({}, next),
          .words = scratch_.net_words,
          .arrivals = scratch_.arrivals,
          .arrival_pairs = to_int(in.out.dim(1) / 2),
          .mixed = scratch_.net_mixed};
}

bool CudaOps::fused_delta_net(const DeltaNetArgs& args) {
  cuda::DeltaNet net{net_products(args.in, args.out, args.next), mix_args(args.mix)};
  if (cuda::is_coded(args.out.w.format)) net.out.codes = net.mix.codes = scratch_.mixed_codes;
  if (args.in.x.stride(0) % 4 != 0 || !cuda::can_fuse(gpu(), net)) return false;
  norm_net(net, args.in);
  cuda::delta_net(stream(), gpu(), net);
  return true;
}

// Leaves the normalising of rows to the kernel, or has it done before.
void CudaOps::norm_net(cuda::NetProducts& net, const NormLinearArgs& args) {
  const TensorView& x = args.x;
  if (cuda::can_norm(net, x.stride(0))) {
    net.norm_x = x.data_as<float>();
    net.norm_stride = x.stride(0);
    net.norm_weight = args.norm.data_as<float>();
    net.epsilon = args.epsilon;
    return;
  }
  norm_rows_of(net.in, x, args.norm, args.epsilon);
  CHECK(net.in.has_codes || !cuda::has_coded(net.in), "rows of ", net.in.k, " without codes");
}

// As much as the cache may be expected to keep until it is read.
cuda::Prefetch CudaOps::prefetch_of(std::initializer_list<const WeightMatrix*> first,
                                    NextWeights next) const {
  cuda::Prefetch list;
  int64_t left = gpu().cache_bytes * 2 / 5;
  const auto add = [&](const WeightMatrix* w) {
    if (list.count == cuda::kMostPrefetched || w->layout != cuda::kTiledLayout || w->count != 1)
      return;
    const int64_t bytes = std::min(w->values.dim(1), left) / 16 * 16;
    if (bytes == 0) return;
    list.from[list.count] = reinterpret_cast<const uint8_t*>(w->values.data());
    list.bytes[list.count++] = to_int(bytes);
    left -= bytes;
  };
  for (const WeightMatrix* w : first) add(w);
  for (const WeightMatrix* w : next) add(w);
  return list;
}

void CudaOps::fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) {
  cuda::DeltaArgs delta = delta_args(args);
  delta.fold_slot = static_cast<int32_t>(slot);
  delta.fold_accepted = static_cast<int32_t>(accepted);
  delta.sequences = 1;
  cuda::delta_decode(stream(), delta);
}

cuda::PrepareArgs CudaOps::prepare_args(const AttentionPrepareArgs& args) const {
  return {.shape = shape_of(args.query_heads, args.kv_heads, args.head_dim),
          .batch = batch_of(args.batch),
          .cache = cache_of(args.kv),
          .in = bf16(args.in),
          .in_stride = args.in.stride(0),
          .q_norm = args.q_norm.data_as<float>(),
          .k_norm = args.k_norm.data_as<float>(),
          .epsilon = args.epsilon,
          .rotary_dim = to_int(args.rotary_dim),
          .inverse_frequency = args.inverse_frequency.data_as<float>(),
          .axis = args.axis,
          .positions = args.batch.positions,
          .position_delta = args.batch.position_delta,
          .q = bf16(args.q),
          .q_stride = args.q.stride(0)};
}

void CudaOps::attention_prepare(const AttentionPrepareArgs& args) {
  cuda::attention_prepare(stream(), prepare_args(args));
}

void CudaOps::attention(const AttentionArgs& args) { attend(args, nullptr, true); }

cuda::AttendArgs CudaOps::attend_args(const AttentionArgs& args) const {
  return {.shape = shape_of(args.query_heads, args.kv_heads, args.head_dim),
          .batch = batch_of(args.batch),
          .cache = cache_of(args.kv),
          .q = bf16(args.q),
          .q_stride = args.q.stride(0),
          .in = bf16(args.in),
          .in_stride = args.in.stride(0),
          .out = bf16(args.out),
          .out_stride = args.out.stride(0),
          .partials = scratch_.attention_partials,
          .most_rows = most_rows(args.batch),
          .window = to_int(args.window)};
}

// True when the rows are coded, as the next product wants them.
bool CudaOps::attend(const AttentionArgs& args, const LinearAddArgs* next, bool runs) {
  cuda::AttendArgs attend = attend_args(args);
  if (args.batch.phase != Phase::kDecode || args.window > 0 || !cuda::can_split(attend.shape)) {
    if (runs) cuda::attend_plain(stream(), attend);
    return false;
  }
  const bool codes = next != nullptr && cuda::is_coded(next->w.format);
  if (codes) attend.codes = scratch_.codes, attend.halves = wants_halves(*next);
  if (runs) cuda::attend_split(stream(), gpu(), attend);
  return codes;
}

// In one kernel for one row behind a short context.
void CudaOps::attention_net(const AttentionNetArgs& args) {
  const Batch& batch = args.prepare.batch;
  const bool decodes = batch.phase == Phase::kDecode;
  if (args.stages.only < 0 && decodes && batch.is_short && fused_attention_net(args)) return;
  if (args.stages.runs(0)) norm_linear(args.in);
  if (args.stages.runs(1)) {
    cuda::PrepareArgs prepare = prepare_args(args.prepare);
    if (decodes) prepare.next = prefetch_of({&args.out.w}, args.next);
    cuda::attention_prepare(stream(), prepare);
  }
  const bool coded = attend(args.attention, &args.out, args.stages.runs(2));
  if (args.stages.runs(3)) add_product(args.out, coded);
}

bool CudaOps::fused_attention_net(const AttentionNetArgs& args) {
  static_assert(kShortContext == cuda::kMostNetPositions);
  cuda::AttentionNet net{net_products(args.in, args.out, args.next), prepare_args(args.prepare),
                         attend_args(args.attention)};
  if (cuda::is_coded(args.out.w.format)) net.out.codes = net.attend.codes = scratch_.mixed_codes;
  if (args.in.x.stride(0) % 4 != 0 || !cuda::can_fuse(gpu(), net)) return false;
  norm_net(net, args.in);
  cuda::attention_net(stream(), gpu(), net);
  return true;
}

void CudaOps::mlp_up(const MlpUpArgs& args) {
  const int64_t hidden = args.x.dim(1);
  StreamArgs job = dense(scratch_.normed, hidden, hidden, args.x.dim(0));
  job.w[0] = cuda::stack_of(args.gate);
  job.w[1] = cuda::stack_of(args.up);
  job.stacks = 2;
  job.out = bf16(args.out);
  job.out_stride = args.out.stride(0);
  job.output = StreamOutput::kGatedBF16;
  job.halves = cuda::wants_halves(gpu(), job);
  norm_rows_of(job, args.x, args.norm, args.epsilon);
  product(job);
}

void CudaOps::final_norm(const FinalNormArgs& args) {
  cuda::norm_rows(stream(), {.x = args.x.data_as<float>(),
                             .x_stride = args.x.stride(0),
                             .weight = args.norm.data_as<float>(),
                             .epsilon = args.epsilon,
                             .out = bf16(args.out),
                             .out_stride = args.out.stride(0),
                             .rows = to_int(args.x.dim(0)),
                             .width = to_int(args.x.dim(1))});
}

void CudaOps::logits(const LogitsArgs& args) {
  StreamArgs job =
      dense(bf16(args.hidden), args.hidden.stride(0), args.head.k, args.batch.logits_count);
  job.x_rows = args.batch.logits_rows;
  job.w[job.stacks++] = cuda::stack_of(args.head);
  job.out = args.out.data();
  job.out_stride = args.out.stride(0);
  job.output = StreamOutput::kF32;
  product(job);
}

void CudaOps::mtp_combine(const MtpCombineArgs& args) {
  const int64_t m = args.out.dim(0), hidden = args.out.dim(1);
  CHECK(2 * hidden <= limits_.widest_input, "rows of ", 2 * hidden);
  cuda::norm_rows(stream(), {.x = args.embedding.data_as<float>(),
                             .x_stride = args.embedding.stride(0),
                             .weight = args.embedding_norm.data_as<float>(),
                             .epsilon = args.epsilon,
                             .out = scratch_.normed,
                             .out_stride = 2 * hidden,
                             .rows = to_int(m),
                             .width = to_int(hidden)});
  cuda::norm_rows(stream(), {.x_bf16 = bf16(args.hidden),
                             .x_stride = args.hidden.stride(0),
                             .x_rows = args.hidden_rows,
                             .weight = args.hidden_norm.data_as<float>(),
                             .epsilon = args.epsilon,
                             .out = scratch_.normed + hidden,
                             .out_stride = 2 * hidden,
                             .rows = to_int(m),
                             .width = to_int(hidden)});
  StreamArgs job = dense(scratch_.normed, 2 * hidden, 2 * hidden, m);
  job.w[job.stacks++] = cuda::stack_of(args.fc);
  job.out = args.out.data();
  job.out_stride = args.out.stride(0);
  job.output = StreamOutput::kF32;
  product(job);
}

void CudaOps::copy(const CopyArgs& args) {
  CHECK(args.from.bytes() == args.to.bytes(), "copy between different sizes");
  cuda::copy_bytes(stream(), args.from.data(), args.to.data(), args.from.bytes());
}

void CudaOps::sample(const SampleArgs& args) {
  cuda::sample_rows(stream(), {.logits = args.logits.data_as<float>(),
                               .stride = args.logits.stride(0),
                               .rows = to_int(args.logits.dim(0)),
                               .vocab = to_int(args.logits.dim(1)),
                               .vocab_limit = to_int(args.vocab_limit),
                               .parameters = args.rows,
                               .edits = args.edits,
                               .edit_begin = args.edit_begin,
                               .masks = args.masks,
                               .token = args.token.data_as<int32_t>(),
                               .logprob = args.logprob.data_as<float>(),
                               .top_token = args.top_token.data_as<int32_t>(),
                               .top_logprob = args.top_logprob.data_as<float>(),
                               .edited = scratch_.edited_logits,
                               .parts = scratch_.sample_parts});
}

}  // namespace pewter
