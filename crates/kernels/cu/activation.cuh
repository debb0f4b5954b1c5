// The activation in shared memory: three bf16 parts whose sum is the fp32 value, so that a tensor
// core that takes bf16 works on fp32 activations. hi + mid + lo keep 24 bits: x - hi is exact,
// and so is (x - hi) - mid.
//
// A part lies in the order of the B operand: of a fragment's 16 columns, lane t of four takes
// columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, as 8 bytes. Columns 0, 1 and 2 of B are the parts;
// the lanes of the other five read a row of zeros.
#pragma once
#include "ptx.cuh"
#include "shared.cuh"

// Where two neighbouring columns lie in a part (the first is even).
__device__ __forceinline__ int activation_index(int column) {
  const int within = column % shape::FRAGMENT_COLS;
  return column - within + within % 8 * 2 + within / 8 * 2;
}

__device__ __forceinline__ void set_activation(Shared& shared, int column, float2 values) {
  const int index = activation_index(column);
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    const u32 pair = ptx::bf16_pair(values.x, values.y);
    *reinterpret_cast<u32*>(&shared.x[part][index]) = pair;
    values.x -= bf16_low(pair);
    values.y -= bf16_high(pair);
  }
}

// Once a launch, before the first product.
__device__ __forceinline__ void clear_zero_row(Shared& shared) {
  for (int at = threadIdx.x; at < X_STRIDE; at += blockDim.x) shared.x[PARTS][at] = 0;
}

// This lane's share of the B operand for the fragment at column 0; 32 bytes a fragment on.
__device__ __forceinline__ const u16* activation_operand(const Shared& shared) {
  const int part = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
  return &shared.x[part < PARTS ? part : PARTS][4 * lane];
}
