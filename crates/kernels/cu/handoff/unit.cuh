// A unit of the exchange: an fp32 value and the epoch that it is of, in one 64-bit word.
#pragma once
#include "../ptx/memory.cuh"

__device__ __forceinline__ u64 unit_of(float value, u32 epoch) {
  return (u64(epoch) << 32) | __float_as_uint(value);
}

__device__ __forceinline__ float value_of(u64 unit) { return __uint_as_float(u32(unit)); }
__device__ __forceinline__ u32 epoch_of(u64 unit) { return u32(unit >> 32); }

// The words of two units.
struct Words {
  u64 first, second;
};

__device__ __forceinline__ bool are_of(const Words& words, u32 epoch) {
  return epoch_of(words.first) == epoch && epoch_of(words.second) == epoch;
}

__device__ __forceinline__ Words load_pair(const u64* unit) {
  Words words;
  ptx::load_relaxed_pair(unit, words.first, words.second);
  return words;
}
