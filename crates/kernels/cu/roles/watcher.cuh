// In X-ray builds only: a lane in a separate warp reads the clock when thread 0 notes a moment. It
// is a short loop: one with 14 KB of code, which also decoded the notes, cost the consumers 9 us of
// a 540 us token on an H200 (notes/xray.md).
#pragma once
#include "../fault.cuh"
#include "idle.cuh"

namespace xray {

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
    // Units that other warps saw before thread 0 began to wait do not count.
    if (begins_wait(moment)) ptx::store_shared(&words.last, last.address = 0);
    log.put({clock, note});
  }
  if (log.to != nullptr) log.header()->notes = log.count;
  ptx::store_shared(&words.ended, 1);
}

}  // namespace xray
