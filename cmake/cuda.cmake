# CUDA for the backend's leaf. Kernels are compiled for Hopper and for DGX Spark, and as PTX for every
# GPU from compute capability 8.0 on.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-virtual;90-real;121-real")
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc speaks C++20.
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# constexpr functions of shared headers (base/rng.h, the layouts) are called by kernels as well.
set(CMAKE_CUDA_FLAGS "--expt-relaxed-constexpr")
# Three architectures in one small program: kernels are unpacked when they are loaded.
set(CMAKE_CUDA_FLAGS_RELEASE "-O2 -DNDEBUG --compress-mode=size")
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_package(CUDAToolkit REQUIRED)
