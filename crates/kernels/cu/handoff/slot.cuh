// Where a phase's output is published, and what tests do to it.
#pragma once
#include "../fault.cuh"

// A slot's address, and its name in a fault record.
struct Slot {
  u64* units;
  u32 layer;
  abi::Phase phase;
  // What a gather needs of it, for hand-offs that count: a KV head's part, or that of a split of columns; and
  // how many ranks publish it.
  u32 group = 0, ranks = 1;

  __device__ __forceinline__ Slot of(u32 group, u32 ranks = 1) const {
    return {units, layer, phase, group, ranks};
  }
};

__device__ __forceinline__ Slot slot_of(const abi::StepArgs& args, u32 layer, abi::Phase phase,
                                        int offset) {
  return {args.slots + u64(layer) * shape::LAYER_UNITS + offset, layer, phase};
}

// An injected fault: this block does not publish this slot.
__device__ __forceinline__ bool withholds(const abi::StepArgs& args, const Slot& slot) {
  return args.injected_kind == abi::INJECTED_NO_POST && args.injected_block == blockIdx.x &&
         args.injected_layer == slot.layer && args.injected_phase == static_cast<u32>(slot.phase);
}

// Injects pseudo-random delays before some gathers (a hash of block, warp, layer and phase); results
// must not change.
__device__ __forceinline__ void inject_delay(const abi::StepArgs& args, u32 layer, abi::Phase phase) {
  if (args.delay_seed == 0) return;
  u32 hash = args.delay_seed ^ (blockIdx.x * 0x9e3779b9u) ^ (threadIdx.x / 32 * 0x85ebca6bu);
  hash = (hash ^ (layer * 0xc2b2ae35u) ^ (static_cast<u32>(phase) * 0x27d4eb2fu)) * 0x165667b1u;
  hash ^= hash >> 15;
  if (hash % 4 == 0) __nanosleep(hash >> 8 & 0x3fff);
}
