// The weight ring: stages of shared memory that one lane fills with bulk copies, in the order in
// which the consumer warps will want them, and never waiting for an activation.
#pragma once
#include "fault.cuh"
#include "shared.cuh"

// Place in the ring, and how often it has been round; both sides step through the same stages.
struct RingCursor {
  int stage = 0;
  u32 parity = 0;

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
    ptx::mbarrier_init(&shared.empty[stage], shape::CONSUMER_WARPS);
  }
  ptx::mbarrier_init_fence();
}

// Consumers: waits for a stage's weights. What keeps them away may be that the stage was never
// released, and then that is said. False if the launch is to be left.
__device__ __forceinline__ bool wait_full(const abi::StepArgs& args, Shared& shared,
                                          const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const int stage = cursor.stage;
  const u32 parity = cursor.parity;
  return wait_until(
      args, abi::WaitKind::RingFull,
      [&] { return ptx::mbarrier_try_wait(&shared.full[stage], parity); },
      [&](u32& seen) {
        const bool released = ptx::mbarrier_try_wait(&shared.empty[stage], parity ^ 1u);
        seen = parity ^ 1u;
        return Wait{released ? abi::WaitKind::RingFull : abi::WaitKind::RingEmpty, layer, phase,
                    u32(stage), parity};
      });
}

// Loader: waits until a stage is released. The first round finds every stage empty: a barrier's
// phase before its first has parity 1.
__device__ __forceinline__ bool wait_empty(const abi::StepArgs& args, Shared& shared,
                                           const RingCursor& cursor, u32 layer, abi::Phase phase) {
  const int stage = cursor.stage;
  const u32 parity = cursor.parity ^ 1u;
  return wait_until(
      args, abi::WaitKind::RingEmpty,
      [&] { return ptx::mbarrier_try_wait(&shared.empty[stage], parity); },
      [&](u32& seen) {
        seen = parity ^ 1u;
        return Wait{abi::WaitKind::RingEmpty, layer, phase, u32(stage), parity};
      });
}

// The loading lane's side. Who arrives: this lane on `full` (with the copy's bytes), one lane of
// every consumer warp on `empty`. Who waits: this lane on `empty`, every consumer warp on `full`.
struct Loader {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;

  // Streams a contiguous range of tiles of `COLUMNS` columns.
  template <int COLUMNS>
  __device__ bool stream(const u8* tiles, int count, u32 layer, abi::Phase phase) {
    for (int tile = 0; tile < count; tile++) {
      for (int piece = 0; piece < shape::pieces(COLUMNS); piece++) {
        const int begin = piece * shape::STAGE_BYTES;
        const int rest = shape::tile_bytes(COLUMNS) - begin;
        const int bytes = rest < shape::STAGE_BYTES ? rest : shape::STAGE_BYTES;
        if (!load(tiles + begin, bytes, layer, phase)) return false;
      }
      tiles += shape::tile_bytes(COLUMNS);
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
