// Inline assembly that the megakernel does not need, named as in its ptx/.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/clock.cuh"
#include "ptx/convert.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma.cuh"

namespace ops {

// Loads 16 bytes that this launch does not write: read once, bypassing L1.
__device__ __forceinline__ uint4 load_stream(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

// Adds one with release order: a thread that acquires the sum sees this thread's earlier writes.
__device__ __forceinline__ void add_release(u32* to) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(to) : "memory");
}

__device__ __forceinline__ u32 load_acquire(const u32* from) {
  u32 word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

__device__ __forceinline__ u32 multiprocessor() {
  u32 id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

// Converts two e4m3 codes to two f16; the low byte goes into the low half.
__device__ __forceinline__ u32 f16_from_e4m3(u16 codes) {
  u32 pair;
  asm volatile("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
  return pair;
}

#if PROBE_HAS_E2M1
// Converts a byte's two e2m1 codes to two f16; the low nibble goes into the low half.
__device__ __forceinline__ u32 f16_from_e2m1(u16 codes) {
  u32 pair;
  asm volatile(
      "{\n"
      ".reg .b8 low, high;\n"
      "mov.b16 {low, high}, %1;\n"
      "cvt.rn.f16x2.e2m1x2 %0, low;\n"
      "}"
      : "=r"(pair)
      : "h"(codes));
  return pair;
}
#endif

}  // namespace ops
