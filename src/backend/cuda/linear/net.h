// What blocks of a token mixer have in common that run as one kernel: products before and behind
// the mixer (net.cuh).
#pragma once

#include "backend/cuda/common/prefetch.h"
#include "backend/cuda/linear/stream.h"

namespace pewter::cuda {

// Counts, zero between kernels, and the number of the launch.
enum NetWord { kClaims, kMixed, kAttended, kLeft, kLaunch, kNetWords };
constexpr int kMostNetRows = 8;

struct NetProducts {
  StreamArgs in;  // kBF16; its rows are there (and coded, where a matrix wants that), or norm_x is
  const float* norm_x = nullptr;  // [rows, norm_stride]: rows to be normalised first, or null
  int64_t norm_stride = 0;
  const float* norm_weight = nullptr;
  float epsilon = 0;
  StreamArgs out;                // of one matrix
  Prefetch next;                 // for the kernels behind
  int32_t* words = nullptr;      // scratch [kNetWords], zero at first
  uint64_t* arrivals = nullptr;  // scratch [kMostNetRows, arrival_pairs], zero at first
  int arrival_pairs = 0;
  // scratch [blocks of threads that mix], zero at first: the number of the launch in which each has
  // left its part of the one row.
  uint32_t* mixed = nullptr;
};

// Whether such a kernel normalises rows itself.
bool can_norm(const NetProducts& net, int64_t x_stride);

}  // namespace pewter::cuda
