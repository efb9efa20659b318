// RowUploader: stores rows while the host goes on, so that reading a file, copying to the device
// and laying rows out anew there overlap. It lives as long as a load, and so does the memory it
// needs.
#pragma once

#include "tensor/weight_matrix.h"

namespace pewter {

// Safe to call from several threads.
class RowUploader {
 public:
  virtual ~RowUploader() = default;

  // Host memory the device copies from at its best, aligned for direct I/O.
  // Error: kResourceExhausted.
  virtual Result<Buffer> allocate_host(int64_t bytes) = 0;
  // As Device::store_rows, but what `rows` points into stays untouched, and the rows of w unread,
  // until finish() is called, once, with the result. 0: done already. Error: kResourceExhausted.
  virtual Result<int64_t> begin(WeightMatrix& w, int64_t index, int64_t row_begin,
                                const WeightMatrix& rows) = 0;
  // Waits for it. 0: returns.
  virtual void finish(int64_t pending) = 0;
};

}  // namespace pewter
