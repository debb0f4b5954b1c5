// The exchange: one phase's output made visible to the next phase's blocks. A unit is a value and
// the step's epoch in one 64-bit store; consumers poll the data itself. Every (layer, phase) has
// its own slot, written once a step, so that nothing is reset and no flag is needed. No block is
// lapped: launches follow one another, and a launch ends only when every block has read all it
// needs.
#pragma once
#include "fault.cuh"

__device__ __forceinline__ u64 unit_of(float value, u32 epoch) {
  return (u64(epoch) << 32) | __float_as_uint(value);
}

__device__ __forceinline__ float value_of(u64 unit) { return __uint_as_float(u32(unit)); }
__device__ __forceinline__ u32 epoch_of(u64 unit) { return u32(unit >> 32); }

// Where a slot is, and what to say of it.
struct Slot {
  u64* units;
  u32 layer;
  abi::Phase phase;
};

__device__ __forceinline__ Slot slot_of(const abi::StepArgs& args, u32 layer, abi::Phase phase,
                                        int offset) {
  return {args.slots + u64(layer) * shape::LAYER_UNITS + offset, layer, phase};
}

__device__ __forceinline__ bool keeps_quiet(const abi::StepArgs& args, const Slot& slot) {
  return args.planted_kind == abi::PLANTED_NO_POST && args.planted_block == blockIdx.x &&
         args.planted_layer == slot.layer && args.planted_phase == static_cast<u32>(slot.phase);
}

__device__ __forceinline__ void post(const abi::StepArgs& args, const Slot& slot, int index,
                                     float value) {
  if (keeps_quiet(args, slot)) return;
  ptx::store_relaxed(slot.units + index, unit_of(value, args.epoch));
}

// The wait for a unit, in words.
__device__ __forceinline__ Wait exchange_wait(const abi::StepArgs& args, const Slot& slot,
                                              const u64* unit) {
  return {abi::WaitKind::Exchange, slot.layer, slot.phase, u32(unit - args.slots), args.epoch};
}

// Waits for one unit; false if the launch is to be left.
__device__ __forceinline__ bool take(const abi::StepArgs& args, const Slot& slot, int index,
                                     float& value) {
  const u64* unit = slot.units + index;
  u64 word = 0;
  const bool arrived = wait_until(
      args, abi::WaitKind::Exchange,
      [&] {
        word = ptx::load_relaxed(unit);
        return epoch_of(word) == args.epoch;
      },
      [&](u32& seen) {
        seen = epoch_of(word);
        return exchange_wait(args, slot, unit);
      });
  value = value_of(word);
  return arrived;
}

// Waits for two neighbouring units (the index is even); false if the launch is to be left.
__device__ __forceinline__ bool take_pair(const abi::StepArgs& args, const Slot& slot, int index,
                                          float2& values) {
  const u64* unit = slot.units + index;
  u64 first = 0, second = 0;
  const bool arrived = wait_until(
      args, abi::WaitKind::Exchange,
      [&] {
        ptx::load_relaxed_pair(unit, first, second);
        return epoch_of(first) == args.epoch && epoch_of(second) == args.epoch;
      },
      [&](u32& seen) {
        const bool one = epoch_of(first) != args.epoch;
        seen = one ? epoch_of(first) : epoch_of(second);
        return exchange_wait(args, slot, one ? unit : unit + 1);
      });
  values = {value_of(first), value_of(second)};
  return arrived;
}

// Waits for `PAIRS` pairs, all polled before any is waited for, so that their trips overlap.
template <int PAIRS>
__device__ __forceinline__ bool take_pairs(const abi::StepArgs& args, const Slot& slot, int first,
                                           int stride, int end, float2 (&values)[PAIRS]) {
  u64 words[PAIRS][2];
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    const int index = first + at * stride;
    if (index < end) ptx::load_relaxed_pair(slot.units + index, words[at][0], words[at][1]);
  }
  bool fine = true;
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    const int index = first + at * stride;
    if (index >= end) continue;
    if (epoch_of(words[at][0]) == args.epoch && epoch_of(words[at][1]) == args.epoch) {
      values[at] = {value_of(words[at][0]), value_of(words[at][1])};
    } else {
      fine = take_pair(args, slot, index, values[at]) && fine;
    }
  }
  return fine;
}

// Dawdles before some gathers, by a hash of who and when: bits must not depend on it.
__device__ __forceinline__ void maybe_delay(const abi::StepArgs& args, u32 layer, abi::Phase phase) {
  if (args.delay_seed == 0) return;
  u32 hash = args.delay_seed ^ (blockIdx.x * 0x9e3779b9u) ^ (threadIdx.x / 32 * 0x85ebca6bu);
  hash = (hash ^ (layer * 0xc2b2ae35u) ^ (static_cast<u32>(phase) * 0x27d4eb2fu)) * 0x165667b1u;
  hash ^= hash >> 15;
  if (hash % 4 == 0) __nanosleep(hash >> 8 & 0x3fff);
}
