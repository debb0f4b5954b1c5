// Clocks, and which block and SM this is.
#pragma once
#include "../types.cuh"

namespace ptx {

__device__ __forceinline__ u64 global_timer_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// In units of 1,024 ns, in 32 bits: saves a register in every wait; wraps after 73 minutes.
__device__ __forceinline__ u32 global_timer_1024ns() { return u32(global_timer_ns() >> 10); }

// The SM's own clock; its low half wraps after 2.1 s at 2 GHz.
__device__ __forceinline__ u64 clock64() {
  u64 now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now));
  return now;
}

__device__ __forceinline__ u32 clock32() {
  u32 now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now));
  return now;
}

// blockIdx.x, read again at every use instead of kept in a register.
__device__ __forceinline__ u32 block() {
  u32 id;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(id));
  return id;
}

__device__ __forceinline__ u32 sm() {
  u32 id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

}  // namespace ptx
