// The mixture of experts of CudaOps: router, routing and grouping, the experts' products.
#include "backend/cuda/common/rows.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/kernel_arguments.h"
#include "backend/cuda/linear/coded_rows.h"
#include "backend/cuda/linear/router.h"
#include "backend/cuda/moe/experts_down_few.h"
#include "backend/cuda/moe/experts_up_few.h"

namespace pewter {

using cuda::StreamArgs;
using cuda::StreamOutput;

CudaOps::RouterStep CudaOps::router_step(const RouteArgs& args, bool wants_codes) const {
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1), experts = args.router.n;
  RouterStep step{
      .norm = {.x = args.x.data_as<float>(),
               .x_stride = args.x.stride(0),
               .weight = args.norm.data_as<float>(),
               .epsilon = args.epsilon,
               .out = bf16(args.normed),
               .out_stride = args.normed.stride(0),
               .rows = to_int(m),
               .width = to_int(hidden)},
      .job = {.w = {cuda::stack_of(args.router), cuda::stack_of(args.shared_gate, experts)},
              .k = to_int(hidden),
              .rows = to_int(m),
              .x = bf16(args.normed),
              .x_stride = args.normed.stride(0),
              .out = scratch_.router_logits,
              .out_stride = experts + 1},
      .rows = {.logits = scratch_.router_logits,
               .expert = args.expert.data_as<int32_t>(),
               .weight = args.weight.data_as<float>(),
               .shared_weight = args.shared_weight.data_as<float>(),
               .rows = to_int(m),
               .experts = to_int(experts),
               .top_k = to_int(args.expert.dim(1))}};
  step.coded = wants_codes && cuda::can_code(step.norm);
  step.own_kernel = cuda::can_route_rows(hidden);
  if (step.coded) step.norm.codes = scratch_.codes;
  if (!step.own_kernel || !cuda::can_norm(m, hidden, args.x.stride(0))) return step;
  step.norms = true;
  step.job.norm_x = step.norm.x;
  step.job.norm_stride = step.norm.x_stride;
  step.job.norm_weight = step.norm.weight;
  step.job.epsilon = args.epsilon;
  step.job.codes = step.norm.codes;
  return step;
}

void CudaOps::run_router(const RouterStep& step) {
  if (!step.norms) cuda::norm_rows(stream(), step.norm);
  if (step.own_kernel) return cuda::router_product(stream(), step.job);
  // Rows that need padding.
  StreamArgs job = dense(step.job.x, step.job.x_stride, step.job.k, step.job.rows);
  job.w[0] = step.job.w[0];
  job.w[1] = step.job.w[1];
  job.stacks = 2;
  job.out = step.job.out;
  job.out_stride = step.job.out_stride;
  job.output = StreamOutput::kF32;
  product(job);
}

void CudaOps::route(const RouteArgs& args) {
  const RouterStep step = router_step(args, false);
  run_router(step);
  cuda::route_rows(stream(), step.rows);
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
  RouterStep step = router_step(args.route, cuda::is_coded(args.up.gate.format) ||
                                                cuda::is_coded(args.up.shared_gate.format));
  const cuda::GroupPairs pairs = grouping(args.up.expert, args.up.gate.count);
  const bool up_routes = cuda::can_route(step.rows);
  const cuda::RouteRows still = up_routes ? step.rows : cuda::RouteRows{};
  cuda::ExpertsUp up = up_products(args.up, step.coded, still);
  cuda::ExpertsDown down = down_products(args.down, still);
  down.has_groups = args.stages.runs(1);
  if (args.stages.only < 0 && step.norms && cuda::hears_of_logits(gpu(), up) &&
      cuda::hears_of_choice(down)) {
    step.job.words = up.route.words = down.route.words = scratch_.route_words;
    step.job.chosen = step.rows.top_k + 1;
  }
  if (args.stages.runs(0)) {
    run_router(step);
    if (!up_routes && !cuda::route_and_group(stream(), step.rows, pairs)) {
      cuda::route_rows(stream(), step.rows);
      cuda::group_pairs(stream(), pairs);
    }
  }
  if (args.stages.runs(1)) cuda::experts_up(stream(), gpu(), up);
  if (args.stages.runs(2)) cuda::experts_down(stream(), gpu(), down);
}

}  // namespace pewter
