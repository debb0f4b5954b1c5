// Flag-in-data in lines: producers publish and consumers poll the data itself, with the flag in the data
// as in NCCL's LL protocol. A unit is 8 bytes, written by one store: two values, rounded to 24 bits each,
// and the low 16 bits of the step's epoch. A block's units lie in 128-byte lines of their own, because an
// all-gather of adjacent units takes three times as long under a stream of weights (3.2 against 1.05 us
// at 2 TB/s on an H200, notes/chain.md).
//
// Every (layer, phase) has its own slot, and a step does not reset it. An epoch's 16 bits are never zero,
// which is what an empty slot holds, and the host empties all slots before they come again, so that no older
// value looks fresh. No block is lapped: launches follow one another, and a launch ends only when every block
// has read all it needs.
#pragma once
#include "../xray.cuh"
#include "publish.cuh"

struct Lines : Publisher {
  static constexpr bool COUNTS_PIECES = false, COUNTS_BLOCKS = false;

  // Every unit says itself that it is there.
  __device__ static __forceinline__ void begin(const abi::StepArgs&) {}
  __device__ static __forceinline__ void finish_pieces(const abi::StepArgs&, const Shared&, const Slot&, int,
                                                       int) {}
  __device__ static __forceinline__ void finish_phase(const abi::StepArgs&, const Shared&, const Slot&) {}

  // Looks at up to `N` units of a slot, those for which `used(at)` holds, at `place(at)`: the loads are on
  // their way when it returns.
  template <int N, class Used, class Place>
  __device__ static __forceinline__ void look(const abi::StepArgs& args, const Slot& slot, Used used,
                                              Place place, u64 (&units)[N]) {
#pragma unroll
    for (int at = 0; at < N; at++) units[at] = used(at) ? ptx::load_relaxed(slot.units + place(at)) : args.epoch;
  }

  // After `look`: waits until all of the units have been published. All that are missing are loaded in one go,
  // so that a wait is one trip to L2 however many arrive late. Returns false on abort; does not wait if the
  // block has failed.
  template <int N, class Used, class Place>
  __device__ static __forceinline__ bool poll(const abi::StepArgs& args, const Shared& shared,
                                              ::xray::Notes& log, const Slot& slot, Used, Place place,
                                              u64 (&units)[N]) {
    const u32 epoch = args.epoch;
    bool all = true;
#pragma unroll
    for (int at = 0; at < N; at++) all = all && is_of(units[at], epoch);
    bool ok = true;
    if (!all && !has_failed(shared)) ok = wait(args, log, slot, place, units);
    __syncwarp();
    return ok;
  }

 private:
  template <int N, class Place>
  __device__ static __forceinline__ bool wait(const abi::StepArgs& args, ::xray::Notes& log,
                                              const Slot& slot, Place place, u64 (&units)[N]) {
    const u32 epoch = args.epoch, begin = ptx::global_timer_1024ns();
    xray::Missed missed;
#pragma unroll 1
    for (u32 spins = 1;; spins++) {
      bool all = true;
#pragma unroll
      for (int at = 0; at < N; at++) {
        xray::misses(missed, !is_of(units[at], epoch), at);
        if (!is_of(units[at], epoch)) units[at] = ptx::load_relaxed(slot.units + place(at));
      }
#pragma unroll
      for (int at = 0; at < N; at++) all = all && is_of(units[at], epoch);
      xray::saw(log, all, slot.units + place(missed.at));
      if (all) return true;
      if (spins % SPINS_PER_LOOK != 0) continue;
      int missing = place(0);
      u32 seen = u32(units[0]);
#pragma unroll
      for (int at = N - 1; at >= 0; at--) {
        if (!is_of(units[at], epoch)) missing = place(at), seen = u32(units[at]);
      }
      const Wait wait = {abi::WaitKind::Exchange, slot.layer, slot.phase,
                         u32(slot.units - args.slots) + missing, epoch & 0xffffu};
      if (is_over(args, begin, 1, wait, seen & 0xffffu)) return false;
    }
  }
};
