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

  // The same of one value, which is not rounded.
  __device__ static __forceinline__ void publish_exact(const abi::StepArgs& args, const Slot& slot, int place,
                                                       float value) {
    if (withholds(args, slot)) return;
    ptx::store_relaxed(slot.units + place, exact_unit_of(value, args.epoch));
  }
};
