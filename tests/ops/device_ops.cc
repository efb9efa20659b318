#include "ops/device_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace pewter::test {
namespace {

constexpr size_t kGuard = 512, kAlignment = 256;
constexpr int64_t kMemory = int64_t{256} << 20;

}  // namespace

DeviceOps::DeviceOps(Backend backend)
    : backend_(std::move(backend)), memory_(backend_.device->allocate(kMemory).value()) {}

std::byte* DeviceOps::Call::place(const void* host, int64_t bytes, Use use) {
  if (host == nullptr) return nullptr;
  const auto size = static_cast<size_t>(bytes);
  const size_t at = (image_.size() + kGuard + kAlignment - 1) / kAlignment * kAlignment;
  image_.resize(at + size + kGuard, std::byte{0xFF});
  CHECK(static_cast<int64_t>(image_.size()) <= memory_.bytes(), "tensors of ", image_.size(),
        " bytes in an op case");
  if (use != Use::kOut && size > 0) std::memcpy(image_.data() + at, host, size);
  if (use != Use::kIn)
    outputs_.push_back({const_cast<std::byte*>(static_cast<const std::byte*>(host)), at, size});
  return memory_.data() + at;
}

TensorView DeviceOps::Call::place(const TensorView& host, Use use) {
  if (!host.defined()) return host;
  int64_t dense = 1;
  for (int axis = host.rank() - 1; axis >= 0; dense *= host.dim(axis--))
    CHECK(host.dim(axis) == 1 || host.stride(axis) == dense, "a tensor with gaps");
  std::byte* const at = place(host.data(), host.bytes(), use);
  switch (host.rank()) {
    case 1:
      return {at, host.dtype(), {host.dim(0)}};
    case 2:
      return {at, host.dtype(), {host.dim(0), host.dim(1)}};
    case 3:
      return {at, host.dtype(), {host.dim(0), host.dim(1), host.dim(2)}};
    default:
      CHECK(host.rank() == 4, "rank ", host.rank());
      return {at, host.dtype(), {host.dim(0), host.dim(1), host.dim(2), host.dim(3)}};
  }
}

Batch DeviceOps::Call::batch(const Batch& host) {
  Batch batch = host;
  const int64_t rows = host.rows, sequences = host.sequences;
  batch.tokens = in(host.tokens, rows);
  batch.embedding_index = in(host.embedding_index, rows);
  batch.embeddings = in(host.embeddings);
  batch.hidden_rows = in(host.hidden_rows, rows);
  batch.positions = in(host.positions, 3 * rows);
  batch.position_delta = in(host.position_delta, sequences);
  batch.row_sequence = in(host.row_sequence, rows);
  batch.row_begin = in(host.row_begin, sequences + 1);
  batch.context_length = in(host.context_length, sequences);
  batch.slot = in(host.slot, sequences);
  batch.accepted = in(host.accepted, sequences);
  batch.page_table = in(host.page_table, sequences * host.page_table_stride);
  batch.logits_rows = in(host.logits_rows, host.logits_count);
  return batch;
}

KvLayer DeviceOps::Call::cache(const KvLayer& host, const Batch& batch, bool is_written) {
  KvLayer kv = host;
  const int32_t* const table = batch.page_table;
  const int64_t pages =
      1 + *std::max_element(table, table + batch.sequences * batch.page_table_stride);
  const Use use = is_written ? Use::kInOut : Use::kIn;
  kv.keys = place(host.keys, pages * host.key_page_bytes, use);
  kv.values = place(host.values, pages * host.value_page_bytes, use);
  return kv;
}

RecurrentLayer DeviceOps::Call::recurrent(const RecurrentLayer& host) {
  return {.state = in_out(host.state),
          .window = in_out(host.window),
          .tape = in_out(host.tape),
          .gates = in_out(host.gates)};
}

