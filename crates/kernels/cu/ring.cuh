// The weight ring: stages of shared memory that one lane fills with bulk copies, in the order in
// which the consumer warps will want them, and never waiting for an activation.
#pragma once
#include "fault.cuh"
#include "shared.cuh"

// Place in the ring, and how often it has been round; both sides step through the same stages.
struct RingCursor {
  int stage = 0;
  u32 parity = 0;

  // The team of consumer warps that this stage belongs to. A stage belongs to one team for good,
  // so that a team sees every round of its barriers: by parity it could not tell a round that it
  // missed from one that is still to come.
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
    ptx::mbarrier_init(&shared.empty[stage], shape::TEAM_WARPS);
  }
  ptx::mbarrier_init_fence();
}

// Consumers: spins for a stage's weights. What keeps them away may be that the stage was never
// released, and then that is said. False if the launch is to be left.
__device__ __forceinline__ bool wait_full_slowly(const abi::StepArgs& args, Shared& shared, u32 stage,
                                              u32 parity, u32 layer, abi::Phase phase) {
  const u32 begin = ptx::global_timer_1024ns();
  while (!ptx::mbarrier_try_wait(&shared.full[stage], parity)) {
    const bool released = ptx::mbarrier_try_wait(&shared.empty[stage], parity ^ 1u);
    const abi::WaitKind kind = released ? abi::WaitKind::RingFull : abi::WaitKind::RingEmpty;
    const Wait wait = {kind, layer, phase, stage, parity};
    if (is_over(args, begin, 1, wait, parity ^ 1u)) return false;
  }
  return true;
}

// Loader: spins until a stage is released. It is always waiting where its consumers are, and so
// waits longer than they do: it is only heard of when nobody else complains.
__device__ __forceinline__ bool wait_empty_slowly(const abi::StepArgs& args, Shared& shared, u32 stage,
                                               u32 parity, u32 layer, abi::Phase phase) {
  const u32 begin = ptx::global_timer_1024ns();
  while (!ptx::mbarrier_try_wait(&shared.empty[stage], parity)) {
    const Wait wait = {abi::WaitKind::RingEmpty, layer, phase, stage, parity};
    if (is_over(args, begin, 2, wait, parity ^ 1u)) return false;
  }
  return true;
}

__device__ __forceinline__ bool wait_full(const abi::StepArgs& args, Shared& shared,
                                          const RingCursor& cursor, u32 layer, abi::Phase phase) {
  if (ptx::mbarrier_try_wait(&shared.full[cursor.stage], cursor.parity)) return true;
  return wait_full_slowly(args, shared, cursor.stage, cursor.parity, layer, phase);
}

// The first round finds every stage empty: a barrier's phase before its first has parity 1.
__device__ __forceinline__ bool wait_empty(const abi::StepArgs& args, Shared& shared,
                                           const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const u32 parity = cursor.parity ^ 1u;
  if (ptx::mbarrier_try_wait(&shared.empty[cursor.stage], parity)) return true;
  return wait_empty_slowly(args, shared, cursor.stage, parity, layer, phase);
}

// The loading lane's side. Who arrives: this lane on `full` (with the copy's bytes), one lane of
// each warp of the stage's team on `empty`. Who waits: this lane on `empty`, that team on `full`.
struct Loader {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;

  // Streams a contiguous range of tiles, each in pieces of at most a stage.
  __device__ __forceinline__ bool stream(const u8* tiles, int count, int tile_bytes, u32 layer,
                                         abi::Phase phase) {
#pragma unroll 1
    for (int tile = 0; tile < count; tile++, tiles += tile_bytes) {
#pragma unroll 1
      for (int begin = 0; begin < tile_bytes; begin += shape::STAGE_BYTES) {
        const int bytes = min(tile_bytes - begin, shape::STAGE_BYTES);
        if (!load(tiles + begin, bytes, layer, phase)) return false;
      }
    }
    return true;
  }

  __device__ __forceinline__ bool load(const u8* from, u32 bytes, u32 layer, abi::Phase phase) {
    const int stage = cursor.stage;
    if (!wait_empty(args, shared, cursor, layer, phase)) return false;
    const bool planted = args.planted_kind == abi::PLANTED_NO_LOAD &&
                         args.planted_block == blockIdx.x && args.planted_layer == layer &&
                         args.planted_phase == static_cast<u32>(phase);
    if (!planted) {
      ptx::mbarrier_arrive_expect(&shared.full[stage], bytes);
      ptx::bulk_copy(shared.ring[stage], from, bytes, &shared.full[stage]);
    }
    cursor.advance();
    return true;
  }
};
