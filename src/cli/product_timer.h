// ProductTimer: x·Wᵀ + residual of one matrix by itself.
#pragma once

#include "backend/factory.h"
#include "base/thread_pool.h"
#include "cli/step_profile.h"
#include "model/model_config.h"

namespace pewter {

// Matrices of a layer that are multiplied side by side count as one.
struct ProductShape {
  std::string_view name;  // "delta_in"
  int64_t n = 0, k = 0;
};
std::vector<ProductShape> product_shapes(const ModelConfig& config);
// bf16, fp8, int4 and int8, with scales as they are published; sizes are left open.
struct ProductFormat {
  std::string_view name;
  WeightSpec spec;
};
std::span<const ProductFormat> product_formats();

class ProductTimer {
 public:
  // For the products of a model, of up to so many rows. Errors: those of the backend.
  static Result<ProductTimer> make(const BackendOptions& options, const ModelConfig& config,
                                   int64_t most_rows);

  // Makes as many random copies of the matrix as a cache cannot hold. Error: kResourceExhausted.
  Status load(const ProductShape& shape, const WeightSpec& format);
  // Of one call on the matrix that was loaded, which takes the copies in turn.
  StageTime time(int64_t rows);

 private:
  ProductTimer(Backend backend, OpTimer timer, std::unique_ptr<ThreadPool> pool, int64_t most_rows)
      : backend_(std::move(backend)),
        timer_(std::move(timer)),
        pool_(std::move(pool)),
        most_rows_(most_rows) {}

  Backend backend_;
  OpTimer timer_;
  std::unique_ptr<ThreadPool> pool_;
  int64_t most_rows_;
  std::string name_;
  std::vector<WeightMatrix> copies_;
  Buffer x_, partial_, residual_;
};

}  // namespace pewter