DeltaMixArgs DeviceOps::Call::delta(const DeltaMixArgs& args, const Batch& batch) {
  return {.batch = batch,
          .in = in(args.in),
          .conv = in(args.conv),
          .a_log = in(args.a_log),
          .dt_bias = in(args.dt_bias),
          .norm = in(args.norm),
          .epsilon = args.epsilon,
          .key_heads = args.key_heads,
          .value_heads = args.value_heads,
          .key_dim = args.key_dim,
          .value_dim = args.value_dim,
          .state = recurrent(args.state),
          .out = out(args.out)};
}

AttentionPrepareArgs DeviceOps::Call::prepare(const AttentionPrepareArgs& args, const Batch& batch,
                                              const TensorView& in_there) {
  return {.batch = batch,
          .in = in_there,
          .q_norm = in(args.q_norm),
          .k_norm = in(args.k_norm),
          .epsilon = args.epsilon,
          .query_heads = args.query_heads,
          .kv_heads = args.kv_heads,
          .head_dim = args.head_dim,
          .rotary_dim = args.rotary_dim,
          .inverse_frequency = in(args.inverse_frequency),
          .axis = in(args.axis, args.rotary_dim / 2),
          .kv = cache(args.kv, args.batch, true),
          .q = out(args.q)};
}

RouteArgs DeviceOps::Call::routing(const RouteArgs& args) {
  return {.x = in(args.x),
          .norm = in(args.norm),
          .epsilon = args.epsilon,
          .router = args.router,
          .shared_gate = args.shared_gate,
          .normed = out(args.normed),
          .expert = out(args.expert),
          .weight = out(args.weight),
          .shared_weight = out(args.shared_weight)};
}

ExpertsUpArgs DeviceOps::Call::up(const ExpertsUpArgs& args, const TensorView& normed,
                                  const TensorView& expert) {
  return {.normed = normed,
          .expert = expert,
          .gate = args.gate,
          .up = args.up,
          .shared_gate = args.shared_gate,
          .shared_up = args.shared_up,
          .hidden = out(args.hidden),
          .shared_hidden = out(args.shared_hidden)};
}

std::vector<std::byte> DeviceOps::Call::run_once(const std::function<void()>& enqueue) {
  device_.copy_to_device(memory_.data(), image_);
  device_.run_step(this, 0, enqueue);
  std::vector<std::byte> after(image_.size());
  device_.copy_to_host(after, memory_.data());
  return after;
}

void DeviceOps::Call::run(const char* op, const std::function<void()>& enqueue) {
  image_.resize(image_.size() + kGuard, std::byte{0xFF});
  std::vector<std::byte> after = run_once(enqueue);
  EXPECT_TRUE(run_once(enqueue) == after) << op << ": replayed, it leaves other bits";
  device_.forget_steps(this);
  for (const Part& part : outputs_) {
    std::memcpy(part.host, after.data() + part.at, part.bytes);
    std::memcpy(after.data() + part.at, image_.data() + part.at, part.bytes);
  }
  const auto [changed, was] = std::mismatch(after.begin(), after.end(), image_.begin());
  EXPECT_TRUE(changed == after.end()) << op << ": byte " << changed - after.begin() << " of "
                                      << after.size() << ", which is no output, changed";
}

void DeviceOps::embed(const EmbedArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.batch);
  const EmbedArgs there{
      .batch = batch,
      .table = args.table,
      .out = call.out(args.out),
      .chosen = {.choices = call.in(args.chosen.choices), .ids = call.in(args.chosen.ids)}};
  call.run("embed", [&] { backend_.ops->embed(there); });
}

void DeviceOps::norm_linear(const NormLinearArgs& args) {
  Call call(*this);
  const NormLinearArgs there{.x = call.in(args.x),
                             .norm = call.in(args.norm),
                             .epsilon = args.epsilon,
                             .w = args.w,
                             .out = call.out(args.out)};
  call.run("norm_linear", [&] { backend_.ops->norm_linear(there); });
}

void DeviceOps::linear_add(const LinearAddArgs& args) {
  Call call(*this);
  const LinearAddArgs there{.x = call.in(args.x),
                            .w = args.w,
                            .partial = call.out(args.partial),
                            .residual = call.in_out(args.residual)};
  call.run("linear_add", [&] { backend_.ops->linear_add(there); });
}

