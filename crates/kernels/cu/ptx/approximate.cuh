// Functions of the special function unit: one instruction each, with a relative error of 2^-22 or less.
// Results and arguments below 2^-126 count as zero.
#pragma once
#include "../types.cuh"

namespace ptx {

// e^x is exp2(LOG2_E x).
constexpr float LOG2_E = 1.4426950408889634f;

// 2^x.
__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / sqrt(x).
__device__ __forceinline__ float reciprocal_sqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace ptx
