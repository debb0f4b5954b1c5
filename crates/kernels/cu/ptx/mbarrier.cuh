// mbarriers: stages of the ring, block scope.
#pragma once
#include "memory.cuh"

namespace ptx {

__device__ __forceinline__ void mbarrier_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}

// Makes the inits visible to the async proxy, which completes the barriers' phases.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// By address.
__device__ __forceinline__ void mbarrier_arrive_at(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u64* barrier) { mbarrier_arrive_at(shared_address(barrier)); }

// Arrives, and sets the number of bytes that a bulk copy will deliver.
__device__ __forceinline__ void mbarrier_arrive_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Tries once, if the predicate holds: returns whether the phase with this parity has completed; true if the
// predicate does not hold. Acquire, block scope.
__device__ __forceinline__ bool mbarrier_try_wait_if(bool predicate, u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred looks, done;\n"
      "setp.ne.u32 looks, %3, 0;\n"
      "setp.eq.u32 done, %3, 0;\n"
      "@looks mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity), "r"(u32(predicate))
      : "memory");
  return done != 0;
}

__device__ __forceinline__ bool mbarrier_try_wait(u64* barrier, u32 parity) {
  return mbarrier_try_wait_if(true, shared_address(barrier), parity);
}

// The same without blocking: the hardware may suspend the thread in a try, but not in a test.
__device__ __forceinline__ bool mbarrier_test_if(bool predicate, u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred looks, done;\n"
      "setp.ne.u32 looks, %3, 0;\n"
      "setp.eq.u32 done, %3, 0;\n"
      "@looks mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity), "r"(u32(predicate))
      : "memory");
  return done != 0;
}

__device__ __forceinline__ bool mbarrier_test(u64* barrier, u32 parity) {
  return mbarrier_test_if(true, shared_address(barrier), parity);
}

}  // namespace ptx
