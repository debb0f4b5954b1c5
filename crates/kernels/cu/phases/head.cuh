// The LM head, and the argmax: the lowest index of the largest logit.
#pragma once
#include "projections.cuh"

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
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
      const float other_logit = __shfl_xor_sync(~0u, logit, lane);
      const u32 other_row = __shfl_xor_sync(~0u, row, lane);
      consider(other_logit, other_row);
    }
  }
};

__device__ __forceinline__ Best nothing() {
  return {-__builtin_huge_valf(), abi::NOT_A_NUMBER - 1};
}

__device__ __forceinline__ Slot final_slot(const abi::StepArgs& args) {
  const u64 parity = args.epoch % 2;
  return {args.slots + shape::FINAL_BASE + parity * shape::FINAL_UNITS, abi::NO_LAYER,
          abi::Phase::LmHead};
}

// This block's logits, and the best of them into the final slot.
__device__ __forceinline__ bool logits(Consumer& my) {
  const Slot from = slot_of(my.args, shape::LAYERS - 1, abi::Phase::Down, shape::DOWN_SLOT);
  const u8* weight = my.args.weights + my.args.final_norm;
  if (!gather_normed(my, from, weight, my.shared.residual[0])) return false;
  const float scale = norm_scale(my);
  Best best = nothing();
  const Share tiles = share_of(shape::tiles(shape::VOCAB));
  if (!product<shape::HIDDEN>(my, tiles, abi::NO_LAYER, abi::Phase::LmHead,
                              [&](int row, float value) {
        if (row >= shape::VOCAB) return;
        const float logit = value * scale;
        if (my.args.logits != nullptr) my.args.logits[row] = logit;
        best.consider(logit, logit == logit ? u32(row) : abi::NOT_A_NUMBER);
      })) {
    return false;
  }
  best.consider_warp();
  if (my.lane() == 0) {
    my.shared.warp_logit[my.warp()] = best.logit;
    my.shared.warp_row[my.warp()] = best.row;
  }
  if (!my.sync()) return false;
  if (my.thread() == 0) {
    for (int warp = 1; warp < shape::CONSUMER_WARPS; warp++) {
      best.consider(my.shared.warp_logit[warp], my.shared.warp_row[warp]);
    }
    const Slot to = final_slot(my.args);
    post(my.args, to, 2 * blockIdx.x, best.logit);
    post(my.args, to, 2 * blockIdx.x + 1, __uint_as_float(best.row));
  }
  return true;
}

// One warp of one block: the best of all blocks is the next token.
__device__ __forceinline__ void argmax(Consumer& my) {
  const Slot from = final_slot(my.args);
  Best best = nothing();
  bool fine = true;
  for (int block = my.lane(); block < gridDim.x; block += 32) {
    float2 pair;
    fine = take_pair(my.args, from, 2 * block, pair) && fine;
    if (fine) best.consider(pair.x, __float_as_uint(pair.y));
  }
  if (!__all_sync(~0u, fine)) return;
  best.consider_warp();
  if (my.lane() != 0) return;
  my.args.greedy[my.args.position] = best.row;
  if (best.row >= abi::NOT_A_NUMBER - 1) {
    my.args.control->stopped = abi::STOPPED_NOT_A_NUMBER;
    return;
  }
  if (my.args.flags & abi::STEP_APPENDS) my.args.tokens[my.args.position + 1] = best.row;
  for (u32 at = 0; at < my.args.eos_count; at++) {
    if ((my.args.flags & abi::STEP_APPENDS) && best.row == my.args.eos[at]) {
      my.args.control->stopped = abi::STOPPED_END_OF_TEXT;
    }
  }
}

}  // namespace head
