// Tensor cores.
#pragma once
#include "../types.cuh"

namespace ptx {

// d += a b, 16 x 8 x 16, bf16 in, fp32 out.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Keeps the compiler from computing the registers later than here.
__device__ __forceinline__ void pin(uint4& a) {
  asm volatile("" : "+r"(a.x), "+r"(a.y), "+r"(a.z), "+r"(a.w));
}

// Makes the compiler forget what it knows of a value.
__device__ __forceinline__ void pin(u32& value) { asm volatile("" : "+r"(value)); }

__device__ __forceinline__ void pin(u64*& pointer) { asm volatile("" : "+l"(pointer)); }

// A value that the compiler keeps in a register, since it cannot compute it again.
__device__ __forceinline__ u32 pinned(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace ptx
