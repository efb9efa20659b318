// The reference's gated attention over paged keys and values, in f32 or bf16 planes.

#include <algorithm>

#include "backend/cpu/reference/math.h"
#include "backend/cpu/reference/reference_ops.h"

namespace pewter {
namespace {

// Where the vector of one position and KV head lies in a plane, and how its elements are read and
// written.
struct Plane {
  std::byte* base;
  int64_t page_bytes;
  DType dtype;
  int64_t head_dim;

  std::byte* vector(const int32_t* pages, int64_t position, int64_t head) const {
    const int64_t page = pages[position / kPageTokens];
    const int64_t element = (head * kPageTokens + position % kPageTokens) * head_dim;
    return base + page * page_bytes + element * dtype_bytes(dtype);
  }
};

DType plane_dtype(KvFormat format) { return format == KvFormat::kF32 ? DType::kF32 : DType::kBF16; }
Plane key_plane(const KvLayer& kv) {
  return {kv.keys, kv.key_page_bytes, plane_dtype(kv.key_format), kv.head_dim};
}
Plane value_plane(const KvLayer& kv) {
  return {kv.values, kv.value_page_bytes, plane_dtype(kv.value_format), kv.head_dim};
}

void rotate(float* x, const AttentionPrepareArgs& args, const int32_t* position, int32_t delta) {
  const int64_t half = args.rotary_dim / 2;
  const auto* frequency = args.inverse_frequency.data_as<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position[args.axis[i]] + delta) * frequency[i];
    const float c = std::cos(angle), s = std::sin(angle);
    const float a = x[i], b = x[i + half];
    x[i] = a * c - b * s;
    x[i + half] = b * c + a * s;
  }
}

// Position in the cache of row r: after its sequence's committed ones and the earlier rows of this
// step.
int64_t cache_position(const Batch& batch, int64_t r) {
  const int32_t s = batch.row_sequence[r];
  return batch.context_length[s] + (r - batch.row_begin[s]);
}

const int32_t* pages_of(const Batch& batch, int64_t r) {
  return batch.page_table + batch.row_sequence[r] * batch.page_table_stride;
}

}  // namespace

void ReferenceOps::attention_prepare(const AttentionPrepareArgs& args) {
  const int64_t d = args.head_dim;
  const Plane keys = key_plane(args.kv), values = value_plane(args.kv);
  std::vector<float>& head = weight_row_;
  for (int64_t r = 0; r < args.batch.rows; ++r) {
    const float* in = args.in[r].data_as<float>();
    const int32_t* position = args.batch.positions + 3 * r;
    const int32_t delta = args.batch.position_delta[args.batch.row_sequence[r]];
    float* q = args.q[r].data_as<float>();
    for (int64_t h = 0; h < args.query_heads; ++h, q += d) {
      rms_norm(in + h * 2 * d, args.q_norm.data_as<float>(), d, args.epsilon, NormForm::kOnePlus,
               q);
      rotate(q, args, position, delta);
    }
    const float* k = in + args.query_heads * 2 * d;
    const float* v = k + args.kv_heads * d;
    for (int64_t h = 0; h < args.kv_heads; ++h) {
      rms_norm(k + h * d, args.k_norm.data_as<float>(), d, args.epsilon, NormForm::kOnePlus,
               head.data());
      rotate(head.data(), args, position, delta);
      std::byte* key = keys.vector(pages_of(args.batch, r), cache_position(args.batch, r), h);
      std::byte* value = values.vector(pages_of(args.batch, r), cache_position(args.batch, r), h);
      for (int64_t i = 0; i < d; ++i) {
        store_float(key, keys.dtype, i, head[static_cast<size_t>(i)]);
        store_float(value, values.dtype, i, v[h * d + i]);
      }
    }
  }
}

void ReferenceOps::attention(const AttentionArgs& args) {
  const int64_t d = args.head_dim;
  const Plane keys = key_plane(args.kv), values = value_plane(args.kv);
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  for (int64_t r = 0; r < args.batch.rows; ++r) {
    const int64_t visible = cache_position(args.batch, r) + 1;
    const int64_t first = args.window > 0 ? std::max<int64_t>(0, visible - args.window) : 0;
    const int32_t* pages = pages_of(args.batch, r);
    for (int64_t h = 0; h < args.query_heads; ++h) {
      const int64_t kv_head = h / (args.query_heads / args.kv_heads);
      const float* q = args.q[r].data_as<float>() + h * d;
      float* out = args.out[r].data_as<float>() + h * d;
      const auto score = [&](int64_t position) {
        const std::byte* key = keys.vector(pages, position, kv_head);
        double sum = 0;
        for (int64_t i = 0; i < d; ++i)
          sum += static_cast<double>(q[i]) * load_float(key, keys.dtype, i);
        return sum * scale;
      };
      // Online softmax: sums so far are rescaled when a larger score appears.
      double largest = -INFINITY, total = 0;
      std::vector<float>& sums = weight_row_;
      std::fill_n(sums.begin(), d, 0.0f);
      for (int64_t position = first; position < visible; ++position) {
        const double s = score(position);
        if (s > largest) {
          const double shrink = std::exp(largest - s);
          total *= shrink;
          for (int64_t i = 0; i < d; ++i)
            sums[static_cast<size_t>(i)] *= static_cast<float>(shrink);
          largest = s;
        }
        const double p = std::exp(s - largest);
        total += p;
        const std::byte* value = values.vector(pages, position, kv_head);
        for (int64_t i = 0; i < d; ++i)
          sums[static_cast<size_t>(i)] +=
              static_cast<float>(p) * load_float(value, values.dtype, i);
      }
      const float* gate = args.in[r].data_as<float>() + h * 2 * d + d;
      for (int64_t i = 0; i < d; ++i)
        out[i] = sums[static_cast<size_t>(i)] / static_cast<float>(total) * sigmoid(gate[i]);
    }
  }
}

}  // namespace pewter
