// Bulk copies to shared memory, through the async proxy.
#pragma once
#include "memory.cuh"

namespace ptx {

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

// Asks for global memory to be brought into L2. Addresses and sizes as above.
__device__ __forceinline__ void bulk_prefetch(const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace ptx
