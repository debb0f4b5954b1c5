// Types and arithmetic without a header: NVRTC has no headers.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "the sizes that the host means");

__device__ __forceinline__ float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Two values as they are, in one word.
__device__ __forceinline__ u64 word_of_pair(float2 pair) {
  return u64(__float_as_uint(pair.y)) << 32 | __float_as_uint(pair.x);
}
__device__ __forceinline__ float2 pair_of_word(u64 word) {
  return {__uint_as_float(u32(word)), __uint_as_float(u32(word >> 32))};
}

// a b + c d. Of such a sum the compiler fuses one product with the addition, and rounds the other one first:
// which, it chooses by the code around the sum. Said here, all kernels give the same bits.
__device__ __forceinline__ float sum_of_products(float a, float b, float c, float d) {
  return __fmaf_rn(a, b, __fmul_rn(c, d));
}
