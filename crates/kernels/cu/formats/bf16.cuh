// bf16 weights: a lane's 16 bytes of a fragment are its four registers of the A operand.
#pragma once
#include "../ptx.cuh"
#include "../shape.cuh"

namespace bf16 {

// sums += fragment x (hi, mid, lo in columns 0, 1, 2).
__device__ __forceinline__ void multiply(const u8* fragment, u32 b0, u32 b1, float (&sums)[4]) {
  const uint4 weights = reinterpret_cast<const uint4*>(fragment)[threadIdx.x % 32];
  ptx::mma_bf16(sums, weights, b0, b1);
}

// Two neighbouring elements (the column is even) of one row of a packed matrix in global memory.
__device__ __forceinline__ float2 element_pair(const u8* tiles, int columns, int row, int column) {
  const int within_row = row % shape::TILE_ROWS, within = column % shape::FRAGMENT_COLS;
  const int lane = 4 * (within_row % 8) + within % 8 / 2;
  const int reg = within_row / 8 + 2 * (within / 8);
  const u8* fragment = tiles + u64(row / shape::TILE_ROWS) * shape::tile_bytes(columns) +
                       column / shape::FRAGMENT_COLS * shape::FRAGMENT_BYTES;
  const u32 pair = reinterpret_cast<const u32*>(fragment)[lane * 4 + reg];
  return {bf16_low(pair), bf16_high(pair)};
}

}  // namespace bf16
