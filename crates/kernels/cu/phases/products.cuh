// The product phases, run by one piece of code from their table.
#pragma once
#include "head.cuh"
#include "table.cuh"

__device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }

// Gathers, multiplies and posts one product. False if the launch is to be left.
template <class Format>
__device__ __forceinline__ bool run_row(Consumer& my, u32 product, const PhaseRow& row, u32 token) {
  const Share tiles = share_of(shape::tiles(row.rows));
  if (!gather<Format>(my, product, row, token)) return false;
  const u32 layer = layer_of(product);
  const Slot to = slot_of(my.args, layer, row.phase, row.to_slot);
  const float* residual = my.shared.residual[row.residual];
  return ::product<Format>(my, matrix_of(my.args, product), tiles, row.columns, layer, row.phase,
                           [&](int at, float value) {
    if (row.epilogue == Epilogue::Residual) {
      post(my.args, to, at, residual[at] + value);
      return;
    }
    value *= norm_scale(my);
    if (row.epilogue == Epilogue::Scale) {
      post(my.args, to, at, value);
    } else if (row.epilogue == Epilogue::Gate) {
      // Gate row i and up row i lie eight rows apart in a tile, and so eight lanes in a warp. A
      // batch is whole tiles: a half-warp is here as a whole or not at all.
      const float other = __shfl_xor_sync(0xffffu << (threadIdx.x & 16), value, 8);
      if (at % shape::TILE_ROWS < 8) {
        post(my.args, to, at / shape::TILE_ROWS * 8 + at % 8, silu(value) * other);
      }
    } else if (at < shape::VOCAB) {
      head::consider_logit(my, at, value);
    }
  });
}

template <class A, class B>
constexpr bool SAME = false;
template <class A>
constexpr bool SAME<A, A> = true;

// One piece of code for all products of a format.
__device__ __forceinline__ bool run_product(Consumer& my, u32 product, u32 token) {
  const PhaseRow row = phase_row(product);
  if (!SAME<LayerFormat, HeadFormat> && row.phase == abi::Phase::LmHead) {
    return run_row<HeadFormat>(my, LAYER_PRODUCTS * shape::LAYERS, HEAD_ROW, token);
  }
  return run_row<LayerFormat>(my, product, row, token);
}
