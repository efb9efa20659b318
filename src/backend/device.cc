#include "backend/device.h"

namespace pewter {

Status Device::store_random_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                                 const RandomRows& random) {
  WeightSpec spec = spec_of(w);
  spec.n = random.n;
  spec.count = 1;
  TRY_ASSIGN(const WeightMatrix rows, make_canonical_weight(spec));
  fill_random_rows(rows, random);
  store_rows(w, index, row_begin, rows);
  return {};
}

}  // namespace pewter