void DeviceOps::add_residual(const AddResidualArgs& args) {
  Call call(*this);
  const AddResidualArgs there{.partial = call.in(args.partial),
                              .residual = call.in_out(args.residual)};
  call.run("add_residual", [&] { backend_.ops->add_residual(there); });
}

void DeviceOps::delta_mix(const DeltaMixArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.batch);
  const DeltaMixArgs there = call.delta(args, batch);
  call.run("delta_mix", [&] { backend_.ops->delta_mix(there); });
}

void DeviceOps::delta_net(const DeltaNetArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.mix.batch);
  DeltaMixArgs mix = call.delta(args.mix, batch);
  mix.in = call.out(args.in.out);
  const DeltaNetArgs there{.in = {.x = call.in(args.in.x),
                                  .norm = call.in(args.in.norm),
                                  .epsilon = args.in.epsilon,
                                  .w = args.in.w,
                                  .out = mix.in},
                           .mix = mix,
                           .out = {.x = mix.out,
                                   .w = args.out.w,
                                   .partial = call.out(args.out.partial),
                                   .residual = call.in_out(args.out.residual)}};
  call.run("delta_net", [&] { backend_.ops->delta_net(there); });
}

void DeviceOps::fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) {
  Call call(*this);
  const DeltaMixArgs there = call.delta(args, args.batch);
  call.run("fold", [&] { backend_.ops->fold(there, slot, accepted); });
}

void DeviceOps::attention_prepare(const AttentionPrepareArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.batch);
  const AttentionPrepareArgs there = call.prepare(args, batch, call.in(args.in));
  call.run("attention_prepare", [&] { backend_.ops->attention_prepare(there); });
}

void DeviceOps::attention(const AttentionArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.batch);
  const AttentionArgs there{.batch = batch,
                            .q = call.in(args.q),
                            .in = call.in(args.in),
                            .query_heads = args.query_heads,
                            .kv_heads = args.kv_heads,
                            .head_dim = args.head_dim,
                            .kv = call.cache(args.kv, args.batch, false),
                            .out = call.out(args.out),
                            .window = args.window};
  call.run("attention", [&] { backend_.ops->attention(there); });
}

void DeviceOps::attention_net(const AttentionNetArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.prepare.batch);
  const AttentionPrepareArgs& given = args.prepare;
  const AttentionPrepareArgs prepare = call.prepare(given, batch, call.out(args.in.out));
  const AttentionArgs attention{.batch = batch,
                                .q = prepare.q,
                                .in = prepare.in,
                                .query_heads = given.query_heads,
                                .kv_heads = given.kv_heads,
                                .head_dim = given.head_dim,
                                .kv = prepare.kv,
                                .out = call.out(args.attention.out),
                                .window = args.attention.window};
  const AttentionNetArgs there{.in = {.x = call.in(args.in.x),
                                      .norm = call.in(args.in.norm),
                                      .epsilon = args.in.epsilon,
                                      .w = args.in.w,
                                      .out = prepare.in},
                               .prepare = prepare,
                               .attention = attention,
                               .out = {.x = attention.out,
                                       .w = args.out.w,
                                       .partial = call.out(args.out.partial),
                                       .residual = call.in_out(args.out.residual)}};
  call.run("attention_net", [&] { backend_.ops->attention_net(there); });
}

void DeviceOps::route(const RouteArgs& args) {
  Call call(*this);
  const RouteArgs there = call.routing(args);
  call.run("route", [&] { backend_.ops->route(there); });
}

void DeviceOps::experts_up(const ExpertsUpArgs& args) {
  Call call(*this);
  const ExpertsUpArgs there = call.up(args, call.in(args.normed), call.in(args.expert));
  call.run("experts_up", [&] { backend_.ops->experts_up(there); });
}

