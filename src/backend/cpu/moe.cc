// The mixture-of-experts stages of the fast path.
//
// Rows are grouped by expert, so an expert that several rows chose is read once. A row's result
// comes from the same inner products in the same order whatever else is in its group, and its
// experts add in slot order: grouping leaves no trace in the bits.

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/panel.h"

namespace pewter {
namespace {

// Rows up to which memory limits the experts.
constexpr int64_t kStreamedRows = 4;

}  // namespace

void CpuOps::route(const RouteArgs& args) {
  const int64_t m = args.x.dim(0);
  for (int64_t first = 0; first < m; first += kRowBlock)
    route_rows(args, first, std::min(m - first, kRowBlock));
}

void CpuOps::route_rows(const RouteArgs& args, int64_t first, int64_t m) {
  const int64_t hidden = args.x.dim(1), experts = args.router.n, top_k = args.expert.dim(1);
  const int64_t stride = experts + 1;  // the router's logits, then the shared expert's gate
  CHECK(experts <= limits_.experts && args.shared_gate.n == 1, experts, " experts, reserved for ",
        limits_.experts);
  // Floats, whatever this machine multiplies: rounded inputs would choose other experts.
  InputForms floats;
  floats.floats = true;
  const InputRows x = make_inputs(m, hidden, floats, [&](int64_t r, float* row) {
    norm_row(args.x[first + r].data_as<float>(), args.norm.data_as<float>(), args.epsilon, hidden,
             row);
    narrow_row(row, args.normed[first + r].data(), args.normed.dtype(), hidden);
  });
  const TensorView all(scratch_.router_logits, DType::kF32, {m, stride});
  std::array<LinearJob, 2> jobs;
  jobs[0] = {.w = &args.router, .x = x, .m = m, .out = out_rows(all, 0, m)};
  jobs[1] = {.w = &args.shared_gate,
             .x = x,
             .m = m,
             .out = scratch_.out_rows,
             .out_offset_bytes = experts * static_cast<int64_t>(sizeof(float))};
  run_linear_jobs(workers_, jobs, scratch_.linear.data());

  workers_.run_if(m, kRowsWorthThreads, [&](int64_t r, int64_t) {
    float* probability = scratch_.router_logits + r * stride;
    args.shared_weight.data_as<float>()[first + r] =
        1.0f / (1.0f + std::exp(-probability[experts]));
    const float total = exponentials_row(probability, experts);
    for (int64_t e = 0; e < experts; ++e) probability[e] /= total;
    auto* chosen = args.expert[first + r].data_as<int32_t>();
    auto* weight = args.weight[first + r].data_as<float>();
    float sum = 0;
    for (int64_t slot = 0; slot < top_k; ++slot) {
      // The first of the largest: ties go to the lower index. Taken ones are marked below any
      // probability.
      const float* best = std::max_element(probability, probability + experts);
      chosen[slot] = static_cast<int32_t>(best - probability);
      sum += weight[slot] = *best;
      probability[chosen[slot]] = -1.0f;
    }
    for (int64_t slot = 0; slot < top_k; ++slot) weight[slot] /= sum;
  });
}

// Counting sort of the block's (row, slot) pairs by expert, stable, into scratch_.pairs; place[p]
// is where pair p went.
void CpuOps::group_by_expert(const TensorView& expert, int64_t first, int64_t m, int64_t experts) {
  const int64_t top_k = expert.dim(1);
  int32_t* begin = scratch_.expert_begin;
  std::fill(begin, begin + experts + 1, 0);
  const auto expert_of = [&](int64_t pair) {
    return expert[first + pair / top_k].data_as<int32_t>()[pair % top_k];
  };
  for (int64_t pair = 0; pair < m * top_k; ++pair) {
    const int32_t e = expert_of(pair);
    CHECK(e >= 0 && e < experts, "expert ", e, " of ", experts);
    ++begin[e];
  }
  int32_t sum = 0;
  for (int64_t e = 0; e <= experts; ++e) sum += std::exchange(begin[e], sum);
  for (int64_t pair = 0; pair < m * top_k; ++pair) {
    const int32_t at = begin[expert_of(pair)]++;
    scratch_.pairs[at] = static_cast<int32_t>(pair);
    scratch_.place[pair] = at;
  }
  // Each begin moved to its end, which is the next one's begin.
  for (int64_t e = experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
}

void CpuOps::experts_up(const ExpertsUpArgs& args) {
  const int64_t m = args.normed.dim(0);
  for (int64_t first = 0; first < m; first += kRowBlock)
    experts_up_rows(args, first, std::min(m - first, kRowBlock));
}

void CpuOps::experts_up_rows(const ExpertsUpArgs& args, int64_t first, int64_t m) {
  const int64_t hidden = args.normed.dim(1), top_k = args.expert.dim(1), experts = args.gate.count;
  const InputForms forms{&args.gate, &args.up, &args.shared_gate, &args.shared_up};
  // The shared expert's rows stand first among the pointers, the pairs in expert order behind them.
  const InputRows x = make_inputs(m, hidden, forms, [&](int64_t r, float* row) {
    widen_row(args.normed[first + r], row, hidden, hidden);
  });
  group_by_expert(args.expert, first, m, experts);
  for (int64_t r = 0; r < m; ++r) scratch_.out_rows[r] = args.shared_hidden[first + r].data();
  for (int64_t at = 0; at < m * top_k; ++at) {
    const int64_t pair = scratch_.pairs[at], row = pair / top_k;
    x.repeat(row, m + at);
    scratch_.out_rows[m + at] = args.hidden[first + row][pair % top_k].data();
  }
  size_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t begin = scratch_.expert_begin[e], rows = scratch_.expert_begin[e + 1] - begin;
    if (rows == 0) continue;
    scratch_.jobs[count++] = {.w = &args.gate,
                              .up = &args.up,
                              .index = e,
                              .x = x.from(m + begin),
                              .m = rows,
                              .out = scratch_.out_rows + m + begin,
                              .dtype = args.hidden.dtype()};
  }
  scratch_.jobs[count++] = {.w = &args.shared_gate,
                            .up = &args.shared_up,
                            .x = x,
                            .m = m,
                            .out = scratch_.out_rows,
                            .dtype = args.shared_hidden.dtype()};
  run_linear_jobs(workers_, std::span(scratch_.jobs, count), scratch_.linear.data());
}

void CpuOps::experts_down_add(const ExpertsDownAddArgs& args) {
  const int64_t m = args.partial.dim(0);
  for (int64_t first = 0; first < m; first += kRowBlock)
    experts_down_rows(args, first, std::min(m - first, kRowBlock));
}

// An item takes kDownColumns outputs of every expert, so a row's experts meet in one worker's cache
// and add there in slot order.
void CpuOps::experts_down_rows(const ExpertsDownAddArgs& args, int64_t first, int64_t m) {
  const int64_t top_k = args.expert.dim(1), experts = args.down.count, hidden = args.partial.dim(1);
  const int64_t width = args.hidden.dim(2), shared_width = args.shared_hidden.dim(1);
  group_by_expert(args.expert, first, m, experts);

  // Input rows: the pairs in expert order, then the shared expert's.
  const int64_t pairs = m * top_k, stride = input_stride(width),
                shared_stride = input_stride(shared_width);
  const InputForms forms{&args.down}, shared_forms{&args.shared_down};
  CHECK(pairs * stride + m * shared_stride <= scratch_.inputs.inputs, m,
        " rows exceed the reserved scratch");
  workers_.run_if(pairs + m, kRowsWorthThreads * top_k, [&](int64_t at, int64_t worker) {
    const bool shared = at >= pairs;
    const int64_t pair = shared ? 0 : scratch_.pairs[at];
    const TensorView from = shared ? args.shared_hidden[first + at - pairs]
                                   : args.hidden[first + pair / top_k][pair % top_k];
    const int64_t k = shared ? shared_width : width;
    const int64_t offset = shared ? pairs * stride + (at - pairs) * shared_stride : at * stride;
    store_input(scratch_.inputs, at, offset, k, shared ? shared_forms : forms,
                scratch_.workers[static_cast<size_t>(worker)].row,
                [&](float* row) { widen_row(from, row, k, k); });
  });
  const InputRows x = scratch_.inputs.rows.only(forms),
                  shared_x = scratch_.inputs.rows.only(shared_forms).from(pairs);

  const int64_t items = (hidden + kDownColumns - 1) / kDownColumns;
  workers_.run(items, [&](int64_t item, int64_t worker) {
    const int64_t begin = item * kDownColumns, end = std::min(begin + kDownColumns, hidden);
    float* results = scratch_.workers[static_cast<size_t>(worker)].down;
    const auto project = [&](const WeightMatrix& w, int64_t index, const InputRows& from,
                             int64_t at, int64_t rows) {
      multiply(w, index, begin, end, from, rows, results + at * kDownColumns, kDownColumns);
    };
    int64_t next = 0;  // the first expert with rows that has not been asked for
    const auto prefetch_next = [&] {
      while (next < experts && scratch_.expert_begin[next] == scratch_.expert_begin[next + 1])
        ++next;
      if (next < experts && args.down.layout == kPanelLayout)
        prefetch_panels(args.down, next, begin, end);
      ++next;
    };
    // Few rows: an expert's share is a few kilobytes, so the next one's comes in meanwhile.
    const bool streams = m <= kStreamedRows;
    if (streams) prefetch_next();
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t at = scratch_.expert_begin[e], rows = scratch_.expert_begin[e + 1] - at;
      if (rows == 0) continue;
      if (streams) prefetch_next();
      project(args.down, e, x.from(at), at, rows);
    }
    project(args.shared_down, 0, shared_x, pairs, m);
    // Addresses by hand: there are as many rows here as the experts have work.
    for (int64_t r = 0; r < m; ++r) {
      const int64_t row = first + r;
      float* sum = args.partial.data_as<float>() + row * args.partial.stride(0) + begin;
      weighted_sum_row({.rows = results,
                        .stride = kDownColumns,
                        .place = scratch_.place + r * top_k,
                        .weight = args.weight.data_as<float>() + row * args.weight.stride(0),
                        .slots = top_k,
                        .last = results + (pairs + r) * kDownColumns,
                        .last_weight = args.shared_weight.data_as<float>()[row]},
                       end - begin, sum);
      if (args.residual.defined())
        add_row(args.residual.data_as<float>() + row * args.residual.stride(0) + begin, sum,
                end - begin);
    }
  });
}

}  // namespace pewter
