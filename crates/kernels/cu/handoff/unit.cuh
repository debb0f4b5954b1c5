// A unit of the exchange: two values, rounded to 24 bits each, and the low 16 bits of the epoch that they
// are of, in one 64-bit word.
#pragma once
#include "../types.cuh"

// Rounds to 16 bits of mantissa, to nearest. Infinities and NaN stay what they are: the NaN that an
// operation returns, 0x7fffffff, is kept from wrapping round to a zero.
__device__ __forceinline__ u32 rounded24(float value) {
  return u32(min(__float_as_int(value), 0x7fffff00)) + 0x80u;
}

__device__ __forceinline__ u64 unit_of(float2 values, u32 epoch) {
  const u32 first = rounded24(values.x), second = rounded24(values.y);
  const u32 high = (first & 0xffffff00u) | second >> 24;
  const u32 low = (second << 8 & 0xffff0000u) | (epoch & 0xffffu);
  return u64(high) << 32 | low;
}

__device__ __forceinline__ float2 values_of(u64 unit) {
  const u32 high = u32(unit >> 32), low = u32(unit);
  return {__uint_as_float(high & 0xffffff00u),
          __uint_as_float(__funnelshift_l(low, high, 24) & 0xffffff00u)};
}

// A word, all of it, and the low 16 bits of the epoch.
__device__ __forceinline__ u64 unit_of_word(u32 word, u32 epoch) { return u64(word) << 32 | (epoch & 0xffffu); }

__device__ __forceinline__ u32 word_of(u64 unit) { return u32(unit >> 32); }

__device__ __forceinline__ bool is_of(u64 unit, u32 epoch) { return ((u32(unit) ^ epoch) & 0xffffu) == 0; }
