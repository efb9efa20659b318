// Attention over the paged cache.
//
// Split of work: a tile of rows of one sequence × one KV head, with every query head that shares
// it; when there are fewer of those than threads, the splits of their contexts too, in waves whose
// partials fit the scratch. Bytes: keys and values of the tile's context once per KV head.
// Precision: bf16 planes widened to f32; scores, softmax and sums f32; one rounding after the gate.
// A masked position has weight 0 and adds exactly nothing, so a row's bits do not depend on the
// rows beside it. Limits: cache bandwidth in decode, multiply-adds in prefill.

#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kv_plane.h"
#include "backend/cpu/panel_rows.h"
#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

// Vectors up to which memory limits a strip.
constexpr int64_t kStreamedVectors = 16;
// Rows of values asked for ahead of the sums: memory's latency at a core's bandwidth.
constexpr int64_t kRowsAhead = 8;

// One tile of rows and one KV head.
struct Strip {
  const AttentionArgs& args;
  int64_t sequence, first_row, rows, kv_head;
  int64_t d, pd, group;  // pd: d padded; group: query heads per KV head
  int64_t position;      // of the first row

  Strip(const AttentionArgs& a, const AttentionShared::Tile& tile, int64_t head)
      : args(a),
        sequence(tile.sequence),
        first_row(tile.first_row),
        rows(tile.rows),
        kv_head(head),
        d(a.head_dim),
        pd(padded_head(d)),
        group(a.query_heads / a.kv_heads),
        position(a.batch.context_length[sequence] + first_row - a.batch.row_begin[sequence]) {}

  int64_t vectors() const { return rows * group; }
  int64_t visible() const { return position + rows; }  // to the last row
  int64_t splits() const { return (visible() + kSplitTokens - 1) / kSplitTokens; }
  // First position that the row at `row_position` sees.
  int64_t first_seen(int64_t row_position) const {
    return args.window > 0 ? HWY_MAX(int64_t{0}, row_position + 1 - args.window) : 0;
  }
  int64_t first_split() const { return first_seen(position) / kSplitTokens; }
  int64_t page(int64_t index) const {
    return args.batch.page_table[sequence * args.batch.page_table_stride + index];
  }
  // Vector v is query head v % group of row v / group.
  int64_t element(int64_t v) const { return (kv_head * group + v % group) * d; }
  int64_t row(int64_t v) const { return first_row + v / group; }
};

void load_queries(const Strip& strip, const AttentionScratch& s) {
  const bool halves = panel_input_form(WeightFormat::kBF16) == InputForm::kHalves;
  for (int64_t v = 0; v < strip.vectors(); ++v) {
    const auto* from = strip.args.q[strip.row(v)].data_as<BFloat16>() + strip.element(v);
    s.q_halves[v] = from;
    s.q_rows[v] = s.q + v * strip.pd;
    if (halves) continue;
    for (int64_t i = 0; i < strip.d; i += kLanes)
      hn::StoreU(load(from + i, strip.d - i), D(), s.q + v * strip.pd + i);
  }
}

// Scores of one vector, times `scale`, become weights e^(s − largest); those outside [first,
// visible) become 0.
HWY_INLINE void weigh(float* scores, int64_t first, int64_t visible, int64_t count, float scale,
                      float& largest, float& total) {
  V most = hn::Set(D(), -INFINITY), sums = hn::Zero(D());
  const V lowest = most, factor = hn::Set(D(), scale);
  const auto inside = [&](int64_t i) PEWTER_INLINE_LAMBDA {
    const V place = hn::Iota(D(), static_cast<float>(i));
    return hn::And(hn::Lt(place, hn::Set(D(), static_cast<float>(visible))),
                   hn::Ge(place, hn::Set(D(), static_cast<float>(first))));
  };
  for (int64_t i = 0; i < visible; i += kLanes) {
    const V score = hn::Mul(factor, hn::LoadU(D(), scores + i));
    hn::StoreU(score, D(), scores + i);
    most = hn::Max(most, hn::IfThenElse(inside(i), score, lowest));
  }
  most = hn::MaxOfLanes(D(), most);
  for (int64_t i = 0; i < count; i += kLanes) {
    const V weight =
        hn::IfThenElseZero(inside(i), exponential(hn::Sub(hn::LoadU(D(), scores + i), most)));
    hn::StoreU(weight, D(), scores + i);
    sums = hn::Add(sums, weight);
  }
  largest = hn::GetLane(most);
  total = sum(sums);
}

