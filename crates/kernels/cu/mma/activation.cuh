// The activation in shared memory, in the order of the tensor cores' B operand: of every 16
// columns, lane t of four takes columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
#pragma once
#include "../ptx/convert.cuh"
#include "../ptx/mma.cuh"
#include "../shape.cuh"

// Index of two neighbouring columns (the first is even), in values.
__device__ __forceinline__ int activation_index(int column) {
  const int within = column % abi::FRAGMENT_COLS;
  return column - within + within % 8 * 2 + within / 8 * 2;
}

// Splits the fp32 activation for bf16 tensor cores into three parts whose sum is the fp32 value.
// hi + mid + lo keep 24 bits: x - hi is exact, and so is (x - hi) - mid. Columns 0, 1 and 2 of B
// are the parts; the lanes of the other five columns read a row of zeros.
struct Parts {
  // Stride of a step along K, in bytes.
  static constexpr int STEP_BYTES = 2 * abi::FRAGMENT_COLS;

  __device__ static __forceinline__ void set(Shared& shared, int column, float2 values) {
    const int index = activation_index(column);
#pragma unroll
    for (int part = 0; part < shape::PARTS; part++) {
      const u32 pair = ptx::bf16_pair(values.x, values.y);
      *reinterpret_cast<u32*>(&shared.x[part][index]) = pair;
      values.x -= bf16_low(pair);
      values.y -= bf16_high(pair);
    }
  }

  // The address of this lane's operand of the first step.
  __device__ static __forceinline__ const u8* operand(const Shared& shared) {
    const int part = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
    return reinterpret_cast<const u8*>(&shared.x[part < shape::PARTS ? part : shape::PARTS][4 * lane]);
  }

  // Returns the rows' sums, in the lanes with t = 0. Lane 4 g + t holds columns 2 t and 2 t + 1 of
  // rows g and g + 8: hi and mid are in t = 0, lo is in t = 1. The other columns are zero.
  __device__ static __forceinline__ float2 row_sums(const float (&sums)[4]) {
    float top = sums[0] + sums[1], bottom = sums[2] + sums[3];
    top += __shfl_xor_sync(~0u, top, 1);
    bottom += __shfl_xor_sync(~0u, bottom, 1);
    return {top, bottom};
  }
};

// Clears the row of zeros; called once per launch, before the first matvec.
__device__ __forceinline__ void clear_zero_row(Shared& shared) {
  for (int at = threadIdx.x; at < shape::X_STRIDE; at += blockDim.x) shared.x[shape::PARTS][at] = 0;
}
