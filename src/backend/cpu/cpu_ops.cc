// The plain stages of the fast path: what each projects, and from which rows. Mixture-of-experts
// stages are in moe.cc, kernels in the files their headers name.

#include "backend/cpu/cpu_ops.h"

#include "backend/cpu/embed_token.h"
#include "backend/cpu/kv_plane.h"
#include "backend/cpu/panel.h"

namespace pewter {

int64_t CpuOps::scratch_bytes(const OpsLimits& limits) const {
  Arena measure;
  CpuScratch scratch;
  scratch.lay_out(measure, limits, workers_.count());
  return measure.most() + HostSampler::reserved_bytes(limits.widest_output);
}

Status CpuOps::reserve(const OpsLimits& limits) {
  Arena measure;
  scratch_.lay_out(measure, limits, workers_.count());
  TRY_ASSIGN(memory_, Buffer::host(measure.most()));
  Arena place(memory_.data());
  scratch_.lay_out(place, limits, workers_.count());
  sampler_.reserve(limits.widest_output);
  limits_ = limits;
  return {};
}

std::byte* const* CpuOps::out_rows(const TensorView& out, int64_t first, int64_t m) {
  for (int64_t r = 0; r < m; ++r) scratch_.out_rows[r] = out[first + r].data();
  return scratch_.out_rows;
}

float* const* CpuOps::residual_rows(const TensorView& residual, int64_t first, int64_t m) {
  if (!residual.defined()) return nullptr;
  for (int64_t r = 0; r < m; ++r) scratch_.residual_rows[r] = residual[first + r].data_as<float>();
  return scratch_.residual_rows;
}

void CpuOps::embed(const EmbedArgs& args) {
  const int64_t hidden = args.out.dim(1);
  workers_.run_if(args.batch.rows, kRowsWorthThreads, [&](int64_t r, int64_t) {
    auto* out = args.out[r].data_as<float>();
    const int32_t given =
        args.batch.embedding_index != nullptr ? args.batch.embedding_index[r] : -1;
    if (given >= 0)
      std::memcpy(out, args.batch.embeddings[given].data(),
                  static_cast<size_t>(hidden) * sizeof(float));
    else if (args.table.layout == kPanelLayout)
      decode_panel_row(args.table, 0, embed_token(args, r), out);
    else
      decode_row(args.table, 0, embed_token(args, r), out);
  });
}

void CpuOps::norm_linear(const NormLinearArgs& args) {
  constexpr size_t kMost = 8;
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1);
  CHECK(args.w.size() <= kMost, args.w.size(), " projections in one stage");
  std::array<LinearJob, kMost> jobs;
  InputForms forms;
  for (const WeightMatrix* w : args.w) forms.add(*w);
  for (int64_t first = 0; first < m; first += kRowBlock) {
    const int64_t rows = std::min(m - first, kRowBlock);
    const InputRows x = make_inputs(rows, hidden, forms, [&](int64_t r, float* row) {
      norm_row(args.x[first + r].data_as<float>(), args.norm.data_as<float>(), args.epsilon, hidden,
               row);
    });
    int64_t column = 0;
    size_t count = 0;
    for (const WeightMatrix* w : args.w) {
      CHECK(w->k == hidden, "projection of ", w->k, " inputs on ", hidden);
      jobs[count++] = {.w = w,
                       .x = x,
                       .m = rows,
                       .out = out_rows(args.out, first, rows),
                       .dtype = args.out.dtype(),
                       .out_offset_bytes = column * dtype_bytes(args.out.dtype())};
      column += w->n;
    }
    CHECK(column == args.out.dim(1), "outputs ", column, " into ", args.out.dim(1));
    run_linear_jobs(workers_, std::span(jobs.data(), count), scratch_.linear.data());
  }
}

void CpuOps::linear_add(const LinearAddArgs& args) {
  const int64_t m = args.x.dim(0), k = args.w.k;
  CHECK(args.x.dim(1) == k && args.partial.dim(1) == args.w.n, "projection [", args.w.n, ", ", k,
        "] of ", args.x.dim(1), " inputs into ", args.partial.dim(1));
  for (int64_t first = 0; first < m; first += kRowBlock) {
    const int64_t rows = std::min(m - first, kRowBlock);
    LinearJob job{
        .w = &args.w,
        .x = make_inputs(rows, k, {&args.w},
                         [&](int64_t r, float* row) { widen_row(args.x[first + r], row, k, k); }),
        .m = rows,
        .out = out_rows(args.partial, first, rows),
        .residual = residual_rows(args.residual, first, rows)};
    run_linear_jobs(workers_, std::span(&job, 1), scratch_.linear.data());
  }
}

void CpuOps::add_residual(const AddResidualArgs& args) {
  workers_.run_if(args.residual.dim(0), kRowsWorthThreads, [&](int64_t r, int64_t) {
    add_row(args.residual[r].data_as<float>(), args.partial[r].data_as<float>(),
            args.residual.dim(1));
  });
}

