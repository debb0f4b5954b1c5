// Barriers among the consumer warps; barrier 0 is reserved for __syncthreads.
#pragma once
#include "../types.cuh"

namespace ptx {

// A barrier that returns whether `ok` is true in every thread. All threads get the same answer, so
// they abort together or not at all.
template <int THREADS>
__device__ __forceinline__ bool consumers_sync_all(bool ok) {
  u32 all;
  asm volatile(
      "{\n"
      ".reg .pred mine, every;\n"
      "setp.ne.u32 mine, %1, 0;\n"
      "bar.red.and.pred every, 1, %2, mine;\n"
      "selp.u32 %0, 1, 0, every;\n"
      "}"
      : "=r"(all)
      : "r"(static_cast<u32>(ok)), "n"(THREADS)
      : "memory");
  return all != 0;
}

}  // namespace ptx