// sums[v] += Σ_t weights[v][t]·values[t] for kVectors vectors and kColumns registers of columns.
// Values are floats, or bf16 that become floats on the way: the same bits.
template <int kVectors, int kColumns, typename T>
HWY_INLINE void add_values(const float* weights, const T* values, int64_t stride, int64_t tokens,
                           int64_t pd, float* sums) {
  V acc[kVectors][kColumns];
  unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
    unroll<kColumns>([&](auto j) PEWTER_INLINE_LAMBDA {
      acc[v][j] = hn::LoadU(D(), sums + v * pd + j * kLanes);
    });
  });
  for (int64_t t = 0; t < tokens; ++t)
    unroll<kColumns>([&](auto j) PEWTER_INLINE_LAMBDA {
      const T* at = values + t * stride + j * kLanes;
      if constexpr (sizeof(T) == 2) __builtin_prefetch(at + kRowsAhead * stride);
      const V value = load(at, kLanes);
      unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
        acc[v][j] = hn::MulAdd(hn::Set(D(), weights[v * kSplitTokens + t]), value, acc[v][j]);
      });
    });
  unroll<kVectors>([&](auto v) PEWTER_INLINE_LAMBDA {
    unroll<kColumns>([&](auto j) PEWTER_INLINE_LAMBDA {
      hn::StoreU(acc[v][j], D(), sums + v * pd + j * kLanes);
    });
  });
}

// All columns of a page's values. Wide tiles fill the registers; what is left goes in narrow ones.
template <typename T>
HWY_INLINE void add_page(const float* weights, const T* values, int64_t stride, int64_t tokens,
                         int64_t vectors, int64_t columns, int64_t pd, float* sums) {
  constexpr int kMany = HWY_TARGET == HWY_AVX2 ? 4 : 8, kFew = HWY_TARGET == HWY_AVX2 ? 2 : 4;
  int64_t v = 0;
  for (; v + kMany <= vectors; v += kMany)
    for (int64_t c = 0; c < columns; c += 2 * kLanes)
      add_values<kMany, 2>(weights + v * kSplitTokens, values + c, stride, tokens, pd,
                           sums + v * pd + c);
  for (; v + kFew <= vectors; v += kFew)
    for (int64_t c = 0; c < columns; c += 4 * kLanes)
      add_values<kFew, 4>(weights + v * kSplitTokens, values + c, stride, tokens, pd,
                          sums + v * pd + c);
  for (; v < vectors; ++v)
    for (int64_t c = 0; c < columns; c += 4 * kLanes)
      add_values<1, 4>(weights + v * kSplitTokens, values + c, stride, tokens, pd,
                       sums + v * pd + c);
}

// The partial softmax of one split. Queries are in scratch.
void attend_split(const Strip& strip, int64_t split, const AttentionScratch& s,
                  const PartialSoftmax& out) {
  const int64_t begin = split * kSplitTokens, vectors = strip.vectors(), pd = strip.pd;
  const int64_t count = HWY_MIN(strip.visible() - begin, kSplitTokens);
  const bool streams = vectors <= kStreamedVectors;
  const bool halves = panel_input_form(WeightFormat::kBF16) == InputForm::kHalves;
  const auto value_block = [&](int64_t t) {
    return KvPlane::values(strip.args.kv)
        .block(strip.page((begin + t) / kPageTokens), strip.kv_head);
  };
  for (int64_t t = 0; t < count; t += kPageTokens) {
    const int64_t tokens = HWY_MIN(count - t, kPageTokens);
    const BFloat16* keys =
        KvPlane::keys(strip.args.kv).block(strip.page((begin + t) / kPageTokens), strip.kv_head);
    panel_rows({.w = {.format = WeightFormat::kBF16,
                      .k = strip.d,
                      .values = reinterpret_cast<const std::byte*>(keys),
                      .value_stride = kPanelOutputs * strip.d * 2},
                .count = panels_of(tokens),
                .floats = s.q_rows,
                .halves = halves ? s.q_halves : nullptr,
                .m = vectors,
                .out = s.scores + t,
                .out_stride = kSplitTokens});
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(strip.d));
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t position = strip.position + v / strip.group;
    weigh(s.scores + v * kSplitTokens, strip.first_seen(position) - begin,
          HWY_MAX(int64_t{0}, HWY_MIN(position + 1 - begin, count)), count, scale, out.largest[v],
          out.total[v]);
  }
  std::fill(out.sums, out.sums + vectors * pd, 0.0f);
  for (int64_t t = 0; t < count; t += kPageTokens) {
    const BFloat16* values = value_block(t);
    const int64_t tokens = HWY_MIN(count - t, kPageTokens);
    if (streams && strip.d % (4 * kLanes) == 0) {
      add_page(s.scores + t, values, strip.d, tokens, vectors, strip.d, pd, out.sums);
      continue;
    }
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t c = 0; c < pd; c += kLanes)
        hn::StoreU(c < strip.d ? load(values + i * strip.d + c, strip.d - c) : hn::Zero(D()), D(),
                   s.values + i * pd + c);
    add_page<float>(s.scores + t, s.values, pd, tokens, vectors, pd, pd, out.sums);
  }
}

