// Loads and stores of words that warps and blocks exchange: one access each, no ordering beyond the
// word.
#pragma once
#include "../types.cuh"

namespace ptx {

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// ---- shared memory: words that warps exchange without a barrier

__device__ __forceinline__ void store_shared(u32* to, u32 word) {
  asm volatile("st.relaxed.cta.shared::cta.u32 [%0], %1;" ::"r"(shared_address(to)), "r"(word)
               : "memory");
}

__device__ __forceinline__ u32 load_shared(const u32* from) {
  u32 word;
  asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];"
               : "=r"(word)
               : "r"(shared_address(from))
               : "memory");
  return word;
}

// ---- shared memory by address: a warp's own, ordered by __syncwarp

__device__ __forceinline__ void store_shared_at(u32 address, u32 word) {
  asm volatile("st.shared::cta.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

__device__ __forceinline__ void store_shared_at(u32 address, float value) {
  asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ uint2 load_shared_pair_at(u32 address) {
  uint2 pair;
  asm volatile("ld.shared::cta.v2.u32 {%0, %1}, [%2];" : "=r"(pair.x), "=r"(pair.y) : "r"(address) : "memory");
  return pair;
}

__device__ __forceinline__ uint4 load_shared_words_at(u32 address) {
  return *reinterpret_cast<const uint4*>(__cvta_shared_to_generic(address));
}

__device__ __forceinline__ float4 load_shared_quad_at(u32 address) {
  float4 quad;
  asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w)
               : "r"(address)
               : "memory");
  return quad;
}

// A store to an address if the predicate holds, without a branch. The compiler may move other
// accesses past it.
__device__ __forceinline__ void store_shared_if(bool predicate, u32 address, u32 word) {
  asm volatile(
      "{\n"
      ".reg .pred writes;\n"
      "setp.ne.u32 writes, %0, 0;\n"
      "@writes st.relaxed.cta.shared::cta.u32 [%1], %2;\n"
      "}" ::"r"(static_cast<u32>(predicate)),
      "r"(address), "r"(word));
}

// ---- global memory: exchange units, device scope

__device__ __forceinline__ void store_relaxed(u64* to, u64 word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ __forceinline__ u64 load_relaxed(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

// Two units in one request. Each is a separate 64-bit access; the two are unordered.
__device__ __forceinline__ void load_relaxed_pair(const u64* from, u64& first, u64& second) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
}

__device__ __forceinline__ u32 load_relaxed(const u32* from) {
  u32 word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

__device__ __forceinline__ void store_relaxed(u32* to, u32 word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

// ---- global memory: counters, device scope

// What other threads did before they counted comes before what this thread does from now on.
__device__ __forceinline__ u32 load_acquire(const u32* from) {
  u32 word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

__device__ __forceinline__ void add_relaxed(u32* to, u32 count) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(count) : "memory");
}

__device__ __forceinline__ u32 fetch_add_relaxed(u32* to, u32 count) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(count) : "memory");
  return before;
}

// Orders what this thread did, and what it knows of others through barriers, before what it does from now on.
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// For words that the host reads while the kernel runs.
__device__ __forceinline__ void store_release_system(u32* to, u32 word) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

}  // namespace ptx
