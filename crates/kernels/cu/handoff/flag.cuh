// Flag-in-data: producers publish and consumers poll flagged words (units), as in NCCL's LL
// protocol: 4 bytes of data (an fp32 value) and 4 bytes of flag (the step's epoch) in one 64-bit
// store. Every (layer, phase) has its own slot, which is written once per step, so nothing is ever
// reset. No block overwrites a slot that another still reads: launches run one after another, and
// each ends only when every block has read all its inputs.
#pragma once
#include "../xray.cuh"
#include "slot.cuh"
#include "unit.cuh"

struct FlagInData {
  // Makes a value visible to the next phase.
  __device__ static __forceinline__ void publish(const abi::StepArgs& args, const Slot& slot, int index,
                                                 float value) {
    if (withholds(args, slot)) return;
    ptx::store_relaxed(slot.units + index, unit_of(value, args.epoch));
  }

  // Polls up to `N` pairs of neighbouring units of a slot and calls `each(at, values)` for each:
  // the pairs for which `used(at)` holds, at the even index `index(at)`. It first loads all pairs,
  // so that the loads overlap, and then polls only the missing ones, since every poll delays the
  // stores that it waits for. Returns false on abort.
  template <int N, class Used, class Index, class Each>
  __device__ static __forceinline__ bool poll(const abi::StepArgs& args, ::xray::Notes& log,
                                       const Slot& slot, Used used, Index index, Each each) {
    Words words[N];
#pragma unroll
    for (int at = 0; at < N; at++) {
      if (used(at)) words[at] = load_pair(slot.units + index(at));
    }
    xray::begin_polls(log);
    bool ok = true;
#pragma unroll
    for (int at = 0; at < N; at++) {
      if (!used(at)) continue;
      if (!are_of(words[at], args.epoch)) {
        words[at] = wait_pair(args, log, slot, index(at));
      }
      ok = are_of(words[at], args.epoch) && ok;
      each(at, float2{value_of(words[at].first), value_of(words[at].second)});
    }
    return ok;
  }

  // After the last value of a phase: nothing, since each value carries its own flag.
  __device__ static __forceinline__ void phase_end() {}

 private:
  // Spins until two neighbouring units (the first index is even) have this step's epoch, and returns
  // their words. On abort it returns words of another epoch.
  __device__ static __forceinline__ Words wait_pair(const abi::StepArgs& args, ::xray::Notes& log,
                                             const Slot& slot, int index) {
    const u32 begin = ptx::global_timer_1024ns();
#pragma unroll 1
    for (u32 spins = 1;; spins++) {
      const Words words = load_pair(slot.units + index);
      if (are_of(words, args.epoch)) {
        xray::saw(log, slot.units + index, spins);
        return words;
      }
      if (spins % SPINS_PER_LOOK != 0) continue;
      const bool second = epoch_of(words.first) == args.epoch;
      const Wait wait = {abi::WaitKind::Exchange, slot.layer, slot.phase,
                         u32(slot.units - args.slots) + index + second, args.epoch};
      const u32 seen = epoch_of(second ? words.second : words.first);
      if (is_over(args, begin, 1, wait, seen)) return words;
    }
  }
};
