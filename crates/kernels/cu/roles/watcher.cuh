// In X-ray builds only: a lane in a warp of its own reads the clock when thread 0 notes a moment. It
// is a short loop: one of 14 KB of code, which also decoded the notes, cost the consumers 9 us of a
// token of 540 on an H200 (notes/xray.md).
#pragma once
#include "../fault.cuh"
#include "idle.cuh"

namespace xray {

// Looks between two looks at the timer and the abort word.
constexpr u32 WATCHER_LOOKS = 4096;

__device__ __forceinline__ bool begins_wait(abi::Moment moment) {
  return moment >= abi::Moment::Asked && moment <= abi::Moment::AskedLogits;
}

// What the watcher has seen of the last units that were polled.
struct Last {
  u32 address = 0, clock = 0;
};

// Looks at a note, and at the last units, until the note is there or it has looked WATCHER_LOOKS
// times. Returns the clock of the last look.
__device__ __forceinline__ u32 look_at(const u32* place, u32& note, Last& last) {
  u32 clock;
#pragma unroll 1
  for (u32 looks = 0; looks < WATCHER_LOOKS; looks++) {
    note = ptx::load_shared(place);
    const u32 address = ptx::load_shared(&words.last);
    clock = ptx::clock32();
    if (address != last.address) last = {address, clock};
    if (note != 0) break;
    // Without this pause a token takes 0.3% longer on an H200: the consumers need shared memory, too.
    __nanosleep(20);
  }
  return clock;
}

// The watcher: it looks at the next note and at the last units again and again, every 20 to 60 ns.
__device__ __forceinline__ void watch(const abi::StepArgs& args) {
  if (!ON) return;
  Log<NOTES_AT, abi::XRAY_NOTES, uint2> log(args);
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
    // What other warps saw before thread 0 began to wait does not count.
    if (begins_wait(moment)) ptx::store_shared(&words.last, last.address = 0);
    log.put({clock, note});
  }
  if (log.to != nullptr) log.header()->notes = log.count;
  ptx::store_shared(&words.ended, 1);
}

}  // namespace xray
