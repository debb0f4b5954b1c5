// Counters: producers store their units, then count what they have stored, and consumers poll a counter before
// they load the units once. Two hand-offs are of this kind:
//
//   by pieces   a counter of every group of pieces that some consumer needs: a KV head's rows of qkv, the rows
//               of gate and up that a split of down multiplies, all items of o_proj, or of down
//   by the grid a counter of every phase: each block counts itself, also one without pieces, as in a barrier
//               of the grid, and waits for all
//
// Ordering. A warp's stores come before its __syncwarp (or, if all of a block's warps have published, before the
// block's barrier), that before the fence of the lanes that count, and that before their additions; a consumer
// that loads the full count with acquire sees the stores.
//
// A counter exists COUNTER_COPIES times, in lines of its own: a lane adds to each, and each consumer warp of a
// block polls another one. A step counts in one set of counters, by its epoch's parity, and empties the other
// one, which the step before has used and the next one will use: launches follow one another. (Epochs that
// are left out come with all slots emptied, engine/src/cuda/epoch.rs.)
#pragma once
#include "../xray.cuh"
#include "publish.cuh"

template <bool BY_GRID>
struct Counters : Publisher {
  // Whether a group of pieces is counted, or a block a phase.
  static constexpr bool COUNTS_PIECES = !BY_GRID, COUNTS_BLOCKS = BY_GRID;

  static_assert(shape::HEAD_DIM % shape::TILE_ROWS == 0, "a tile is of one head");
  static_assert(shape::INTERMEDIATE / shape::DOWN_SPLITS % shape::GATE_ROWS == 0, "a tile is of one split");
  static_assert(shape::COUNTER_COPIES <= 32, "a lane a copy");

