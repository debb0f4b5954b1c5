// Pairs of words in shared memory that the X-ray exchanges: one access each, so that no pair is of two
// threads.
#pragma once
#include "../types.cuh"

namespace ptx {

// The compiler may move other accesses past it.
__device__ __forceinline__ void store_shared_pair(u32 address, u32 first, u32 second) {
  asm volatile("st.shared::cta.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second));
}

__device__ __forceinline__ uint2 load_shared_pair(u32 address) {
  uint2 pair;
  asm volatile("ld.volatile.shared::cta.v2.u32 {%0, %1}, [%2];"
               : "=r"(pair.x), "=r"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

}  // namespace ptx
