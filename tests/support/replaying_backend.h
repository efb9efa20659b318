// A backend that replays steps as the GPU does: the first time a step of an owner and key runs, its
// ops run; the second time they are kept as well, and from then on what was kept runs instead. It
// finds, on the CPU, steps whose key is right and whose addresses are not (Device::run_step).
#pragma once

#include "backend/factory.h"

namespace pewter::test {

// Of a backend that runs ops at once.
Backend make_replaying(Backend backend);

}  // namespace pewter::test
