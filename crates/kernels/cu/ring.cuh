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
#include "shared.cuh"
#include "xray.cuh"

// A position in the ring, and the parity of its round; both sides step through the same stages.
struct RingCursor {
  int stage = 0;
  u32 parity = 0;

  // The team of consumer warps that uses this stage. A stage always belongs to the same team, so
  // that a team sees every round of its barriers: parity alone cannot tell a missed round from a
  // future one.
  __device__ __forceinline__ int team() const { return stage % shape::TEAMS; }

  __device__ __forceinline__ void advance() {
    if (++stage == shape::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void ring_init(Shared& shared) {
  for (int stage = 0; stage < shape::STAGES; stage++) {
    ptx::mbarrier_init(&shared.full[stage], 1);
    // In X-ray builds the observer releases every stage, too.
    ptx::mbarrier_init(&shared.empty[stage], shape::TEAM_WARPS + xray::ON);
  }
  ptx::mbarrier_init_fence();
}

// Consumers: returns whether a stage's weights have arrived. X-ray builds use a test that never
// blocks, so that the wait itself is recorded.
__device__ __forceinline__ bool is_full(Shared& shared, const RingCursor& cursor) {
  u64* full = &shared.full[cursor.stage];
  return xray::ON ? ptx::mbarrier_test(full, cursor.parity)
                  : ptx::mbarrier_try_wait(full, cursor.parity);
}

// Consumers: spins for a stage's weights. If they do not arrive because the stage was never
// released, the fault record says so. Returns false on abort.
__device__ __forceinline__ bool wait_full(const abi::StepArgs& args, Shared& shared,
                                          const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const u32 stage = cursor.stage, parity = cursor.parity;
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
  u64* empty = &shared.empty[cursor.stage];
  return xray::ON ? ptx::mbarrier_test(empty, cursor.parity ^ 1u)
                  : ptx::mbarrier_try_wait(empty, cursor.parity ^ 1u);
}

// Loader: spins until a stage is released. Its timeout is twice the consumers': it reports only if
// no consumer times out first. Returns false on abort.
__device__ __forceinline__ bool wait_empty(const abi::StepArgs& args, Shared& shared,
                                           const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const u32 stage = cursor.stage, parity = cursor.parity ^ 1u;
  const u32 begin = ptx::global_timer_1024ns();
  while (!ptx::mbarrier_try_wait(&shared.empty[stage], parity)) {
    const Wait wait = {abi::WaitKind::RingEmpty, layer, phase, stage, parity};
    if (is_over(args, begin, 2, wait, parity ^ 1u)) return false;
  }
  return true;
}

// Timeout for copies in flight when the stream ends. A copy takes microseconds: one that has not
// arrived by then was never issued (an injected fault).
constexpr u32 COPY_NS_MOST = 10000000;

// The loader lane's side of the ring. This lane arrives on `full` (with the copy's bytes) and waits
// on `empty`. One lane of each warp of the stage's team arrives on `empty`; that team waits on `full`.
struct Loader {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // Empty in builds without the X-ray.
  ::xray::Stamps stamps;

  // Loads one piece. Returns false on abort.
  __device__ __forceinline__ bool operator()(const u8* from, u32 bytes, u32 layer, abi::Phase phase) {
    const int stage = cursor.stage;
    if (!is_empty(shared, cursor)) {
      xray::waits_for_stage(stamps);
      if (!wait_empty(args, shared, cursor, layer, phase)) return false;
    }
    ptx::fence_proxy_async();
    xray::issue(stamps, bytes, phase, layer);
    const bool injected = args.injected_kind == abi::INJECTED_NO_LOAD &&
                         args.injected_block == blockIdx.x && args.injected_layer == layer &&
                         args.injected_phase == static_cast<u32>(phase);
    if (!injected) {
      ptx::mbarrier_arrive_expect(&shared.full[stage], bytes);
      ptx::bulk_copy(shared.ring[stage], from, bytes, &shared.full[stage]);
    }
    cursor.advance();
    return true;
  }

  // Waits until every issued copy has arrived, with a timeout. Stages before the cursor were last
  // filled in the cursor's round, the others in the round before. A stage that was never filled
  // counts as complete, as in wait_empty.
  __device__ __forceinline__ void wait_for_copies() {
    const u32 begin = ptx::global_timer_1024ns();
#pragma unroll 1
    for (int stage = 0; stage < shape::STAGES; stage++) {
      const u32 parity = stage < cursor.stage ? cursor.parity : cursor.parity ^ 1u;
      while (!ptx::mbarrier_try_wait(&shared.full[stage], parity)) {
        if (ptx::global_timer_1024ns() - begin > COPY_NS_MOST >> 10) return;
      }
    }
  }
};

// Sizes of a tile: its streamed bytes, and the stride to the next tile.
struct TileBytes {
  int streamed, all;
};

// Calls `each` for a contiguous range of tiles, in pieces of at most one stage. Returns false as
// soon as `each` does.
template <class Each>
__device__ __forceinline__ bool each_piece(const u8* tiles, int count, TileBytes tile_bytes, u32 layer,
                                           abi::Phase phase, Each& each) {
#pragma unroll 1
  for (int tile = 0; tile < count; tile++, tiles += tile_bytes.all) {
#pragma unroll 1
    for (int begin = 0; begin < tile_bytes.streamed; begin += shape::STAGE_BYTES) {
      const int bytes = min(tile_bytes.streamed - begin, shape::STAGE_BYTES);
      if (!each(tiles + begin, bytes, layer, phase)) return false;
    }
  }
  return true;
}
