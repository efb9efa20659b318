// Many blocks of threads a row look through its logits once; then one block of 1024 threads a row,
// which has what a greedy choice wants from them, and else makes a few passes over logits that lie
// in L2.
//
// Everything that picks by rank goes through one search (find_rank): candidates have unique 64-bit
// keys, the logit's order above the token's, and histograms of their bytes lead to the key at which
// a running weight, from the largest key down, passes a target. The weight is 1 for "the k-th" and
// the probability for "top-p" and for the draw; probabilities are integers of 2⁻⁴⁰, so sums have no
// order and no rounding.
// Limits: L2 reads of one multiprocessor, about 10 µs a pass over 248,320 logits.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/sampling/sampling.h"
#include "base/rng.h"

namespace pewter::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
constexpr double kMassUnit = 1099511627776.0;  // 2^40
using Key = unsigned long long;
using Mass = unsigned long long;

struct Shared {
  Mass bins[256];
  Mass sums[kWarps];
  Key keys[kWarps];
  Key found;
  Mass before;
  int flag;
};

// Larger keys are better candidates: larger logits, then smaller ids.
__device__ inline Key key_of(float logit, int token) {
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);  // -0 is 0
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(ordered) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(token));
}
// Its logit; -0 has become 0.
__device__ inline float logit_of(Key key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}
__device__ inline int token_of(Key key) {
  return static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

template <typename T, typename Combine>
__device__ inline T block_reduce(T x, T* scratch, const Combine& combine) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = combine(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = scratch[0];
  for (int i = 1; i < kWarps; ++i) x = combine(x, scratch[i]);
  return x;
}
__device__ inline Key block_max(Key x, Shared& s) {
  return block_reduce(x, s.keys, [](Key a, Key b) { return a > b ? a : b; });
}
__device__ inline Mass block_total(Mass x, Shared& s) {
  return block_reduce(x, s.sums, [](Mass a, Mass b) { return a + b; });
}

// The key of the candidate at which the running weight, from the largest key down, first exceeds
// `target`; before: the weight of all above it. weight(token) is 0 for what is no candidate, and
// key(token) its key. The total weight must exceed the target.
template <typename KeyOf, typename WeightOf>
__device__ Key find_rank(int count, Mass target, const KeyOf& key, const WeightOf& weight,
                         Shared& s, Mass& before) {
  Key prefix = 0;
  before = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    __syncthreads();
    if (threadIdx.x < 256) s.bins[threadIdx.x] = 0;
    __syncthreads();
    for (int token = threadIdx.x; token < count; token += kThreads) {
      const Mass w = weight(token);
      if (w == 0) continue;
      const Key k = key(token);
      if (shift < 56 && k >> (shift + 8) != prefix >> (shift + 8)) continue;
      atomicAdd(&s.bins[k >> shift & 255u], w);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = 255;
      while (bin > 0 && before + s.bins[bin] <= target) before += s.bins[bin--];
      s.found = static_cast<Key>(bin);
      s.before = before;
    }
    __syncthreads();
    prefix |= s.found << shift;
    before = s.before;
  }
  return prefix;
}

// The twenty largest logits, in order, by taking the largest below the last one each time a thread
// has given its own best away.
__device__ void write_top(const SampleRows& a, int row, const float* logits, double log_total,
                          Shared& s) {
  Key last = ~Key{0}, mine = 0;
  bool stale = true;
  for (int rank = 0; rank < a.parameters[row].top_logprobs; ++rank) {
    if (stale) {
      mine = 0;
      for (int token = threadIdx.x; token < a.vocab; token += kThreads) {
        const Key k = key_of(logits[token], token);
        if (k < last && k > mine) mine = k;
      }
    }
    const Key best = block_max(mine, s);
    stale = best == mine;
    last = best;
    if (threadIdx.x != 0) continue;
    const int64_t at = static_cast<int64_t>(row) * kTopLogprobs + rank;
    const bool there = best != 0;
    a.top_token[at] = there ? token_of(best) : -1;
    a.top_logprob[at] =
        there ? static_cast<float>(static_cast<double>(logits[token_of(best)]) - log_total)
              : -INFINITY;
  }
}

