// The exchange: one phase's output made visible to the next phase's blocks. A unit is a value and
// the step's epoch in one 64-bit store; consumers poll the data itself. Every (layer, phase) has
// its own slot, written once a step, so that nothing is reset and no flag is needed. No block is
// lapped: launches follow one another, and a launch ends only when every block has read all it
// needs.
#pragma once
#include "fault.cuh"
#include "xray.cuh"

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

// Two units' words.
struct Words {
  u64 first, second;
};

__device__ __forceinline__ bool are_of(const Words& words, u32 epoch) {
  return epoch_of(words.first) == epoch && epoch_of(words.second) == epoch;
}

__device__ __forceinline__ Words load_pair(const u64* unit) {
  Words words;
  ptx::load_relaxed_pair(unit, words.first, words.second);
  return words;
}

// Spins for two neighbouring units, the first at the even index. They are not of the epoch if the
// launch is to be left.
__device__ __forceinline__ Words wait_pair(const abi::StepArgs& args, const Slot& slot, int index) {
  const u32 begin = ptx::global_timer_1024ns();
#pragma unroll 1
  for (u32 spins = 1;; spins++) {
    const Words words = load_pair(slot.units + index);
    if (are_of(words, args.epoch)) return words;
    if (spins % SPINS_PER_LOOK != 0) continue;
    const bool second = epoch_of(words.first) == args.epoch;
    const Wait wait = {abi::WaitKind::Exchange, slot.layer, slot.phase,
                       u32(slot.units - args.slots) + index + second, args.epoch};
    const u32 seen = epoch_of(second ? words.second : words.first);
    if (is_over(args, begin, 1, wait, seen)) return words;
  }
}

// Hands `N` pairs of neighbouring units of a slot to `each(at, values)`: those that `used(at)` says,
// at the even index `index(at)`. All are loaded before any is waited for, so that their trips
// overlap; then only what is missing is polled, since every poll is in the way of the stores it
// waits for. False if the launch is to be left.
template <int N, class Used, class Index, class Each>
__device__ __forceinline__ bool take(const abi::StepArgs& args, const ::xray::Notes& log,
                                     const Slot& slot, Used used, Index index, Each each) {
  Words words[N];
#pragma unroll
  for (int at = 0; at < N; at++) {
    if (used(at)) words[at] = load_pair(slot.units + index(at));
  }
  bool fine = true;
#pragma unroll
  for (int at = 0; at < N; at++) {
    if (!used(at)) continue;
    if (!are_of(words[at], args.epoch)) {
      words[at] = wait_pair(args, slot, index(at));
      xray::saw(log, slot.units + index(at));
    }
    fine = are_of(words[at], args.epoch) && fine;
    each(at, float2{value_of(words[at].first), value_of(words[at].second)});
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
