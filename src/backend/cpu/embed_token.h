// The token of a row that is embedded, where batches lie in host memory.
#pragma once

#include <algorithm>

#include "backend/ops.h"

namespace pewter {

inline int32_t embed_token(const EmbedArgs& args, int64_t row) {
  const int32_t given = args.batch.tokens[row];
  if (given >= 0) return given;
  const TensorView &choices = args.chosen.choices, &ids = args.chosen.ids;
  const int64_t number = -1 - int64_t{given};
  CHECK(choices.defined() && number < choices.elements(), "row ", row, " goes on from choice ",
        number);
  const int32_t choice = std::max(choices.data_as<int32_t>()[number], 0);
  return ids.defined() ? ids.data_as<int32_t>()[choice] : choice;
}

}  // namespace pewter
