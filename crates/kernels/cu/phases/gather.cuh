// Gathers an activation: every consumer thread polls two values at a time and stores them in shared
// memory in the order in which the matvec reads them.
#pragma once
#include "../handoff/handoff.cuh"
#include "matvec.cuh"
#include "table.cuh"

// Pairs of values per thread for the widest activation.
constexpr int PAIRS = (shape::WIDEST / 2 + shape::CONSUMERS - 1) / shape::CONSUMERS;

// Pairs of values per thread for the residual stream.
constexpr int HIDDEN_PAIRS = (shape::HIDDEN / 2 + shape::CONSUMERS - 1) / shape::CONSUMERS;

// The columns of a thread's pairs.
__device__ __forceinline__ int column_of(int pair) {
  return 2 * (int(threadIdx.x) + pair * shape::CONSUMERS);
}

// The layer whose output a matvec gathers: qkv and the LM head take the previous layer's output.
__device__ __forceinline__ u32 source_layer(u32 matvec, const PhaseRow& row) {
  return (matvec - (row.from == abi::Phase::Down)) / LAYER_MATVECS;
}

// The reciprocal RMS of the normed activation.
__device__ __forceinline__ float norm_scale(const Consumer& my) {
  float squares = 0.f;
#pragma unroll
  for (int warp = 0; warp < shape::CONSUMER_WARPS; warp++) squares += my.shared.warp_squares[warp];
  return 1.f / sqrtf(squares / shape::HIDDEN + my.args.norm_eps);
}

// Gathers the activation of a matvec. A normed activation is the residual stream, which is kept,
// times the norm's weight. The epilogue multiplies by the reciprocal RMS (norm_scale), so the norm
// costs no hand-off. Returns false on abort.
template <class Format>
__device__ __forceinline__ bool gather(Consumer& my, u32 matvec, const PhaseRow& row, u32 token) {
  // These loads start before the first wait.
  u32 weights[HIDDEN_PAIRS];
  if (row.normed) {
    const u8* weight = norm_of(my.args, matvec);
#pragma unroll
    for (int pair = 0; pair < HIDDEN_PAIRS; pair++) {
      if (column_of(pair) < shape::HIDDEN) {
        weights[pair] = *reinterpret_cast<const u32*>(weight + 2 * column_of(pair));
      }
    }
  }
  if (matvec != 0) {
    xray::note(my.log, abi::Moment::Asked, matvec);
  }
  float squares = 0.f;
  const auto keep = [&](int pair, float2 values) {
    if (row.normed && pair < HIDDEN_PAIRS) {
      *reinterpret_cast<float2*>(&my.shared.residual[row.residual][column_of(pair)]) = values;
      squares += values.x * values.x + values.y * values.y;
      values.x *= bf16_low(weights[pair]);
      values.y *= bf16_high(weights[pair]);
    }
    const float2 scaled = {values.x * Format::X_SCALE, values.y * Format::X_SCALE};
    Format::Activation::set(my.shared, column_of(pair), scaled);
  };
  if (matvec == 0) {
    // The residual stream starts as the token's row of the embedding, which every block reads.
    const u8* embedding = my.args.weights + my.args.embedding;
#pragma unroll
    for (int pair = 0; pair < HIDDEN_PAIRS; pair++) {
      if (column_of(pair) >= shape::HIDDEN) continue;
      keep(pair, Tiles<HeadFormat>::element_pair(embedding, shape::HIDDEN, int(token),
                                                 column_of(pair)));
    }
  } else {
    const u32 layer = source_layer(matvec, row);
    const Slot slot = slot_of(my.args, layer, row.from, row.from_slot);
    inject_delay(my.args, layer, row.from);
    my.ok = Handoff::poll<PAIRS>(
                  my.args, my.log, slot, [&](int pair) { return column_of(pair) < row.columns; },
                  [](int pair) { return column_of(pair); }, keep) &&
              my.ok;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
  if (my.lane() == 0 && row.normed) my.shared.warp_squares[my.warp()] = squares;
  const bool ok = my.sync();
  xray::note(my.log, abi::Moment::Gathered);
  return ok;
}
