// The argmax: the lowest index of the largest logit.
#pragma once
#include "../handoff/handoff.cuh"

namespace head {

struct Best {
  float logit;
  u32 row;

  // Rows of equal logits: the lowest wins. NaN never compares, and is marked instead.
  __device__ __forceinline__ void consider(float other_logit, u32 other_row) {
    if (row == abi::NOT_A_NUMBER) return;
    if (other_row == abi::NOT_A_NUMBER || other_logit > logit ||
        (other_logit == logit && other_row < row)) {
      logit = other_logit;
      row = other_row;
    }
  }

  __device__ __forceinline__ void consider_warp() {
#pragma unroll 1
    for (int lane = 16; lane > 0; lane /= 2) {
      const float other_logit = __shfl_xor_sync(~0u, logit, lane);
      const u32 other_row = __shfl_xor_sync(~0u, row, lane);
      consider(other_logit, other_row);
    }
  }
};

__device__ __forceinline__ Best nothing() { return {-__builtin_huge_valf(), abi::NO_ROW}; }

__device__ __forceinline__ Slot final_slot(const abi::StepArgs& args) {
  const u64 parity = args.epoch % 2;
  return {args.slots + shape::FINAL_BASE + parity * shape::FINAL_UNITS, abi::NO_LAYER,
          abi::Phase::LmHead};
}

// Stores the next token, and sets the stop flag if the text ends with it: launches that follow look at
// the flag first. `eos(at)` is the `at`-th of the tokens that end it.
template <class Eos>
__device__ __forceinline__ void keep_token(const abi::StepArgs& args, u32 token, Eos eos) {
  args.greedy[args.position] = token;
  if (token >= abi::NO_ROW) {
    args.control->stopped = abi::STOPPED_NOT_A_NUMBER;
    return;
  }
  if (!(args.flags & abi::STEP_APPENDS)) return;
  args.tokens[args.position + 1] = token;
#pragma unroll 1
  for (u32 at = 0; at < args.eos_count; at++) {
    if (token == eos(at)) args.control->stopped = abi::STOPPED_END_OF_TEXT;
  }
}

// A word of the final slot: 32 bits of value and 32 of epoch, since a prompt's inner steps write none.
__device__ __forceinline__ u64 final_word(u32 value, u32 epoch) { return u64(epoch) << 32 | value; }

// Waits for a block's two words. Returns false on abort.
__device__ __forceinline__ bool wait_for_best(const abi::StepArgs& args, const Slot& slot, int block,
                                              Best& best) {
  const u32 begin = ptx::global_timer_1024ns();
#pragma unroll 1
  for (u32 spins = 1;; spins++) {
    u64 logit, row;
    ptx::load_relaxed_pair(slot.units + 2 * block, logit, row);
    if (u32(logit >> 32) == args.epoch && u32(row >> 32) == args.epoch) {
      best.consider(__uint_as_float(u32(logit)), u32(row));
      xray::saw_best(slot.units + 2 * block, spins);
      return true;
    }
    if (spins % SPINS_PER_LOOK != 0) continue;
    const bool second = u32(logit >> 32) == args.epoch;
    const Wait wait = {abi::WaitKind::Exchange, slot.layer, slot.phase,
                       u32(slot.units - args.slots) + 2 * block + second, args.epoch};
    if (is_over(args, begin, 1, wait, u32((second ? row : logit) >> 32))) return false;
  }
}

// Every block publishes the best of its logits; the first block reduces them to the best of all. Called
// by the epilogue warp.
__device__ __forceinline__ void argmax(const abi::StepArgs& args, Best best, bool failed) {
  const int lane = threadIdx.x % 32;
  const Slot slot = final_slot(args);
  best.consider_warp();
  if (lane == 0 && !failed && !withholds(args, slot)) {
    ptx::store_relaxed(slot.units + 2 * blockIdx.x, final_word(__float_as_uint(best.logit), args.epoch));
    ptx::store_relaxed(slot.units + 2 * blockIdx.x + 1, final_word(best.row, args.epoch));
  }
  xray::best_published();
  if (blockIdx.x != 0 || failed) return;
  best = nothing();
  bool ok = true;
#pragma unroll 1
  for (int block = lane; block < int(gridDim.x); block += 32) ok = wait_for_best(args, slot, block, best) && ok;
  if (!__all_sync(~0u, ok)) return;
  best.consider_warp();
  if (lane == 0) keep_token(args, best.row, [&](u32 at) { return args.eos[at]; });
}

// The number of the step behind one, as on the host (engine/src/cuda/epoch.rs).
__device__ __forceinline__ u32 epoch_behind(u32 epoch) {
  const u32 next = epoch + 1;
  return next % 65536 == 0 ? next + 1 : next;
}

// Makes the words of a step those of the next.
__device__ __forceinline__ void advance(abi::StepWords* words) {
  words->epoch = epoch_behind(words->epoch);
  words->position++;
  words->arrived = 0;
}

// The argmax where the head is a kernel: the block that publishes last reduces, and waits for nobody. Its
// addition comes after all others', each of which its block's words come before (fences).
__device__ __forceinline__ void argmax_of_last(const abi::StepArgs& args, abi::StepWords* words, Best best,
                                               bool failed) {
  constexpr int EACH = shape::BLOCKS_MAX / 32;
  const int lane = threadIdx.x % 32;
  const Slot slot = final_slot(args);
  best.consider_warp();
  u32 arrived = 0;
  if (lane == 0) {
    if (!failed && !withholds(args, slot)) {
      ptx::store_relaxed(slot.units + 2 * blockIdx.x, final_word(__float_as_uint(best.logit), args.epoch));
      ptx::store_relaxed(slot.units + 2 * blockIdx.x + 1, final_word(best.row, args.epoch));
    }
    ptx::fence_gpu();
    arrived = 1 + ptx::fetch_add_relaxed(&words->arrived, 1);
    ptx::fence_gpu();
  }
  if (__shfl_sync(~0u, arrived, 0) != gridDim.x) return;
  u64 logits[EACH], rows[EACH];
#pragma unroll
  for (int at = 0; at < EACH; at++) {
    const u32 block = at * 32 + lane;
    if (block < gridDim.x) ptx::load_relaxed_pair(slot.units + 2 * block, logits[at], rows[at]);
  }
  best = nothing();
  bool ok = true;
#pragma unroll
  for (int at = 0; at < EACH; at++) {
    if (at * 32 + lane >= gridDim.x) continue;
    ok = ok && u32(logits[at] >> 32) == args.epoch && u32(rows[at] >> 32) == args.epoch;
    best.consider(__uint_as_float(u32(logits[at])), u32(rows[at]));
  }
  // A block that has failed published nothing: the step gives no token, and the host reads why.
  ok = __all_sync(~0u, ok);
  best.consider_warp();
  if (lane != 0) return;
  if (ok) keep_token(args, best.row, [&](u32 at) { return words->eos[at]; });
  advance(words);
}

}  // namespace head
