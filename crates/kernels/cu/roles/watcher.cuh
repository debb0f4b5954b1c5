// In X-ray builds only: a lane in a separate warp reads the clock when thread 0 notes a moment. It
// is a short loop: one with 14 KB of code, which also decoded the notes, cost the consumers 9 us of
// a 540 us token on an H200 (notes/xray.md).
#pragma once
#include "../fault.cuh"
#include "idle.cuh"

namespace xray {

// Number of looks between two checks of the timer and the abort word.
constexpr u32 WATCHER_LOOKS = 4096;

// Loads a note until it is written, at most WATCHER_LOOKS times. Returns the clock of the last load.
__device__ __forceinline__ u32 look_at(const u32* place, u32& note) {
  u32 clock;
#pragma unroll 1
  for (u32 looks = 0; looks < WATCHER_LOOKS; looks++) {
    note = ptx::load_shared(place);
    clock = ptx::clock32();
    if (note != 0) break;
    // Without this pause a token takes 0.3% longer on an H200: the loads delay the consumers' own
    // accesses to shared memory.
    __nanosleep(20);
  }
  return clock;
}

// The watcher: loads the next note every 20 to 60 ns. Behind a barrier of the consumers no warp is at the
// gather before it, so the unit that was waited for last is that gather's: it becomes a record of its own.
__device__ __forceinline__ void watch(const abi::StepArgs& args) {
  if (!ON) return;
  Log<NOTES_AT, abi::XRAY_NOTES, uint2> log(args);
  Idle idle;
  u32 notes = 0;
  auto moment = abi::Moment::None;
#pragma unroll 1
  while (moment != abi::Moment::Ended) {
    u32* place = &words.notes[notes % NOTES];
    u32 note, clock = look_at(place, note);
    if (note == 0) {
      if (!idle.expects_more(args, notes)) return;
      continue;
    }
    ptx::store_shared(place, 0);
    notes++;
    moment = static_cast<abi::Moment>(note % (1u << abi::XRAY_MOMENT_BITS));
    if (moment == abi::Moment::Began) clock = words.begin;
    if (moment == abi::Moment::Passed) {
      const uint2 last = last_unit(args);
      log.put({last.y, static_cast<u32>(abi::Moment::Saw) | last.x << abi::XRAY_MOMENT_BITS});
    }
    log.put({clock, note});
  }
  if (log.to != nullptr) log.header()->notes = log.count;
  ptx::store_shared(&words.ended, 1);
}

}  // namespace xray