// running ← running and part, which covers later positions. A part without a visible position
// changes nothing.
void merge(const Strip& strip, const PartialSoftmax& part, const PartialSoftmax& running) {
  for (int64_t v = 0; v < strip.vectors(); ++v) {
    if (part.total[v] == 0.0f) continue;
    const float largest = HWY_MAX(running.largest[v], part.largest[v]);
    const float keep = std::exp(running.largest[v] - largest);
    const float take = std::exp(part.largest[v] - largest);
    running.largest[v] = largest;
    running.total[v] = running.total[v] * keep + part.total[v] * take;
    float* to = running.sums + v * strip.pd;
    const float* from = part.sums + v * strip.pd;
    for (int64_t i = 0; i < strip.pd; i += kLanes) {
      const V kept = hn::Mul(hn::LoadU(D(), to + i), hn::Set(D(), keep));
      hn::StoreU(hn::MulAdd(hn::LoadU(D(), from + i), hn::Set(D(), take), kept), D(), to + i);
    }
  }
}

void clear(const Strip& strip, const PartialSoftmax& running) {
  std::fill(running.largest, running.largest + strip.vectors(), -INFINITY);
  std::fill(running.total, running.total + strip.vectors(), 0.0f);
  std::fill(running.sums, running.sums + strip.vectors() * strip.pd, 0.0f);
}

// out = sums / total · sigmoid(gate)
void finish(const Strip& strip, const PartialSoftmax& running) {
  for (int64_t v = 0; v < strip.vectors(); ++v) {
    const auto* gate =
        strip.args.in[strip.row(v)].data_as<BFloat16>() + 2 * strip.element(v) + strip.d;
    auto* out = strip.args.out[strip.row(v)].data_as<BFloat16>() + strip.element(v);
    const V scale = hn::Set(D(), 1.0f / running.total[v]);
    for (int64_t i = 0; i < strip.d; i += kLanes) {
      const V mean = hn::Mul(hn::LoadU(D(), running.sums + v * strip.pd + i), scale);
      store(hn::Mul(mean, sigmoid(load(gate + i, strip.d - i))), out + i, strip.d - i);
    }
  }
}

// A whole strip on one worker.
void attend(const Strip& strip, const AttentionScratch& s) {
  load_queries(strip, s);
  clear(strip, s.running);
  for (int64_t split = strip.first_split(); split < strip.splits(); ++split) {
    attend_split(strip, split, s, s.partial);
    merge(strip, s.partial, s.running);
  }
  finish(strip, s.running);
}

