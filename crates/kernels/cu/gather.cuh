// Gathering an activation: polled by all consumer threads, two values each at a time, and kept in
// shared memory as the product wants it.
#pragma once
#include "activation.cuh"
#include "exchange.cuh"
#include "matvec.cuh"
#include "phases/table.cuh"

// Pairs of values that a thread takes of the widest activation.
constexpr int PAIRS = (shape::WIDEST / 2 + shape::CONSUMERS - 1) / shape::CONSUMERS;

// And of the residual stream.
constexpr int HIDDEN_PAIRS = (shape::HIDDEN / 2 + shape::CONSUMERS - 1) / shape::CONSUMERS;

// The columns of a thread's pairs.
__device__ __forceinline__ int column_of(int pair) {
  return 2 * (int(threadIdx.x) + pair * shape::CONSUMERS);
}

// Layer 0: the residual stream is the token's row of the embedding, which every block reads.
__device__ __forceinline__ void embedding_row(Consumer& my, u32 token, Words (&words)[PAIRS]) {
#pragma unroll
  for (int pair = 0; pair < HIDDEN_PAIRS; pair++) {
    if (column_of(pair) >= shape::HIDDEN) continue;
    const float2 values = bf16::element_pair(my.args.weights + my.args.embedding, shape::HIDDEN,
                                             int(token), column_of(pair));
    words[pair] = {__float_as_uint(values.x), __float_as_uint(values.y)};
  }
}

// The reciprocal RMS of the normed activation.
__device__ __forceinline__ float norm_scale(const Consumer& my) {
  float squares = 0.f;
#pragma unroll
  for (int warp = 0; warp < shape::CONSUMER_WARPS; warp++) squares += my.shared.warp_squares[warp];
  return 1.f / sqrtf(squares / shape::HIDDEN + my.args.norm_eps);
}

// Keeps the residual stream, and makes `residual * weight` the activation. The reciprocal RMS
// multiplies the product later (norm_scale): the norm costs no hand-off.
__device__ __forceinline__ void keep_normed(Consumer& my, float* residual, const u32 (&weights)[HIDDEN_PAIRS],
                                            const Words (&words)[PAIRS]) {
  float squares = 0.f;
#pragma unroll
  for (int pair = 0; pair < HIDDEN_PAIRS; pair++) {
    const int column = column_of(pair);
    if (column >= shape::HIDDEN) continue;
    const float2 value = values_of(words[pair]);
    *reinterpret_cast<float2*>(&residual[column]) = value;
    squares += value.x * value.x + value.y * value.y;
    set_activation(my.shared, column,
                   {value.x * bf16_low(weights[pair]), value.y * bf16_high(weights[pair])});
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
  if (my.lane() == 0) my.shared.warp_squares[my.warp()] = squares;
}

// Gathers the activation of a product. False if the launch is to be left.
__device__ __forceinline__ bool gather(Consumer& my, u32 product, const PhaseRow& row, u32 token) {
  // Loaded before anything is waited for.
  u32 weights[HIDDEN_PAIRS];
  if (row.normed) {
    const u8* weight = norm_of(my.args, product);
#pragma unroll
    for (int pair = 0; pair < HIDDEN_PAIRS; pair++) {
      if (column_of(pair) < shape::HIDDEN) {
        weights[pair] = *reinterpret_cast<const u32*>(weight + 2 * column_of(pair));
      }
    }
  }
  Words words[PAIRS];
  if (product == 0) {
    embedding_row(my, token, words);
  } else {
    // What qkv and the LM head take is the layer's before.
    const u32 layer = (product - (row.from == abi::Phase::Down)) / LAYER_PRODUCTS;
    const Slot slot = slot_of(my.args, layer, row.from, row.from_slot);
    maybe_delay(my.args, layer, row.from);
    my.fine = take(
                  my.args, slot, [&](int pair) { return column_of(pair) < row.columns; },
                  [](int pair) { return column_of(pair); }, words) &&
              my.fine;
  }
  if (row.normed) {
    keep_normed(my, my.shared.residual[row.residual], weights, words);
  } else {
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
      const int column = column_of(pair);
      if (column < row.columns) set_activation(my.shared, column, values_of(words[pair]));
    }
  }
  return my.sync();
}
