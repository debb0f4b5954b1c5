// In X-ray builds only: two lanes, each in its own warp. The watcher reads the clock when thread 0
// notes a moment. The observer records when every copy arrives, and takes anchors, which tie the
// SM's clock to the timer that all SMs share. Both are short loops: an observer with 14 KB of code,
// which also decoded the notes, cost the consumers 9 us of a 540 us token on an H200
// (notes/xray.md).
#pragma once
#include "ring.cuh"

namespace xray {

// How long a lane has seen nothing new. Every record restarts its timeout: a launch may consist of
// many long waits, each within the consumers' timeout.
struct Idle {
  u32 begin = ptx::global_timer_1024ns(), count = 0;

  // Returns whether to keep looking, after `records` in all: the observed roles may have aborted.
  __device__ __forceinline__ bool expects_more(const abi::StepArgs& args, u32 records) {
    if (ptx::load_relaxed(&args.control->abort) != 0) return false;
    const u32 now = ptx::global_timer_1024ns();
    if (records != count) begin = now, count = records;
    return u64(now - begin) << 10 <= 3 * args.timeout_ns;
  }
};

// ---- the watcher

// Number of looks between two checks of the timer and the abort word.
constexpr u32 WATCHER_LOOKS = 4096;

__device__ __forceinline__ bool begins_wait(abi::Moment moment) {
  return moment >= abi::Moment::Asked && moment <= abi::Moment::AskedLogits;
}

// The last polled units, as the watcher has seen them.
struct Last {
  u32 address = 0, clock = 0;
};

// Loads a note and the last units until the note is written, at most WATCHER_LOOKS times. Returns
// the clock of the last load.
__device__ __forceinline__ u32 look_at(const u32* place, u32& note, Last& last) {
  u32 clock;
#pragma unroll 1
  for (u32 looks = 0; looks < WATCHER_LOOKS; looks++) {
    note = ptx::load_shared(place);
    const u32 address = ptx::load_shared(&words.last);
    clock = ptx::clock32();
    if (address != last.address) last = {address, clock};
    if (note != 0) break;
    // Without this pause a token takes 0.3% longer on an H200: the loads delay the consumers' own
    // accesses to shared memory.
    __nanosleep(20);
  }
  return clock;
}

// The watcher: loads the next note and the last units every 20 to 60 ns.
__device__ __forceinline__ void watch(const abi::StepArgs& args) {
  if (!ON) return;
  Log<CONSUMER_AT, abi::XRAY_CONSUMER, uint2> log(args);
  Idle idle;
  Last last;
  auto moment = abi::Moment::None;
#pragma unroll 1
  while (moment != abi::Moment::Ended) {
    u32* place = &words.notes[log.count % NOTES];
    u32 note, clock = look_at(place, note, last);
    if (note == 0) {
      if (!idle.expects_more(args, log.count)) return;
      continue;
    }
    ptx::store_shared(place, 0);
    moment = static_cast<abi::Moment>(note % (1u << abi::XRAY_MOMENT_BITS));
    if (moment == abi::Moment::Began) clock = words.begin;
    if (moment == abi::Moment::Gathered && last.address != 0) {
      const u32 unit = (last.address - u32(reinterpret_cast<u64>(args.slots))) / sizeof(u64);
      clock = last.clock, note |= (1 + unit) << abi::XRAY_MOMENT_BITS;
    }
    // Units that other warps saw before thread 0 began to wait do not count.
    if (begins_wait(moment)) ptx::store_shared(&words.last, last.address = 0);
    log.put({clock, note});
  }
  if (log.to != nullptr) log.header()->consumer = log.count;
  ptx::store_shared(&words.ended, 1);
}

// ---- the observer

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
    if (ptx::mbarrier_test(&shared.full[cursor.stage], cursor.parity)) {
      arrivals.put(ptx::clock32());
      ptx::mbarrier_arrive(&shared.empty[cursor.stage]);
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
