// The activation in shared memory: three bf16 parts whose sum is the fp32 value, so that a tensor
// core that takes bf16 works on fp32 activations. hi + mid + lo keep 24 bits: x - hi is exact,
// and so is (x - hi) - mid.
#pragma once
#include "ptx.cuh"
#include "shared.cuh"

__device__ __forceinline__ void set_activation(Shared& shared, int column, float2 values) {
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    const u32 pair = ptx::bf16_pair(values.x, values.y);
    *reinterpret_cast<u32*>(&shared.x[part][column]) = pair;
    values.x -= bf16_low(pair);
    values.y -= bf16_high(pair);
  }
}

// This lane's share of the B operand for the fragment at `column`: columns 0, 1, 2 of B are the
// parts, the others are zero.
__device__ __forceinline__ void activation_operand(const Shared& shared, int column, u32& b0,
                                                   u32& b1) {
  const int part = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
  b0 = b1 = 0;
  if (part < PARTS) {
    b0 = *reinterpret_cast<const u32*>(&shared.x[part][column + 2 * pair]);
    b1 = *reinterpret_cast<const u32*>(&shared.x[part][column + 2 * pair + 8]);
  }
}
