// StatePool: everything a sequence keeps between steps. It owns the pages and the slots of one
// engine.
#pragma once

#include "model/kv_cache.h"
#include "model/recurrent_state.h"

namespace pewter {

struct StatePool {
  KvCache kv;
  RecurrentState recurrent;
};

}  // namespace pewter