// Few strips with long contexts: their splits go to the workers wave by wave, and between waves the
// partials merge in order, the same order in which attend() merges them.
void attend_in_waves(Workers& workers, const AttentionArgs& args, const AttentionScratch* scratch,
                     const AttentionShared& shared, int64_t strips, int64_t most_splits) {
  const auto strip_at = [&](int64_t i) {
    return Strip(args, shared.tiles[i / args.kv_heads], i % args.kv_heads);
  };
  const int64_t per_strip = shared.in_flight() / strips;
  for (int64_t i = 0; i < strips; ++i) clear(strip_at(i), shared.running[static_cast<size_t>(i)]);
  for (int64_t begin = 0; begin < most_splits; begin += per_strip) {
    workers.run(strips * per_strip, [&](int64_t item, int64_t worker) {
      const Strip strip = strip_at(item / per_strip);
      const int64_t split = begin + item % per_strip;
      if (split < strip.first_split() || split >= strip.splits()) return;
      load_queries(strip, scratch[worker]);
      attend_split(strip, split, scratch[worker], shared.partials[static_cast<size_t>(item)]);
    });
    for (int64_t item = 0; item < strips * per_strip; ++item) {
      const Strip strip = strip_at(item / per_strip);
      const int64_t split = begin + item % per_strip;
      if (split >= strip.first_split() && split < strip.splits())
        merge(strip, shared.partials[static_cast<size_t>(item)],
              shared.running[static_cast<size_t>(item / per_strip)]);
    }
  }
  for (int64_t i = 0; i < strips; ++i) finish(strip_at(i), shared.running[static_cast<size_t>(i)]);
}

void attention(Workers& workers, const AttentionArgs& args, const AttentionScratch* scratch,
               const AttentionShared& shared) {
  const Batch& batch = args.batch;
  int64_t tiles = 0, most_splits = 0;
  for (int64_t s = 0; s < batch.sequences; ++s)
    for (int32_t row = batch.row_begin[s]; row < batch.row_begin[s + 1];) {
      const int32_t rows = HWY_MIN(batch.row_begin[s + 1] - row, static_cast<int32_t>(kRowTile));
      shared.tiles[tiles] = {static_cast<int32_t>(s), row, rows};
      most_splits = std::max(most_splits, Strip(args, shared.tiles[tiles], 0).splits());
      ++tiles;
      row += rows;
    }
  const int64_t strips = tiles * args.kv_heads;
  if (workers.count() > 1 && strips < 2 * workers.count() && strips <= shared.in_flight() &&
      most_splits > 1)
    return attend_in_waves(workers, args, scratch, shared, strips, most_splits);
  workers.run(strips, [&](int64_t item, int64_t worker) {
    attend(Strip(args, shared.tiles[item / args.kv_heads], item % args.kv_heads), scratch[worker]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(attention);
void attention(Workers& workers, const AttentionArgs& args, const AttentionScratch* scratch,
               const AttentionShared& shared) {
  HWY_DYNAMIC_DISPATCH(attention)(workers, args, scratch, shared);
}

namespace {

int64_t vectors_of(const OpsLimits& limits) {
  return kRowTile * limits.query_heads / std::max<int64_t>(limits.kv_heads, 1);
}

PartialSoftmax lay_out_partial(Arena& arena, const OpsLimits& limits) {
  const int64_t vectors = vectors_of(limits);
  PartialSoftmax p;
  p.largest = arena.take<float>(vectors);
  p.total = arena.take<float>(vectors);
  p.sums = arena.take<float>(vectors * padded_head(limits.head_dim));
  return p;
}

}  // namespace

void lay_out_attention(Arena& arena, const OpsLimits& limits, AttentionScratch& scratch) {
  const int64_t vectors = vectors_of(limits), pd = padded_head(limits.head_dim);
  scratch.q = arena.take<float>(vectors * pd);
  scratch.q_rows = arena.take<const float*>(vectors);
  scratch.q_halves = arena.take<const BFloat16*>(vectors);
  scratch.key = arena.take<BFloat16>(limits.head_dim);
  scratch.scores = arena.take<float>(vectors * kSplitTokens);
  scratch.values = arena.take<float>(kPageTokens * pd);
  scratch.angles = arena.take<float>(2 * limits.head_dim);
  scratch.partial = lay_out_partial(arena, limits);
  scratch.running = lay_out_partial(arena, limits);
}

void lay_out_attention_shared(Arena& arena, const OpsLimits& limits, int64_t workers,
                              AttentionShared& shared) {
  shared.tiles = arena.take<AttentionShared::Tile>(limits.rows);
  shared.partials.resize(static_cast<size_t>(std::max<int64_t>(2 * workers, kSplitsInFlight)));
  shared.running.resize(shared.partials.size());
  for (PartialSoftmax& partial : shared.partials) partial = lay_out_partial(arena, limits);
  for (PartialSoftmax& running : shared.running) running = lay_out_partial(arena, limits);
}

}  // namespace pewter
#endif
