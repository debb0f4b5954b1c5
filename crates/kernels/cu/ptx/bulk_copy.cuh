// Bulk copies to shared memory, in the async proxy.
#pragma once
#include "memory.cuh"

namespace ptx {

// Orders what this thread knows of shared memory in the generic proxy before its next operations in
// the async proxy, and the other way round.
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

}  // namespace ptx
