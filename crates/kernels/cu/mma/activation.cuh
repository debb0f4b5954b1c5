// A warp's own part of the activation in shared memory, in the order of the tensor cores' B operand: of a
// step's 16 columns, lane t of four takes columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
//
// The tensor cores take bf16: each value is shape::PARTS of them, hi + lo, which keep 16 bits of
// mantissa, as the units that it came in. Columns 0 and 1 of B are the parts; the other six are zero.
#pragma once
#include "../ptx/convert.cuh"
#include "../ptx/mma.cuh"
#include "../shape.cuh"

namespace activation {

// Words of a part: two columns each, with eight to spare, so that the parts' words lie in other banks.
template <int STEPS>
constexpr int STRIDE = 8 * STEPS + 8;

// Stores the pair of columns `pair` of the warp's.
template <int STEPS>
__device__ __forceinline__ void set(u32* words, int pair, float2 values) {
  const int within = pair % 8, at = pair - within + within % 4 * 2 + within / 4;
#pragma unroll
  for (int part = 0; part < shape::PARTS; part++) {
    const u32 word = ptx::bf16_pair(values.x, values.y);
    words[part * STRIDE<STEPS> + at] = word;
    values.x -= bf16_low(word);
    values.y -= bf16_high(word);
  }
}

// This lane's B operand of a step.
template <int STEPS>
__device__ __forceinline__ uint2 operand(const u32* words, int step) {
  const int part = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
  if (part >= shape::PARTS) return {0, 0};
  return *reinterpret_cast<const uint2*>(&words[part * STRIDE<STEPS> + 8 * step + 2 * lane]);
}

}  // namespace activation