__device__ inline float edited_logit(float logit, const LogitEdit& edit, const SamplingRow& p) {
  logit += edit.bias;
  if (edit.seen) logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  if (edit.output_count > 0)
    logit -= p.presence_penalty + p.frequency_penalty * static_cast<float>(edit.output_count);
  return logit;
}

// Tokens in the order of their ids, weights from the first on: the one at which they pass target.
template <typename WeightOf>
__device__ int find_in_order(int count, Mass target, const WeightOf& weight, Shared& s) {
  int begin = 0, end = count;
  while (end - begin > 1) {  // the stretch that holds it, cut into a piece a thread each time
    const int piece = (end - begin + kThreads - 1) / kThreads;
    const int from = min(begin + static_cast<int>(threadIdx.x) * piece, end);
    const int to = min(from + piece, end);
    Mass mine = 0;
    for (int token = from; token < to; ++token) mine += weight(token);
    Mass sum = mine;  // inclusive over the warp
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const Mass other = __shfl_up_sync(0xFFFFFFFFu, sum, offset);
      if (threadIdx.x % kWarp >= static_cast<unsigned>(offset)) sum += other;
    }
    __syncthreads();
    if (threadIdx.x % kWarp == kWarp - 1) s.sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    for (int i = 0; i < static_cast<int>(threadIdx.x) / kWarp; ++i) sum += s.sums[i];
    if (sum > target && sum - mine <= target) {  // one thread
      s.found = static_cast<Key>(from) << 32 | static_cast<uint32_t>(to);
      s.before = sum - mine;
    }
    __syncthreads();
    begin = static_cast<int>(s.found >> 32);
    end = static_cast<int>(s.found & 0xFFFFFFFFu);
    target -= s.before;
    __syncthreads();
  }
  return begin;
}

// The first look: a part of a row a block of threads.
constexpr int kScanThreads = 256, kEach = 8, kTogether = kScanThreads * kEach;
static_assert(kSampleParts % kWarp == 0);

// What the parts of a row come to.
struct Summary {
  Key largest, best;
  double log_total;  // of the sum of exponentials
  bool is_finite;
};
// By one warp.
__device__ inline Summary summarize(const SamplePart* parts) {
  constexpr int kOwn = kSampleParts / kWarp;
  SamplePart part[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) part[i] = parts[static_cast<int>(threadIdx.x) % kWarp + i * kWarp];
  Summary all{.largest = 0, .best = 0, .log_total = 0, .is_finite = true};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    all.largest = max(all.largest, static_cast<Key>(part[i].largest));
    all.best = max(all.best, static_cast<Key>(part[i].best));
    all.is_finite = all.is_finite && part[i].is_finite;
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    all.largest = max(all.largest, __shfl_xor_sync(0xFFFFFFFFu, all.largest, offset));
    all.best = max(all.best, __shfl_xor_sync(0xFFFFFFFFu, all.best, offset));
  }
  all.is_finite = __all_sync(0xFFFFFFFFu, all.is_finite) != 0;
  const auto peak = static_cast<double>(logit_of(all.largest));
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (part[i].largest != 0)
      sum += part[i].sum * exp(static_cast<double>(logit_of(part[i].largest)) - peak);
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  all.log_total = log(sum) + peak;
  return all;
}

