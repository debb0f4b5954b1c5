// Barriers within a block; barrier 0 is __syncthreads.
#pragma once
#include "../types.cuh"

namespace ptx {

// Among the consumer warps.
template <int THREADS>
__device__ __forceinline__ void consumers_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// A buffer of partial sums is full: consumer warps arrive and go on, the epilogue warp waits.
template <int THREADS>
__device__ __forceinline__ void partials_arrive(int buffer) {
  asm volatile("bar.arrive %0, %1;" ::"r"(2 + buffer), "n"(THREADS) : "memory");
}

template <int THREADS>
__device__ __forceinline__ void partials_sync(int buffer) {
  asm volatile("bar.sync %0, %1;" ::"r"(2 + buffer), "n"(THREADS) : "memory");
}

// Among the consumer warps of a slice of the O projection's columns.
template <int THREADS>
__device__ __forceinline__ void slice_sync(int slice) {
  asm volatile("bar.sync %0, %1;" ::"r"(5 + slice), "n"(THREADS) : "memory");
}

// Among the consumer warps and the epilogue warp, once, at the step's end.
template <int THREADS>
__device__ __forceinline__ void step_sync() {
  asm volatile("bar.sync 4, %0;" ::"n"(THREADS) : "memory");
}

}  // namespace ptx
