// Gathering an activation: polled by all consumer threads, two values each at a time, and kept in
// shared memory as the product wants it.
#pragma once
#include "activation.cuh"
#include "exchange.cuh"
#include "matvec.cuh"

__device__ constexpr int pairs_each(int values) {
  return (values / 2 + shape::CONSUMERS - 1) / shape::CONSUMERS;
}

// Gathers a phase's whole output as the activation.
template <int WIDTH>
__device__ __forceinline__ bool gather_activation(Consumer& my, const Slot& slot) {
  maybe_delay(my.args, slot.layer, slot.phase);
  constexpr int PAIRS = pairs_each(WIDTH);
  float2 values[PAIRS];
  const int first = 2 * my.thread(), stride = 2 * shape::CONSUMERS;
  my.fine = take_pairs(my.args, slot, first, stride, WIDTH, values) && my.fine;
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    if (first + at * stride < WIDTH) set_activation(my.shared, first + at * stride, values[at]);
  }
  return my.sync();
}

// Takes the residual stream, two values a thread at a time from `load`, keeps it, and makes
// `residual * weight` the activation. The reciprocal RMS multiplies the product later (see
// norm_scale): the norm costs no hand-off.
template <class Load>
__device__ __forceinline__ bool normed_activation(Consumer& my, const u8* norm_weight, float* keep,
                                                  Load load) {
  constexpr int PAIRS = pairs_each(shape::HIDDEN);
  const int first = 2 * my.thread(), stride = 2 * shape::CONSUMERS;
  u32 weights[PAIRS];
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    const int column = first + at * stride;
    if (column < shape::HIDDEN) weights[at] = *reinterpret_cast<const u32*>(norm_weight + 2 * column);
  }
  float2 values[PAIRS];
  my.fine = load(first, stride, values) && my.fine;
  float squares = 0.f;
#pragma unroll
  for (int at = 0; at < PAIRS; at++) {
    const int column = first + at * stride;
    if (column >= shape::HIDDEN) continue;
    const float2 value = values[at];
    *reinterpret_cast<float2*>(&keep[column]) = value;
    squares += value.x * value.x + value.y * value.y;
    set_activation(my.shared, column,
                   {value.x * bf16_low(weights[at]), value.y * bf16_high(weights[at])});
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
  if (my.lane() == 0) my.shared.warp_squares[my.warp()] = squares;
  return my.sync();
}

// The same with the residual stream from an exchange.
__device__ __forceinline__ bool gather_normed(Consumer& my, const Slot& slot, const u8* norm_weight,
                                              float* keep) {
  maybe_delay(my.args, slot.layer, slot.phase);
  return normed_activation(my, norm_weight, keep, [&](int first, int stride, auto& values) {
    return take_pairs(my.args, slot, first, stride, shape::HIDDEN, values);
  });
}

// The reciprocal RMS of what was gathered last.
__device__ __forceinline__ float norm_scale(const Consumer& my) {
  float squares = 0.f;
#pragma unroll
  for (int warp = 0; warp < shape::CONSUMER_WARPS; warp++) squares += my.shared.warp_squares[warp];
  return 1.f / sqrtf(squares / shape::HIDDEN + my.args.norm_eps);
}
