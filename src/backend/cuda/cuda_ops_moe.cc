// The mixture of experts of CudaOps: router, routing and grouping, the experts' products.
#include "backend/cuda/common/rows.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/kernel_arguments.h"
#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/router.h"

namespace pewter {

using cuda::StreamArgs;
using cuda::StreamOutput;

cuda::RouteRows CudaOps::router_logits(const RouteArgs& args, bool wants_codes, bool runs,
                                       bool& has_codes) {
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1), experts = args.router.n;
  cuda::NormRows norm{.x = args.x.data_as<float>(),
                      .x_stride = args.x.stride(0),
                      .weight = args.norm.data_as<float>(),
                      .epsilon = args.epsilon,
                      .out = bf16(args.normed),
                      .out_stride = args.normed.stride(0),
                      .rows = to_int(m),
                      .width = to_int(hidden)};
  has_codes = wants_codes && cuda::can_code(norm);
  uint8_t* const codes = has_codes ? scratch_.codes : nullptr;
  const bool own_kernel = cuda::can_route_rows(hidden);
  const bool fused = own_kernel && cuda::can_norm(m, hidden, args.x.stride(0));
  if (!fused && runs) {
    norm.codes = codes;
    cuda::norm_rows(stream(), norm);
  }
  if (!runs) {
    // Logits are those of the last time.
  } else if (own_kernel) {
    cuda::RouterProduct job{
        .w = {cuda::stack_of(args.router), cuda::stack_of(args.shared_gate, experts)},
        .k = to_int(hidden),
        .rows = to_int(m),
        .x = bf16(args.normed),
        .x_stride = args.normed.stride(0),
        .out = scratch_.router_logits,
        .out_stride = experts + 1};
    if (fused) {
      job.norm_x = norm.x;
      job.norm_stride = norm.x_stride;
      job.norm_weight = norm.weight;
      job.epsilon = args.epsilon;
      job.codes = codes;
    }
    cuda::router_product(stream(), job);
  } else {  // rows that need padding
    StreamArgs job = dense(bf16(args.normed), args.normed.stride(0), hidden, m);
    job.w[0] = cuda::stack_of(args.router);
    job.w[1] = cuda::stack_of(args.shared_gate, experts);
    job.stacks = 2;
    job.out = scratch_.router_logits;
    job.out_stride = experts + 1;
    job.output = StreamOutput::kF32;
    product(job);
  }
  return {.logits = scratch_.router_logits,
          .expert = args.expert.data_as<int32_t>(),
          .weight = args.weight.data_as<float>(),
          .shared_weight = args.shared_weight.data_as<float>(),
          .rows = to_int(m),
          .experts = to_int(experts),
          .top_k = to_int(args.expert.dim(1))};
}

void CudaOps::route(const RouteArgs& args) {
  bool coded = false;
  cuda::route_rows(stream(), router_logits(args, false, true, coded));
}

cuda::GroupPairs CudaOps::grouping(const TensorView& expert, int64_t experts) const {
  const int64_t m = expert.dim(0);
  return {.expert = expert.data_as<int32_t>(),
          .rows = to_int(m),
          .experts = to_int(experts),
          .top_k = to_int(expert.dim(1)),
          .capacity = cuda::block_rows(m),
          .pairs = scratch_.pairs,
          .blocks = scratch_.blocks,
          .block_count = scratch_.block_count,
          .arrived = scratch_.arrived};
}

cuda::Grouping CudaOps::groups(const TensorView& expert, int64_t experts) const {
  const int64_t m = expert.dim(0), top_k = expert.dim(1);
  return {.rows = to_int(m),
          .top_k = to_int(top_k),
          .blocks = scratch_.blocks,
          .block_count = scratch_.block_count,
          .pairs = scratch_.pairs,
          .max_blocks = to_int(cuda::most_blocks(m, experts, top_k, cuda::block_rows(m)))};
}

cuda::ExpertsUp CudaOps::up_products(const ExpertsUpArgs& args, bool has_codes,
                                     const cuda::RouteRows& route) const {
  return {.groups = groups(args.expert, args.gate.count),
          .route = route,
          .grouping = grouping(args.expert, args.gate.count),
          .w = {cuda::stack_of(args.gate), cuda::stack_of(args.up)},
          .shared = {cuda::stack_of(args.shared_gate), cuda::stack_of(args.shared_up)},
          .x = bf16(args.normed),
          .x_stride = args.normed.stride(0),
          .k = to_int(args.gate.k),
          .out = bf16(args.hidden),
          .out_stride = args.hidden.dim(2),
          .shared_out = bf16(args.shared_hidden),
          .shared_stride = args.shared_hidden.stride(0),
          .codes = scratch_.codes,
          .has_codes = has_codes};
}

cuda::ExpertsDown CudaOps::down_products(const ExpertsDownAddArgs& args,
                                         const cuda::RouteRows& route) const {
  const int64_t hidden = args.partial.dim(1);
  CHECK(args.partial.stride(0) == hidden, "partial sums with gaps");
  CHECK(!args.residual.defined() || args.residual.stride(0) == hidden, "residuals with gaps");
  return {.groups = groups(args.expert, args.down.count),
          .route = route,
          .w = cuda::stack_of(args.down),
          .shared = cuda::stack_of(args.shared_down),
          .x = bf16(args.hidden),
          .x_stride = args.hidden.dim(2),
          .k = to_int(args.down.k),
          .shared_x = bf16(args.shared_hidden),
          .shared_x_stride = args.shared_hidden.stride(0),
          .shared_k = to_int(args.shared_down.k),
          .weight = args.weight.data_as<float>(),
          .shared_weight = args.shared_weight.data_as<float>(),
          .partial = args.partial.data_as<float>(),
          .residual = args.residual.defined() ? args.residual.data_as<float>() : nullptr,
          .hidden = to_int(hidden),
          .codes = scratch_.codes,
          .outputs = scratch_.expert_outputs};
}

void CudaOps::experts_up(const ExpertsUpArgs& args) {
  cuda::group_pairs(stream(), grouping(args.expert, args.gate.count));
  cuda::experts_up(stream(), gpu(), up_products(args, false));
}

void CudaOps::experts_down_add(const ExpertsDownAddArgs& args) {
  cuda::group_pairs(stream(), grouping(args.expert, args.down.count));
  cuda::experts_down(stream(), gpu(), down_products(args));
}

// As the stages in turn, with one grouping for both products.
void CudaOps::moe(const MoeArgs& args) {
  bool coded = false;
  const cuda::RouteRows rows = router_logits(
      args.route, cuda::is_coded(args.up.gate.format) || cuda::is_coded(args.up.shared_gate.format),
      args.stages.runs(0), coded);
  const cuda::GroupPairs pairs = grouping(args.up.expert, args.up.gate.count);
  const bool up_routes = cuda::can_route(rows);
  if (args.stages.runs(0) && !up_routes && !cuda::route_and_group(stream(), rows, pairs)) {
    cuda::route_rows(stream(), rows);
    cuda::group_pairs(stream(), pairs);
  }
  const cuda::RouteRows still = up_routes ? rows : cuda::RouteRows{};
  if (args.stages.runs(1)) cuda::experts_up(stream(), gpu(), up_products(args.up, coded, still));
  if (!args.stages.runs(2)) return;
  cuda::ExpertsDown down = down_products(args.down, still);
  down.has_groups = args.stages.runs(1);
  cuda::experts_down(stream(), gpu(), down);
}

}  // namespace pewter
