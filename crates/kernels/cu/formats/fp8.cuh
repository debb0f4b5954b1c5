// FP8 weights, E4M3 with one fp32 scale per row: a lane's 16 bytes of a fragment are two steps
// along K, four codes per word.
//
// Codes are widened without a conversion: a code's seven low bits, moved to the low four bits of a
// bf16's exponent and the high three of its mantissa, are the weight times 2^-120, subnormals
// included. The activation is multiplied by 2^100, so that products stay far from fp32's limits,
// and the sums by 2^20. All of this is exact.
#pragma once
#include "../mma/activation.cuh"

struct Fp8 {
  static constexpr int COLS = abi::FRAGMENT_COLS_FP8;
  static constexpr int BYTES = abi::FRAGMENT_BYTES_FP8;
  static constexpr int SCALE_BYTES = abi::SCALE_BYTES_FP8;
  static constexpr float X_SCALE = 0x1p100f;
  // The remaining factor for the sums, besides the row's scale.
  static constexpr float SUM_SCALE = 0x1p20f;

  // This lane's A operands of the fragment's two steps along K, from its 16 bytes at this address of shared
  // memory.
  __device__ static __forceinline__ void widen(u32 fragment, uint4* a) {
    const uint4 codes = ptx::load_shared_words_at(fragment);
    a[0] = {even_pair(codes.x), even_pair(codes.y), odd_pair(codes.x), odd_pair(codes.y)};
    a[1] = {even_pair(codes.z), even_pair(codes.w), odd_pair(codes.z), odd_pair(codes.w)};
  }

  static constexpr u32 MAGNITUDES = 0x07f007f0u;
  static constexpr u32 SIGNS = 0x80008000u;

  // The even bytes of a word as a pair of bf16, times 2^-120: columns 2 t and 2 t + 1.
  __device__ static __forceinline__ u32 even_pair(u32 codes) {
    return ((codes << 4) & MAGNITUDES) | ((codes << 8) & SIGNS);
  }

  // The odd bytes likewise: columns 2 t + 8 and 2 t + 9.
  __device__ static __forceinline__ u32 odd_pair(u32 codes) {
    return ((codes >> 4) & MAGNITUDES) | (codes & SIGNS);
  }

  // Two neighbouring elements (the column is even) of a tile's row, in global memory, without the
  // row's scale.
  __device__ static __forceinline__ float2 element_pair(const u8* tile, int row, int column) {
    const int within = column % COLS, within_step = within % abi::FRAGMENT_COLS;
    const int lane = 4 * (row % 8) + within_step % 8 / 2;
    const int word = 2 * (within / abi::FRAGMENT_COLS) + row / 8;
    const u8* fragment = tile + column / COLS * BYTES;
    const u32 codes = reinterpret_cast<const u32*>(fragment)[lane * 4 + word];
    const u32 pair = within_step < 8 ? even_pair(codes) : odd_pair(codes);
    return {bf16_low(pair) * 0x1p120f, bf16_high(pair) * 0x1p120f};
  }
};
