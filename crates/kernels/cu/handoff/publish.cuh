// How values are stored where the next phase finds them: the same in every hand-off, so that what reads them
// is the same, too.
#pragma once
#include "slot.cuh"
#include "unit.cuh"

struct Publisher {
  // Makes a pair of values visible to the next phase.
  __device__ static __forceinline__ void publish(const abi::StepArgs& args, const Slot& slot, int place,
                                                 float2 values) {
    if (withholds(args, slot)) return;
    ptx::store_relaxed(slot.units + place, unit_of(values, args.epoch));
  }

  // The same of a word, all of it.
  __device__ static __forceinline__ void publish_word(const abi::StepArgs& args, const Slot& slot, int place,
                                                      u32 word) {
    if (withholds(args, slot)) return;
    ptx::store_relaxed(slot.units + place, unit_of_word(word, args.epoch));
  }
};