  // Called by every thread before the launch does anything else, and also by a launch that does nothing.
  __device__ static __forceinline__ void begin(const abi::StepArgs& args) {
    u64* next = set_of(args, args.epoch + 1);
    const u32 words = shape::STEP_COUNTERS * shape::COUNTER_COPIES, threads = gridDim.x * blockDim.x;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < words; at += threads) {
      ptx::store_relaxed(next + u64(at) * shape::LINE_UNITS, 0ull);
    }
  }

  // Called by a whole warp once these pieces of a phase are published.
  __device__ static __forceinline__ void finish_pieces(const abi::StepArgs& args, const Shared& shared,
                                                       const Slot& slot, int first, int end) {
    if (BY_GRID || withholds(args, slot) || !release(shared)) return;
    if (threadIdx.x % 32 >= shape::COUNTER_COPIES) return;
#pragma unroll 1
    while (first < end) {
      const u32 group = group_of(slot.phase, first);
      u32 count = 0;
      do count++, first++;
      while (first < end && group_of(slot.phase, first) == group);
      ptx::add_relaxed(counter_of(args, slot, group, threadIdx.x % 32), count);
    }
  }

  // Called by a whole warp, once a phase: the block has published all that it publishes there.
  __device__ static __forceinline__ void finish_phase(const abi::StepArgs& args, const Shared& shared,
                                                      const Slot& slot) {
    if (!BY_GRID || withholds(args, slot) || !release(shared)) return;
    if (threadIdx.x % 32 >= shape::COUNTER_COPIES) return;
    ptx::add_relaxed(counter_of(args, slot, 0, threadIdx.x % 32), 1);
  }

  // Before the count is full nothing is there to be loaded.
  template <int N, class Used, class Place>
  __device__ static __forceinline__ void look(const abi::StepArgs&, const Slot&, Used, Place, u64 (&)[N]) {}

  // As of Lines, but here the units are loaded.
  template <int N, class Used, class Place>
  __device__ static __forceinline__ bool poll(const abi::StepArgs& args, const Shared& shared,
                                              ::xray::Notes& log, const Slot& slot, Used used, Place place,
                                              u64 (&units)[N]) {
    const u32* counter = counter_of(args, slot, slot.group, threadIdx.x / 32 % shape::COUNTER_COPIES);
    bool ok = true;
    if (ptx::load_acquire(counter) < due_of(slot) && !has_failed(shared)) {
      ok = wait<N>(args, log, slot, counter, used, place);
    }
#pragma unroll
    for (int at = 0; at < N; at++) units[at] = used(at) ? ptx::load_relaxed(slot.units + place(at)) : 0;
    __syncwarp();
    return ok;
  }

 private:
  __device__ static __forceinline__ u64* set_of(const abi::StepArgs& args, u32 epoch) {
    return args.slots + shape::COUNTERS_BASE + u64(epoch % 2) * shape::COUNTERS_UNITS;
  }

  __device__ static __forceinline__ u32* counter_of(const abi::StepArgs& args, const Slot& slot, u32 group,
                                                    u32 copy) {
    const u32 counter = slot.layer * shape::LAYER_COUNTERS + first_of(slot.phase) + (BY_GRID ? 0 : group);
    u64* units = set_of(args, args.epoch) + u64(counter) * shape::COUNTER_LINE;
    return reinterpret_cast<u32*>(units + copy * shape::LINE_UNITS);
  }

  // A phase's first counter.
  __device__ static constexpr u32 first_of(abi::Phase phase) {
    switch (phase) {
      case abi::Phase::Attention: return shape::ATTENTION_COUNTER;
      case abi::Phase::OProj: return shape::O_PROJ_COUNTER;
      case abi::Phase::GateUp: return shape::GATE_UP_COUNTER;
      case abi::Phase::Down: return shape::DOWN_COUNTER;
      default: return 0;
    }
  }

  // The group of a piece: of a tile, or of a KV head.
  __device__ static constexpr u32 group_of(abi::Phase phase, int piece) {
    if (phase == abi::Phase::Attention) return piece;
    if (phase == abi::Phase::GateUp) {
      return piece * shape::GATE_ROWS / (shape::INTERMEDIATE / shape::DOWN_SPLITS);
    }
    if (phase != abi::Phase::Qkv) return 0;
    const int head = piece * shape::TILE_ROWS / shape::HEAD_DIM;
    return head < shape::HEADS ? head / shape::GROUP_HEADS : (head - shape::HEADS) % shape::KV_HEADS;
  }

  // The count of a group that is whole.
  __device__ static __forceinline__ u32 due_of(const Slot& slot) {
    if (BY_GRID) return gridDim.x;
    switch (slot.phase) {
      case abi::Phase::Attention: return slot.ranks;
      case abi::Phase::OProj: return shape::RANKS * shape::KV_HEADS;
      case abi::Phase::GateUp: return shape::GATE_UP_DIM / shape::TILE_ROWS / shape::DOWN_SPLITS;
      case abi::Phase::Down: return shape::HIDDEN / shape::TILE_ROWS * shape::DOWN_SPLITS;
      default: return (shape::GROUP_HEADS + 2) * shape::HEAD_DIM / shape::TILE_ROWS;
    }
  }

  // What the warp has stored comes before what its lanes count from now on. Returns false if the block has
  // failed, and then counts nothing.
  __device__ static __forceinline__ bool release(const Shared& shared) {
    const bool failed = __any_sync(~0u, has_failed(shared));
    __syncwarp();
    ptx::fence_gpu();
    return !failed;
  }

  template <int N, class Used, class Place>
  __device__ static __forceinline__ bool wait(const abi::StepArgs& args, ::xray::Notes& log,
                                              const Slot& slot, const u32* counter, Used used, Place place) {
    const u32 begin = ptx::global_timer_1024ns(), due = due_of(slot);
#pragma unroll 1
    for (u32 spins = 1;; spins++) {
      u32 seen = ptx::load_acquire(counter);
      xray::saw(log, seen >= due, reinterpret_cast<const u64*>(counter));
      if (seen >= due) return true;
      if (spins % SPINS_PER_LOOK != 0) continue;
      // If one of the units that this thread needs is not there, it says who has not counted. If all are, the
      // record names the counter.
      u32 unit = u32(reinterpret_cast<const u64*>(counter) - args.slots), expected = due;
#pragma unroll 1
      for (int at = 0; at < N; at++) {
        if (!used(at)) continue;
        const u64 word = ptx::load_relaxed(slot.units + place(at));
        if (is_of(word, args.epoch)) continue;
        unit = u32(slot.units - args.slots) + place(at);
        expected = args.epoch & 0xffffu, seen = u32(word) & 0xffffu;
        break;
      }
      const Wait wait = {abi::WaitKind::Exchange, slot.layer, slot.phase, unit, expected};
      if (is_over(args, begin, 1, wait, seen)) return false;
    }
  }
};
