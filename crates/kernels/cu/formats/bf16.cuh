// bf16 weights: a lane's 16 bytes of a fragment are its four registers of the A operand.
#pragma once
#include "../mma/activation.cuh"

struct Bf16 {
  // Columns and bytes of a fragment of 16 rows.
  static constexpr int COLS = abi::FRAGMENT_COLS;
  static constexpr int BYTES = abi::FRAGMENT_BYTES_BF16;
  // Bytes of the scales after a tile's fragments.
  static constexpr int SCALE_BYTES = 0;
  // The factor for the activation before it is split.
  static constexpr float X_SCALE = 1.f;

  // This lane's A operand of the fragment's one step along K, from its 16 bytes at this address of shared
  // memory.
  __device__ static __forceinline__ void widen(u32 fragment, uint4* a) {
    a[0] = ptx::load_shared_words_at(fragment);
  }

  // Two neighbouring elements (the column is even) of a tile's row, in global memory.
  __device__ static __forceinline__ float2 element_pair(const u8* tile, int row, int column) {
    const int within = column % COLS;
    const int lane = 4 * (row % 8) + within % 8 / 2, reg = row / 8 + 2 * (within / 8);
    const u8* fragment = tile + column / COLS * BYTES;
    const u32 pair = reinterpret_cast<const u32*>(fragment)[lane * 4 + reg];
    return {bf16_low(pair), bf16_high(pair)};
  }
};
