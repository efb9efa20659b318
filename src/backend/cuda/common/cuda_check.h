// CUDA calls that cannot fail unless we or the device broke: they abort with the call and its
// error. After a fault the context is lost, so there is nothing to return to. Calls that may fail
// for want of memory are handled where they are made.
#pragma once

#include <cuda_runtime_api.h>

#include "base/check.h"

#define CUDA_CHECK(call)                                                               \
  do {                                                                                 \
    const cudaError_t cuda_status_ = (call);                                           \
    CHECK(cuda_status_ == cudaSuccess, #call, ": ", cudaGetErrorString(cuda_status_)); \
  } while (false)
