// All inline assembly. The names say the operation and its memory order.
#pragma once
#include "types.cuh"

namespace ptx {

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers: stages of the ring, block scope

__device__ __forceinline__ void mbarrier_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}

// Makes the inits visible to the async proxy, which completes the barriers' phases.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and sets the number of bytes that a bulk copy will deliver.
__device__ __forceinline__ void mbarrier_arrive_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Tries once: returns whether the phase with this parity has completed. Acquire, block scope.
__device__ __forceinline__ bool mbarrier_try_wait(u64* barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// The same without blocking: the hardware may suspend the thread in a try, but not in a test.
__device__ __forceinline__ bool mbarrier_test(u64* barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// Orders this thread's accesses to shared memory through the generic proxy before its later
// operations through the async proxy, and vice versa.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies global memory to shared memory asynchronously; completes on the mbarrier. Addresses are
// 16-byte aligned, the size is a multiple of 16 bytes.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// ---- words of shared memory that warps exchange without a barrier: one access each

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

// ---- exchange units: device scope, no ordering beyond the unit itself

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

// For words that the host reads while the kernel runs.
__device__ __forceinline__ void store_release_system(u32* to, u32 word) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

// ---- barriers among the consumer warps; barrier 0 is reserved for __syncthreads

// A barrier that returns whether `ok` is true in every thread. All threads get the same answer, so
// they abort together or not at all.
template <int THREADS>
__device__ __forceinline__ bool consumers_sync_all(bool ok) {
  u32 all;
  asm volatile(
      "{\n"
      ".reg .pred mine, every;\n"
      "setp.ne.u32 mine, %1, 0;\n"
      "bar.red.and.pred every, 1, %2, mine;\n"
      "selp.u32 %0, 1, 0, every;\n"
      "}"
      : "=r"(all)
      : "r"(static_cast<u32>(ok)), "n"(THREADS)
      : "memory");
  return all != 0;
}

// ---- clocks

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

// ---- tensor cores

// d += a b, 16 x 8 x 16, bf16 in, fp32 out.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// ---- bf16 arithmetic without a header

// Rounds two values to bf16, ties to even; `low` goes into the low half.
__device__ __forceinline__ u32 bf16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace ptx
