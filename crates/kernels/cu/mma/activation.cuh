// A warp's own part of the activation in shared memory, in the order of the tensor cores' B operand: of a
// step's 16 columns, lane t of four takes columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
//
// The tensor cores take bf16: each value is shape::PARTS of them, hi + lo, which keep 16 bits of
// mantissa, as the units that it came in. Columns 0 and 1 of B are the parts; the other six are zero.
#pragma once
#include "../ptx/convert.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "../shape.cuh"

namespace activation {

// Words of a part: two columns each, with eight to spare, so that the parts' words lie in other banks.
constexpr u32 STRIDE = 8 * shape::STEPS_AHEAD + 8;
static_assert(32 * shape::STEPS_AHEAD <= sizeof(Shared::zeros), "the operand of a column without a part");

// Where a lane stores the pair of columns `lane` of its warp's; pairs 32 on lie 32 words on.
__device__ __forceinline__ u32 pair_address(const u32* words, u32 lane) {
  const u32 within = lane % 8;
  return ptx::shared_address(words + lane - within + within % 4 * 2 + within / 4);
}

// The words of a pair of columns, a part each.
__device__ __forceinline__ void split(float2 values, u32 (&words)[shape::PARTS]) {
#pragma unroll
  for (u32 part = 0; part < shape::PARTS; part++) {
    words[part] = ptx::bf16_pair(values.x, values.y);
    values.x -= bf16_low(words[part]);
    values.y -= bf16_high(words[part]);
  }
}

// Stores one of them.
__device__ __forceinline__ void set_part(u32 address, u32 part, u32 word) {
  ptx::store_shared_at(address + part * STRIDE * 4, word);
}

// Stores a pair of columns.
__device__ __forceinline__ void set(u32 address, float2 values) {
  u32 words[shape::PARTS];
  split(values, words);
#pragma unroll
  for (u32 part = 0; part < shape::PARTS; part++) set_part(address, part, words[part]);
}

// Where this lane's B operand of the first step lies; those of the next follow 8 words on each. Columns of B
// without a part are zeros.
__device__ __forceinline__ u32 operand_address(const u32* words, const u8* zeros) {
  const u32 part = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
  if (part >= shape::PARTS) return ptx::shared_address(zeros);
  return ptx::shared_address(words + part * STRIDE + 2 * lane);
}

__device__ __forceinline__ uint2 operand(u32 address, int step) {
  return ptx::load_shared_pair_at(address + 32 * step);
}

}  // namespace activation
