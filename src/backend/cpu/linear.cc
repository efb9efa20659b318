#include "backend/cpu/linear.h"

#include "backend/cpu/panel.h"
#include "backend/cpu/rows.h"

namespace pewter {
namespace {

// Outputs an item takes: enough items to keep the workers level, tiles of whole 16s.
int64_t outputs_per_item(int64_t outputs, int64_t workers) {
  const int64_t share = (outputs / (workers * 4) + 15) / 16 * 16;
  return std::clamp<int64_t>(share, 16, kItemOutputs);
}

// Outputs [begin, end) of one job.
void run_item(const LinearJob& job, int64_t begin, int64_t end, const LinearScratch& scratch) {
  const int64_t outputs = end - begin;
  float* results = scratch.results;
  float* upper = results + kItemRows * kItemOutputs;
  for (int64_t r = 0; r < job.m; r += kItemRows) {
    const int64_t rows = std::min(job.m - r, kItemRows);
    multiply(*job.w, job.index, begin, end, job.x.from(r), rows, results, kItemOutputs);
    if (job.up != nullptr)
      multiply(*job.up, job.index, begin, end, job.x.from(r), rows, upper, kItemOutputs);
    finish_rows({.results = results,
                 .up = job.up == nullptr ? nullptr : upper,
                 .stride = kItemOutputs,
                 .rows = rows,
                 .n = outputs,
                 .out = job.out + r,
                 .offset_bytes = job.out_offset_bytes + begin * dtype_bytes(job.dtype),
                 .dtype = job.dtype,
                 .residual = job.residual == nullptr ? nullptr : job.residual + r,
                 .residual_offset = begin});
  }
}

}  // namespace

void multiply(const WeightMatrix& w, int64_t index, int64_t begin, int64_t end, const InputRows& x,
              int64_t m, float* out, int64_t out_stride) {
  if (w.layout == kPanelLayout)
    return panel_rows({.w = panels_from(w, index, begin),
                       .count = panels_of(end - begin),
                       .floats = x.floats,
                       .halves = x.halves,
                       .codes = x.codes,
                       .m = m,
                       .out = out,
                       .out_stride = out_stride});
  dot_rows({.w = rows_of(w, index),
            .begin = begin,
            .end = end,
            .x = x.floats,
            .m = m,
            .out = out,
            .out_stride = out_stride});
}

void run_linear_jobs(Workers& workers, std::span<LinearJob> jobs, const LinearScratch* scratch) {
  int64_t outputs = 0, items = 0;
  for (const LinearJob& job : jobs) outputs += job.w->n;
  const int64_t step = outputs_per_item(outputs, workers.count());
  for (LinearJob& job : jobs) {
    job.first_item = items;
    items += (job.w->n + step - 1) / step;
  }
  workers.run(items, [&](int64_t item, int64_t worker) {
    const auto after =
        std::upper_bound(jobs.begin(), jobs.end(), item,
                         [](int64_t i, const LinearJob& j) { return i < j.first_item; });
    const LinearJob& job = *(after - 1);
    const int64_t begin = (item - job.first_item) * step;
    run_item(job, begin, std::min(begin + step, job.w->n), scratch[worker]);
  });
}

}  // namespace pewter
