// The loader: one lane that streams this block's weights through the ring, in the order of use, and
// never waits for an activation.
#pragma once
#include "../formats/tiles.cuh"
#include "../phases/table.cuh"
#include "../ring.cuh"
#include "consumer.cuh"

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
  // Copies issued so far.
  u32 issued = 0;

  // Waits until fewer than `most` copies are in flight: more only lengthen the queue before the
  // exchange (notes/chain.md). Returns false on abort.
  __device__ __forceinline__ bool wait_for_flight(u32 most, u32 layer, abi::Phase phase) {
    if (issued < most) return true;
    const u32 oldest = issued - most, stage = oldest % shape::STAGES;
    const u32 parity = oldest / shape::STAGES % 2, begin = ptx::global_timer_1024ns();
    while (!ptx::mbarrier_try_wait(&shared.full[stage], parity)) {
      const Wait wait = {abi::WaitKind::RingFull, layer, phase, stage, parity};
      if (is_over(args, begin, 2, wait, parity ^ 1u)) return false;
    }
    return true;
  }

  // Loads one piece. Returns false on abort.
  __device__ __forceinline__ bool operator()(const u8* from, u32 bytes, u32 layer, abi::Phase phase) {
    const int stage = cursor.stage;
    const u32 most = phase == abi::Phase::LmHead ? shape::HEAD_FLIGHT : shape::FLIGHT;
    if (!wait_for_flight(most, layer, phase)) return false;
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
    issued++;
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

// Calls `each` for every piece of this block's weight stream. Returns false on abort.
template <class Each>
__device__ __forceinline__ bool weight_stream(const abi::StepArgs& args, Each& each) {
#pragma unroll 1
  for (u32 matvec = 0; matvec < matvecs(args); matvec++) {
    const PhaseRow row = phase_row(matvec);
    const TileRange share = tiles_of_block(shape::tiles(row.rows, shape::TILE_ROWS));
    const bool is_head = row.phase == abi::Phase::LmHead;
    const TileBytes bytes = is_head ? tile_bytes<HeadFormat>(row.columns) : tile_bytes<LayerFormat>(row.columns);
    const u8* tiles = matrix_of(args, matvec) + u64(share.begin) * bytes.all;
    const int count = share.end - share.begin;
    if (!each_piece(tiles, count, bytes, layer_of(matvec), row.phase, each)) return false;
  }
  return true;
}
