// The observer, in X-ray builds only: one lane in a warp of its own that sees every copy arrive,
// pins the SM's clock to the timer that all SMs share, and carries thread 0's stamps to memory.
#pragma once
#include "ring.cuh"

namespace xray {

// Between two anchors: copies, and looks at a stage that is not there, which take about 0.1 us.
// The clock's rate follows the load within microseconds, between 1.6 and 2.0 GHz on an H200, and
// what it does between two anchors is not seen.
constexpr u32 ANCHOR_EVERY_COPIES = 2;
constexpr u32 ANCHOR_EVERY_LOOKS = 12;
// Longest time between the two readings around the timer's, in clocks, for an anchor to count.
constexpr u32 ANCHOR_CLOCKS_MOST = 128;

// One moment on both clocks. False where the readings lie too far apart.
__device__ __forceinline__ bool put_anchor(const abi::StepArgs& args, u32 at) {
  const u64 before = ptx::clock64(), global = ptx::global_timer_ns(), after = ptx::clock64();
  if (after - before > ANCHOR_CLOCKS_MOST) return false;
  if (args.xray != nullptr && at < abi::XRAY_ANCHORS) {
    u64* to = reinterpret_cast<u64*>(buffers(args) + ANCHORS_AT) + 2 * at;
    to[0] = before + (after - before) / 2;
    to[1] = global;
  }
  return true;
}

// Before the first barrier of the launch.
__device__ __forceinline__ void begin(const abi::StepArgs& args) {
  if constexpr (ON) {
    clear_words();
    if (threadIdx.x == 0) words.begin = ptx::clock32();
    // The observer's first anchor is older than everybody's first stamp.
    if (threadIdx.x == shape::OBSERVER) {
      words.anchors = 0;
      for (int tries = 0; tries < 4 && words.anchors == 0; tries++) words.anchors = put_anchor(args, 0);
    }
  }
}

// Waits for every stage in its turn, as the consumers do. A stage is free only when the observer
// has released it too (ring_init), so that it misses no round.
struct Observer {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  Log arrivals, anchors, stamps;
  // Thread 0 has sent its last stamp.
  bool ended = false;

  __device__ __forceinline__ void anchor() { anchors.count += put_anchor(args, anchors.count); }

  __device__ __forceinline__ void begin() {
    if (args.xray != nullptr) {
      abi::XrayHeader* to = header(args);
      to->begin_clock = ptx::clock64();
      to->sm_begin = ptx::sm();
      to->epoch = args.epoch;
    }
    anchors.count = words.anchors;
  }

  // When the last value of a gather was seen, counted from the launch's beginning, and its pair of
  // units, from 1; 0 where none had to be waited for. Clears what the warps left.
  __device__ __forceinline__ u32 last_seen(int gather) {
    u32 latest = 0;
    for (int warp = 0; warp < shape::CONSUMER_WARPS; warp++) {
      const u32 key = words.latest[gather][warp];
      if (key != 0) latest = max(latest, key - ticks_of(words.begin));
      words.latest[gather][warp] = 0;
    }
    return latest;
  }

  // Takes thread 0's next stamp, if there is one.
  __device__ __forceinline__ void drain() {
    u64* entry = &words.mail[stamps.count % MAIL];
    const u64 mail = ptx::load_shared(entry);
    if (mail == 0) return;
    ptx::store_shared(entry, 0);
    u32 clock = u32(mail), tag = u32(mail >> 32);
    if (tag >> 16 & GATHERED) {
      const u32 latest = last_seen(tag >> 16 & ~GATHERED);
      if (latest != 0) clock = words.begin + (latest >> PAIR_BITS << TICK_BITS);
      tag = (tag & 0xffff) | (latest & PAIR_MOST) << 16;
    }
    ended = (tag & 0xf) == static_cast<u32>(abi::EventKind::Unrecorded);
    put<CONSUMER_AT, abi::XRAY_CONSUMER>(args, stamps, clock, tag);
  }

  // A piece of the weight stream: false if the launch is to be left.
  __device__ __forceinline__ bool operator()(const u8*, u32, u32 layer, abi::Phase phase) {
    const Wait wait = {abi::WaitKind::RingFull, layer, phase, u32(cursor.stage), cursor.parity};
    const u32 begin = ptx::global_timer_1024ns();
    // Longer than the consumers, who are the ones to complain.
    for (u32 spins = 1; !ptx::mbarrier_test(&shared.full[cursor.stage], cursor.parity); spins++) {
      drain();
      // The warps that compute have the better use for the issue slots.
      __nanosleep(40);
      if (spins % ANCHOR_EVERY_LOOKS == 0) anchor();
      if (spins % SPINS_PER_LOOK == 0 && is_over(args, begin, 2, wait, cursor.parity ^ 1u)) return false;
    }
    put<ARRIVALS_AT, abi::XRAY_ARRIVALS>(args, arrivals, ptx::clock32(),
                                         tag_of(abi::EventKind::Work, phase, layer));
    ptx::mbarrier_arrive(&shared.empty[cursor.stage]);
    cursor.advance();
    if (arrivals.count % ANCHOR_EVERY_COPIES == 0) anchor();
    return true;
  }

  // Whether to wait for more of thread 0's stamps. If the observer was ever a whole mailbox behind,
  // the last one may be where it does not look: then it ends with the consumers' patience.
  __device__ __forceinline__ bool expects_more(u32 begin) const {
    if (ended || ptx::load_relaxed(&args.control->abort) != 0) return false;
    return u64(ptx::global_timer_1024ns() - begin) << 10 <= args.patience_ns;
  }

  // The consumers' last stamps come after the last piece.
  __device__ __forceinline__ void end() {
    const u32 begin = ptx::global_timer_1024ns();
    for (u32 looks = 1; expects_more(begin); looks++) {
      drain();
      __nanosleep(40);
      if (looks % ANCHOR_EVERY_LOOKS == 0) anchor();
    }
    anchor();
    if (args.xray == nullptr) return;
    abi::XrayHeader* to = header(args);
    to->consumer = stamps.count;
    to->missed = *const_cast<volatile u32*>(&words.sent) - stamps.count;
    to->arrivals = arrivals.count;
    to->anchors = anchors.count;
    to->sm_end = ptx::sm();
  }
};

// The observer's life: `stream` hands it every piece of the block's weight stream.
template <class Stream>
__device__ __forceinline__ void observe(const abi::StepArgs& args, Shared& shared, Stream stream) {
  if (!ON) return;
  Observer observer{args, shared};
  observer.begin();
  stream(observer);
  observer.end();
}

}  // namespace xray
