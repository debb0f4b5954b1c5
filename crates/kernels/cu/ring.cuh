// The weight ring: stages of shared memory. One lane fills them with bulk copies, in the order in
// which the consumer warps use them, and never waits for an activation.
//
// Two proxies access a stage: the bulk copy writes it through the async proxy, the consumers read
// it through the generic proxy. In the PTX ISA's memory model, only a proxy fence along the
// causality path between them orders accesses through different proxies.
//
//   Copy, then read. "The completion of cp.async.bulk operations is followed by an implicit
//   generic-async proxy fence": a thread that sees the `full` barrier's phase complete (try_wait,
//   acquire) sees the bytes.
//   Read, then copy (the next round overwrites the stage). Each warp arrives on `empty` (release)
//   after its reads, and the loader waits there (acquire). The loader then executes
//   fence.proxy.async, which is the proxy fence on that path: the same thread issues the copy.
//   CUTLASS's pipelines omit the fence, since a read is performed before the release that follows
//   it; the memory model does not promise that across proxies.
//
// No thread writes a stage through the generic proxy. The barriers are initialized through it:
// fence.mbarrier_init makes that visible to the copies (ring_init).
#pragma once
#include "fault.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "shape.cuh"
#include "xray.cuh"

// A position in the ring, and the parity of its round; both sides step through the same stages.
struct RingCursor {
  // The stage, and the stages again in rounds of the other parity: one register for both.
  u32 at = 0;

  __device__ __forceinline__ u32 stage() const { return at < shape::STAGES ? at : at - shape::STAGES; }
  __device__ __forceinline__ u32 parity() const { return at >= shape::STAGES; }
  __device__ __forceinline__ void advance(u32 stages = 1) {
    at += stages;
    if (at >= 2 * shape::STAGES) at -= 2 * shape::STAGES;
  }

  // The position some stages on.
  __device__ __forceinline__ RingCursor ahead(u32 stages) const {
    RingCursor other = *this;
    other.advance(stages);
    return other;
  }
};

__device__ __forceinline__ void ring_init(Shared& shared) {
  for (int stage = 0; stage < shape::STAGES; stage++) {
    ptx::mbarrier_init(&shared.full[stage], 1);
    // In X-ray builds the observer releases every stage, too.
    ptx::mbarrier_init(&shared.empty[stage], shape::CONSUMER_WARPS + xray::ON);
  }
  for (int buffer = 0; buffer < 2; buffer++) ptx::mbarrier_init(&shared.read[buffer], 1);
  ptx::mbarrier_init_fence();
}

// From a stage's `full` barrier to its `empty` one.
constexpr u32 EMPTY_BEHIND_FULL = __builtin_offsetof(Shared, empty) - __builtin_offsetof(Shared, full);

// Consumers: whether the weights of a stage, whose barrier lies at this address, have arrived; true for lanes
// that do not look. X-ray builds use a test that never blocks, so that the wait itself is recorded.
__device__ __forceinline__ bool is_full_if(bool looks, u32 full, u32 parity) {
  return xray::ON ? ptx::mbarrier_test_if(looks, full, parity) : ptx::mbarrier_try_wait_if(looks, full, parity);
}

__device__ __forceinline__ bool is_full(Shared& shared, const RingCursor& cursor) {
  return is_full_if(true, ptx::shared_address(&shared.full[cursor.stage()]), cursor.parity());
}

// Consumers: spins for a stage's weights. If they do not arrive because the stage was never
// released, the fault record says so. Returns false on abort.
__device__ __forceinline__ bool wait_full(const abi::StepArgs& args, Shared& shared,
                                          const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const u32 stage = cursor.stage(), parity = cursor.parity();
  const u32 begin = ptx::global_timer_1024ns();
  while (!ptx::mbarrier_try_wait(&shared.full[stage], parity)) {
    const bool released = ptx::mbarrier_try_wait(&shared.empty[stage], parity ^ 1u);
    const abi::WaitKind kind = released ? abi::WaitKind::RingFull : abi::WaitKind::RingEmpty;
    const Wait wait = {kind, layer, phase, stage, parity};
    if (is_over(args, begin, 1, wait, parity ^ 1u)) return false;
  }
  return true;
}

// Loader: returns whether a stage is released. The first round finds every stage empty, since the
// phase before a barrier's first one has parity 1.
__device__ __forceinline__ bool is_empty(Shared& shared, const RingCursor& cursor) {
  u64* empty = &shared.empty[cursor.stage()];
  return xray::ON ? ptx::mbarrier_test(empty, cursor.parity() ^ 1u)
                  : ptx::mbarrier_try_wait(empty, cursor.parity() ^ 1u);
}

// Loader: spins until a stage is released. Its timeout is twice the consumers': it reports only if
// no consumer times out first. Returns false on abort.
__device__ __forceinline__ bool wait_empty(const abi::StepArgs& args, Shared& shared,
                                           const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const u32 stage = cursor.stage(), parity = cursor.parity() ^ 1u;
  const u32 begin = ptx::global_timer_1024ns();
  while (!ptx::mbarrier_try_wait(&shared.empty[stage], parity)) {
    const Wait wait = {abi::WaitKind::RingEmpty, layer, phase, stage, parity};
    if (is_over(args, begin, 2, wait, parity ^ 1u)) return false;
  }
  return true;
}