__global__ void __launch_bounds__(kScanThreads) scan_kernel(const __grid_constant__ SampleRows a) {
  constexpr int kScanWarps = kScanThreads / kWarp;
  __shared__ Key largest_of[kScanWarps], best_of[kScanWarps];
  __shared__ double sum_of[kScanWarps];
  start_next();
  wait_for_inputs();
  const int row = blockIdx.y, part = blockIdx.x, warp = threadIdx.x / kWarp;
  const float* const logits = a.logits + row * a.stride;
  const uint32_t* const mask =
      a.masks == nullptr ? nullptr : a.masks + static_cast<int64_t>(row) * ((a.vocab + 31) / 32);
  const int piece = (a.vocab + kSampleParts - 1) / kSampleParts;
  const int begin = min(part * piece, a.vocab), end = min(begin + piece, a.vocab);
  Key largest = 0, best = 0;
  bool finite = true;
  float logit[kEach];  // of a vocabulary of usual size all that the thread looks at
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (const int token = first + i * kScanThreads; token < end) logit[i] = logits[token];
  };
#pragma unroll 1
  for (int first = begin + static_cast<int>(threadIdx.x); first < end; first += kTogether) {
    load(first);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int token = first + i * kScanThreads;
      if (token >= end) break;
      finite = finite && isfinite(logit[i]);
      const Key k = key_of(logit[i], token);
      largest = max(largest, k);
      if (token < a.vocab_limit &&
          (mask == nullptr || (mask[token / 32] >> (token % 32) & 1u) != 0))
        best = max(best, k);
    }
  }
  const auto over_warps = [&](auto x, auto* scratch, const auto& combine) {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      x = combine(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
    if (threadIdx.x % kWarp == 0) scratch[warp] = x;
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < kScanWarps; ++i) x = combine(x, scratch[i]);
    return x;
  };
  const auto larger = [](Key x, Key y) { return max(x, y); };
  largest = over_warps(largest, largest_of, larger);
  best = over_warps(best, best_of, larger);
  finite = __syncthreads_or(finite ? 0 : 1) == 0;
  double sum = 0;
  const float peak = largest != 0 ? logit_of(largest) : 0.0f;
#pragma unroll 1
  for (int first = begin + static_cast<int>(threadIdx.x); finite && first < end;
       first += kTogether) {
    if (piece > kTogether) load(first);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (first + i * kScanThreads < end) sum += static_cast<double>(expf(logit[i] - peak));
  }
  sum = over_warps(sum, sum_of, [](double x, double y) { return x + y; });
  if (threadIdx.x == 0)
    a.parts[static_cast<int64_t>(row) * kSampleParts + part] = {largest, best, sum, finite};
}

