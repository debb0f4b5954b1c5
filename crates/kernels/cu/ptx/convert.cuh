// bf16 arithmetic without a header.
#pragma once
#include "../types.cuh"

namespace ptx {

// Rounds two values to bf16, ties to even; `low` goes into the low half.
__device__ __forceinline__ u32 bf16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace ptx