void CpuOps::delta_mix(const DeltaMixArgs& args) {
  const Batch& batch = args.batch;
  workers_.run(batch.sequences * args.key_heads, [&](int64_t item, int64_t worker) {
    const int64_t s = item / args.key_heads;
    const int64_t first = batch.row_begin[s], rows = batch.row_begin[s + 1] - first;
    const DeltaItem part{.args = &args,
                         .slot = batch.slot[s],
                         .key_head = item % args.key_heads,
                         .accepted = batch.accepted[s],
                         .first_row = first,
                         .rows = rows};
    const DeltaScratch& scratch = scratch_.delta[static_cast<size_t>(worker)];
    if (batch.phase == Phase::kPrefill) return delta_prefill(part, scratch);
    CHECK(rows <= kMaxDecodeRows, rows, " rows of one sequence in a decode step");
    delta_decode(part, scratch);
  });
}

void CpuOps::fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) {
  workers_.run(args.key_heads, [&](int64_t key_head, int64_t worker) {
    delta_decode({.args = &args, .slot = slot, .key_head = key_head, .accepted = accepted},
                 scratch_.delta[static_cast<size_t>(worker)]);
  });
}

void CpuOps::attention_prepare(const AttentionPrepareArgs& args) {
  check_kv_bf16(args.kv);
  workers_.run_if(args.batch.rows, 2, [&](int64_t r, int64_t worker) {
    attention_prepare_row(args, r, scratch_.attention[static_cast<size_t>(worker)]);
  });
}

void CpuOps::attention(const AttentionArgs& args) {
  check_kv_bf16(args.kv);
  pewter::attention(workers_, args, scratch_.attention.data(), scratch_.attention_shared);
}

void CpuOps::mlp_up(const MlpUpArgs& args) {
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1);
  for (int64_t first = 0; first < m; first += kRowBlock) {
    const int64_t rows = std::min(m - first, kRowBlock);
    LinearJob job{.w = &args.gate,
                  .up = &args.up,
                  .x = make_inputs(rows, hidden, {&args.gate, &args.up},
                                   [&](int64_t r, float* row) {
                                     norm_row(args.x[first + r].data_as<float>(),
                                              args.norm.data_as<float>(), args.epsilon, hidden,
                                              row);
                                   }),
                  .m = rows,
                  .out = out_rows(args.out, first, rows),
                  .dtype = args.out.dtype()};
    run_linear_jobs(workers_, std::span(&job, 1), scratch_.linear.data());
  }
}

void CpuOps::final_norm(const FinalNormArgs& args) {
  const int64_t hidden = args.x.dim(1);
  workers_.run_if(args.x.dim(0), kRowsWorthThreads, [&](int64_t r, int64_t worker) {
    float* row = scratch_.workers[static_cast<size_t>(worker)].row;
    norm_row(args.x[r].data_as<float>(), args.norm.data_as<float>(), args.epsilon, hidden, row);
    narrow_row(row, args.out[r].data(), args.out.dtype(), hidden);
  });
}

void CpuOps::logits(const LogitsArgs& args) {
  const int64_t m = args.batch.logits_count, hidden = args.hidden.dim(1);
  for (int64_t first = 0; first < m; first += kRowBlock) {
    const int64_t rows = std::min(m - first, kRowBlock);
    LinearJob job{.w = &args.head,
                  .x = make_inputs(rows, hidden, {&args.head},
                                   [&](int64_t r, float* row) {
                                     const int64_t from = args.batch.logits_rows[first + r];
                                     widen_row(args.hidden[from], row, hidden, hidden);
                                   }),
                  .m = rows,
                  .out = out_rows(args.out, first, rows)};
    run_linear_jobs(workers_, std::span(&job, 1), scratch_.linear.data());
  }
}

void CpuOps::mtp_combine(const MtpCombineArgs& args) {
  const int64_t m = args.out.dim(0), hidden = args.out.dim(1);
  CHECK(args.fc.k == 2 * hidden && args.hidden.dim(1) == hidden, "combining rows of ",
        args.hidden.dim(1), " into ", hidden);
  for (int64_t first = 0; first < m; first += kRowBlock) {
    const int64_t rows = std::min(m - first, kRowBlock);
    const auto fill = [&](int64_t r, float* row) {  // the embedding's half first
      norm_row(args.embedding[first + r].data_as<float>(), args.embedding_norm.data_as<float>(),
               args.epsilon, hidden, row);
      widen_row(args.hidden[args.hidden_row(first + r)], row + hidden, hidden, hidden);
      norm_row(row + hidden, args.hidden_norm.data_as<float>(), args.epsilon, hidden, row + hidden);
    };
    LinearJob job{.w = &args.fc,
                  .x = make_inputs(rows, 2 * hidden, {&args.fc}, fill),
                  .m = rows,
                  .out = out_rows(args.out, first, rows)};
    run_linear_jobs(workers_, std::span(&job, 1), scratch_.linear.data());
  }
}

void CpuOps::copy(const CopyArgs& args) {
  CHECK(args.from.bytes() == args.to.bytes(), "copy between different sizes");
  std::memcpy(args.to.data(), args.from.data(), static_cast<size_t>(args.from.bytes()));
}

void CpuOps::sample(const SampleArgs& args) { sampler_.sample(args); }

}  // namespace pewter
