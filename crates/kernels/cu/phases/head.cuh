// The LM head, and the argmax: the lowest index of the largest logit.
#pragma once
#include "gather.cuh"

namespace head {

struct Best {
  float logit;
  u32 row;

  // Of rows with equal logits the lowest wins. NaN never compares, so it is marked instead.
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

__device__ __forceinline__ Best nothing() {
  return {-__builtin_huge_valf(), abi::NO_ROW};
}

__device__ __forceinline__ Slot final_slot(const abi::StepArgs& args) {
  const u64 parity = args.epoch % 2;
  return {args.slots + shape::FINAL_BASE + parity * shape::FINAL_UNITS, abi::NO_LAYER,
          abi::Phase::LmHead};
}

// Reduces all threads' best logits into thread 0. Returns false on abort.
__device__ __forceinline__ bool best_of_block(Consumer& my, Best& best) {
  best.consider_warp();
  if (my.lane() == 0) {
    my.shared.warp_logit[my.warp()] = best.logit;
    my.shared.warp_row[my.warp()] = best.row;
  }
  if (!my.sync()) return false;
  if (my.thread() == 0) {
#pragma unroll 1
    for (int warp = 1; warp < shape::CONSUMER_WARPS; warp++) {
      best.consider(my.shared.warp_logit[warp], my.shared.warp_row[warp]);
    }
  }
  return true;
}

// Stores the next token, and sets the stop flag if that token ends the text. Later launches check
// the flag first.
__device__ __forceinline__ void keep_token(const abi::StepArgs& args, u32 token) {
  args.greedy[args.position] = token;
  if (token >= abi::NO_ROW) {
    args.control->stopped = abi::STOPPED_NOT_A_NUMBER;
    return;
  }
  if (!(args.flags & abi::STEP_APPENDS)) return;
  args.tokens[args.position + 1] = token;
#pragma unroll 1
  for (u32 at = 0; at < args.eos_count; at++) {
    if (token == args.eos[at]) args.control->stopped = abi::STOPPED_END_OF_TEXT;
  }
}

// A thread keeps its best logit in shared memory: a register would be occupied in all layers.
__device__ __forceinline__ void forget_logits(Consumer& my) {
  if (my.thread() >= shape::BATCH_ROWS) return;
  my.shared.thread_logit[my.thread()] = nothing().logit;
  my.shared.thread_row[my.thread()] = nothing().row;
}

__device__ __forceinline__ void consider_logit(Consumer& my, int row, float logit) {
  if (my.args.logits != nullptr) my.args.logits[row] = logit;
  Best best = {my.shared.thread_logit[my.thread()], my.shared.thread_row[my.thread()]};
  best.consider(logit, logit == logit ? u32(row) : abi::NOT_A_NUMBER);
  my.shared.thread_logit[my.thread()] = best.logit;
  my.shared.thread_row[my.thread()] = best.row;
}

// Every block publishes its best logit; the first block reduces them to the overall best.
__device__ __forceinline__ void argmax(Consumer& my) {
  static_assert(abi::BLOCKS_MAX <= shape::CONSUMERS, "a thread a block");
  xray::note(my.log, abi::Moment::Argmax);
  Best best = nothing();
  if (my.thread() < shape::BATCH_ROWS) {
    best = {my.shared.thread_logit[my.thread()], my.shared.thread_row[my.thread()]};
  }
  const Slot slot = final_slot(my.args);
#pragma unroll 1
  for (int round = 0; round < 2; round++) {
    if (!best_of_block(my, best)) return;
    if (round == 1) {
      xray::note(my.log, abi::Moment::Gathered);
      break;
    }
    if (my.thread() == 0) {
      Handoff::publish(my.args, slot, 2 * blockIdx.x, best.logit);
      Handoff::publish(my.args, slot, 2 * blockIdx.x + 1, __uint_as_float(best.row));
    }
    if (blockIdx.x != 0) return;
    // Thread 0 has read the warps' words before the warps write again.
    if (!my.sync()) return;
    best = nothing();
    xray::note(my.log, abi::Moment::AskedLogits);
    my.ok = Handoff::poll<1>(
                  my.args, my.log, slot, [&](int) { return my.thread() < int(gridDim.x); },
                  [&](int) { return 2 * my.thread(); },
                  [&](int, float2 pair) { best = {pair.x, __float_as_uint(pair.y)}; }) &&
              my.ok;
  }
  if (my.thread() == 0) keep_token(my.args, best.row);
}

}  // namespace head