__global__ void __launch_bounds__(kThreads) sample_kernel(const __grid_constant__ SampleRows a) {
  __shared__ Shared s;
  __shared__ Summary summary;
  start_next();
  wait_for_inputs();
  const int row = blockIdx.x;
  const float* const logits = a.logits + row * a.stride;
  const SamplingRow p = a.parameters[row];
  const int edit_begin = a.edit_begin[row], edit_end = a.edit_begin[row + 1];

  const auto give_up = [&](bool blank) {
    if (threadIdx.x == 0) {
      a.token[row] = -1;
      a.logprob[row] = NAN;
    }
    if (!blank) return;
    for (int i = threadIdx.x; i < kTopLogprobs; i += kThreads) {
      a.top_token[row * kTopLogprobs + i] = -1;
      a.top_logprob[row * kTopLogprobs + i] = -INFINITY;
    }
  };
  if (threadIdx.x < kWarp) {
    const Summary all = summarize(a.parts + static_cast<int64_t>(row) * kSampleParts);
    if (threadIdx.x == 0) summary = all;
  }
  __syncthreads();
  if (!summary.is_finite) return give_up(true);
  const double log_total = summary.log_total;
  write_top(a, row, logits, log_total, s);

  const int limit = min(a.vocab_limit, a.vocab);
  const float* values = logits;
  if (edit_begin < edit_end) {
    float* const copy = a.edited + static_cast<int64_t>(row) * a.vocab;
    for (int token = threadIdx.x; token < limit; token += kThreads) copy[token] = logits[token];
    __syncthreads();
    for (int i = edit_begin + static_cast<int>(threadIdx.x); i < edit_end; i += kThreads) {
      const LogitEdit edit = a.edits[i];
      if (edit.token >= 0 && edit.token < limit)
        copy[edit.token] = edited_logit(logits[edit.token], edit, p);
    }
    __syncthreads();
    values = copy;
  }
  const uint32_t* mask =
      a.masks == nullptr ? nullptr : a.masks + static_cast<int64_t>(row) * ((a.vocab + 31) / 32);
  const auto allowed = [&](int token) {
    return values[token] != -INFINITY &&
           (mask == nullptr || (mask[token / 32] >> (token % 32) & 1u) != 0);
  };
  const auto key = [&](int token) { return key_of(values[token], token); };

  Key best = summary.best;
  if (edit_begin < edit_end) {
    best = 0;
    for (int token = threadIdx.x; token < limit; token += kThreads)
      if (allowed(token)) best = key(token) > best ? key(token) : best;
    best = block_max(best, s);
  }
  if (best == 0) return give_up(false);
  const auto finish = [&](int token, float logit) {
    if (threadIdx.x != 0) return;
    a.token[row] = token;
    a.logprob[row] = static_cast<float>(static_cast<double>(logit) - log_total);
  };
  if (p.temperature <= 0)
    return finish(token_of(best), edit_begin < edit_end ? logits[token_of(best)] : logit_of(best));

  const float top = values[token_of(best)];
  const double inverse = 1.0 / static_cast<double>(p.temperature);
  const auto probability = [&](int token) {
    return exp((static_cast<double>(values[token]) - static_cast<double>(top)) * inverse);
  };
  Key lowest = 0;  // candidates have keys from here on
  const auto candidate = [&](int token) {
    return allowed(token) && key(token) >= lowest &&
           (p.min_p <= 0 || probability(token) >= static_cast<double>(p.min_p));
  };
  Mass before = 0;
  const auto one = [&](int token) -> Mass { return candidate(token) ? 1 : 0; };
  if (p.top_k > 0) {
    Mass count = 0;
    for (int token = threadIdx.x; token < limit; token += kThreads) count += one(token);
    if (block_total(count, s) > static_cast<Mass>(p.top_k))
      lowest = find_rank(limit, static_cast<Mass>(p.top_k) - 1, key, one, s, before);
  }
  const auto mass = [&](int token) -> Mass {
    return candidate(token) ? static_cast<Mass>(probability(token) * kMassUnit) : 0;
  };
  Mass total = 0;
  for (int token = threadIdx.x; token < limit; token += kThreads) total += mass(token);
  total = block_total(total, s);
  const bool ranked = p.top_k > 0 || p.top_p < 1;
  if (p.top_p < 1) {
    // The smallest set of the largest whose mass reaches top_p.
    const auto wanted =
        static_cast<Mass>(static_cast<double>(total) * static_cast<double>(p.top_p));
    lowest = find_rank(limit, wanted > 0 ? wanted - 1 : 0, key, mass, s, before);
    total = before + mass(token_of(lowest));
    __syncthreads();
  }
  const Mass target = static_cast<Mass>(static_cast<double>(random_uniform(p.seed, p.index)) *
                                        static_cast<double>(total));
  const int token = ranked ? token_of(find_rank(limit, target, key, mass, s, before))
                           : find_in_order(limit, target, mass, s);
  finish(token, logits[token]);
}

}  // namespace

void sample_rows(cudaStream_t stream, const SampleRows& args) {
  const auto rows = static_cast<unsigned>(args.rows);
  launch(stream, dim3(kSampleParts, rows), dim3(kScanThreads), 0, scan_kernel, args);
  launch(stream, dim3(rows), dim3(kThreads), 0, sample_kernel, args);
}

}  // namespace pewter::cuda
