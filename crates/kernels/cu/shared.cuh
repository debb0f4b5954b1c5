// A block's shared memory.
#pragma once
#include "shape.cuh"

// Tiles whose products are summed over the warps together: one barrier per batch.
constexpr int BATCH_TILES = 8;
constexpr int BATCH_ROWS = BATCH_TILES * shape::TILE_ROWS;
static_assert(BATCH_ROWS <= shape::CONSUMERS, "a thread a row of a batch");
static_assert(BATCH_ROWS >= shape::HEAD_DIM, "attention borrows a batch's sums for a head");

// Parts of the activation: hi + mid + lo in bf16 keep 24 bits of the fp32 value.
constexpr int PARTS = 3;

// Stride from one part to the next: the parts' rows begin eight banks apart, so that the lanes of a
// warp, which read 8 bytes each from four rows, have no bank conflict.
constexpr int X_STRIDE = shape::WIDEST + 16;
static_assert(X_STRIDE % 64 == 16, "eight banks of 4 bytes");

struct Shared {
  // Stages of packed weights; only bulk copies write them.
  alignas(128) u8 ring[shape::STAGES][shape::STAGE_BYTES];
  // The activation of the running matvec, in parts, and a row of zeros (activation.cuh).
  alignas(16) u16 x[PARTS + 1][X_STRIDE];
  // The residual stream before attention and before the MLP.
  alignas(16) float residual[2][shape::HIDDEN];
  // Sums of each warp over its part of the columns; two batches, used alternately.
  alignas(16) float sums[2][shape::CONSUMER_WARPS][BATCH_ROWS];
  // Attention: the group's query heads, then the key, then the value.
  alignas(16) float heads[shape::GROUP_HEADS + 2][shape::HEAD_DIM];
  // Attention: the newest position's key and value, as written to the cache; 4 elements per lane.
  uint2 newest[2][32];
  // Attention: each warp's largest score and sum of weights.
  float warp_largest[shape::CONSUMER_WARPS];
  float warp_weights[shape::CONSUMER_WARPS];
  // LM head: the largest logit of each thread that has rows, and that logit's row.
  float thread_logit[BATCH_ROWS];
  u32 thread_row[BATCH_ROWS];
  // Norm: each warp's sum of squares. LM head: each warp's largest logit and its row.
  float warp_squares[shape::CONSUMER_WARPS];
  float warp_logit[shape::CONSUMER_WARPS];
  u32 warp_row[shape::CONSUMER_WARPS];
  u64 full[shape::STAGES];
  u64 empty[shape::STAGES];
};