void DeviceOps::experts_down_add(const ExpertsDownAddArgs& args) {
  Call call(*this);
  const ExpertsDownAddArgs there{.hidden = call.in(args.hidden),
                                 .shared_hidden = call.in(args.shared_hidden),
                                 .expert = call.in(args.expert),
                                 .weight = call.in(args.weight),
                                 .shared_weight = call.in(args.shared_weight),
                                 .down = args.down,
                                 .shared_down = args.shared_down,
                                 .partial = call.out(args.partial),
                                 .residual = call.in_out(args.residual)};
  call.run("experts_down_add", [&] { backend_.ops->experts_down_add(there); });
}

// What one stage leaves and another takes has one place on the device.
void DeviceOps::moe(const MoeArgs& args) {
  Call call(*this);
  const RouteArgs route = call.routing(args.route);
  const ExpertsUpArgs up = call.up(args.up, route.normed, route.expert);
  const MoeArgs there{.route = route,
                      .up = up,
                      .down = {.hidden = up.hidden,
                               .shared_hidden = up.shared_hidden,
                               .expert = route.expert,
                               .weight = route.weight,
                               .shared_weight = route.shared_weight,
                               .down = args.down.down,
                               .shared_down = args.down.shared_down,
                               .partial = call.out(args.down.partial),
                               .residual = call.in_out(args.down.residual)}};
  call.run("moe", [&] { backend_.ops->moe(there); });
}

void DeviceOps::mlp_up(const MlpUpArgs& args) {
  Call call(*this);
  const MlpUpArgs there{.x = call.in(args.x),
                        .norm = call.in(args.norm),
                        .epsilon = args.epsilon,
                        .gate = args.gate,
                        .up = args.up,
                        .out = call.out(args.out)};
  call.run("mlp_up", [&] { backend_.ops->mlp_up(there); });
}

void DeviceOps::final_norm(const FinalNormArgs& args) {
  Call call(*this);
  const FinalNormArgs there{.x = call.in(args.x),
                            .norm = call.in(args.norm),
                            .epsilon = args.epsilon,
                            .out = call.out(args.out)};
  call.run("final_norm", [&] { backend_.ops->final_norm(there); });
}

void DeviceOps::logits(const LogitsArgs& args) {
  Call call(*this);
  const Batch batch = call.batch(args.batch);
  const LogitsArgs there{
      .batch = batch, .hidden = call.in(args.hidden), .head = args.head, .out = call.out(args.out)};
  call.run("logits", [&] { backend_.ops->logits(there); });
}

void DeviceOps::mtp_combine(const MtpCombineArgs& args) {
  Call call(*this);
  const MtpCombineArgs there{.embedding = call.in(args.embedding),
                             .hidden = call.in(args.hidden),
                             .hidden_rows = call.in(args.hidden_rows, args.out.dim(0)),
                             .embedding_norm = call.in(args.embedding_norm),
                             .hidden_norm = call.in(args.hidden_norm),
                             .epsilon = args.epsilon,
                             .fc = args.fc,
                             .out = call.out(args.out)};
  call.run("mtp_combine", [&] { backend_.ops->mtp_combine(there); });
}

void DeviceOps::copy(const CopyArgs& args) {
  Call call(*this);
  const CopyArgs there{.from = call.in(args.from), .to = call.out(args.to)};
  call.run("copy", [&] { backend_.ops->copy(there); });
}

void DeviceOps::sample(const SampleArgs& args) {
  Call call(*this);
  const int64_t rows = args.logits.dim(0), mask_words = (args.logits.dim(1) + 31) / 32;
  const SampleArgs there{.logits = call.in(args.logits),
                         .vocab_limit = args.vocab_limit,
                         .rows = call.in(args.rows, rows),
                         .edits = call.in(args.edits, args.edit_begin[rows]),
                         .edit_begin = call.in(args.edit_begin, rows + 1),
                         .masks = call.in(args.masks, rows * mask_words),
                         .token = call.out(args.token),
                         .logprob = call.out(args.logprob),
                         .top_token = call.out(args.top_token),
                         .top_logprob = call.out(args.top_logprob)};
  call.run("sample", [&] { backend_.ops->sample(there); });
}

}  // namespace pewter::test
