// In X-ray builds only: a lane in a separate warp records when every copy arrives, and takes
// anchors, which tie the SM's clock to the timer that all SMs share.
#pragma once
#include "../ring.cuh"
#include "idle.cuh"

namespace xray {

// Number of looks between two anchors, of about 0.1 us each; a copy counts for several. The clock's
// rate follows the load within microseconds, between 1.6 and 2.0 GHz on an H200, and its changes
// between two anchors are not recorded.
constexpr u32 LOOKS_PER_ANCHOR = 12;
constexpr u32 LOOKS_PER_COPY = 6;
// Most clocks between the two clock readings around the timer's reading in a valid anchor.
constexpr u32 ANCHOR_CLOCKS_MOST = 128;

// Reads one moment on both clocks. Returns false if the readings are too far apart.
__device__ __forceinline__ bool take_anchor(ulonglong2& anchor) {
  const u64 before = ptx::clock64(), global = ptx::global_timer_ns(), after = ptx::clock64();
  anchor = {before + (after - before) / 2, global};
  return after - before <= ANCHOR_CLOCKS_MOST;
}

// The observer waits for every stage in turn, as the consumers do. A stage is free only when the
// observer has released it too (ring_init), so it misses no round. It writes the header's epoch
// last: a header that holds a step's epoch is complete.
__device__ __forceinline__ void observe(const abi::StepArgs& args, Shared& shared) {
  if (!ON) return;
  Log<ARRIVALS_AT, abi::XRAY_COPIES, u32> arrivals(args);
  Log<ANCHORS_AT, abi::XRAY_ANCHORS, ulonglong2> anchors(args);
  RingCursor cursor;
  abi::XrayHeader* header = anchors.header();
  if (header != nullptr) {
    header->begin_clock = ptx::clock64();
    header->sm_begin = ptx::sm();
  }
  Idle idle;
  // The first look takes an anchor, which is older than most stamps; the last look takes one too.
  u32 due = LOOKS_PER_ANCHOR;
  bool done = false;
#pragma unroll 1
  for (u32 looks = 1; !done; looks++) {
    const bool ended = ptx::load_shared(&words.ended) != 0;
    if (ptx::mbarrier_test(&shared.full[cursor.stage()], cursor.parity())) {
      arrivals.put(ptx::clock32());
      ptx::mbarrier_arrive(&shared.empty[cursor.stage()]);
      cursor.advance();
      due += LOOKS_PER_COPY;
    } else if (looks % SPINS_PER_LOOK == 0 && !idle.expects_more(args, arrivals.count)) {
      return;
    } else {
      // Leaves the issue slots to the computing warps.
      __nanosleep(40);
    }
    done = ended && ptx::load_shared(&words.issued) == 1 + arrivals.count;
    ulonglong2 anchor;
    if ((done || ++due >= LOOKS_PER_ANCHOR) && take_anchor(anchor)) anchors.put(anchor), due = 0;
  }
  if (header == nullptr) return;
  header->arrivals = arrivals.count;
  header->anchors = anchors.count;
  header->sm_end = ptx::sm();
  header->epoch = args.epoch;
}

}  // namespace xray
