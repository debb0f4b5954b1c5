// Runs the phases that are matrix-vector products (matvecs), all with one piece of code, from their
// table.
#pragma once
#include "head.cuh"
#include "table.cuh"

__device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }

// One matvec: gathers, multiplies, and publishes in the epilogue. Returns false on abort.
template <class Format>
__device__ __forceinline__ bool run_row(Consumer& my, u32 matvec, const PhaseRow& row, u32 token) {
  const TileRange tiles = tiles_of_block(shape::tiles(row.rows, shape::TILE_ROWS));
  if (!gather<Format>(my, matvec, row, token)) return false;
  const u32 layer = layer_of(matvec);
  const Slot to = slot_of(my.args, layer, row.phase, row.to_slot);
  const float* residual = my.shared.residual[row.residual];
  return multiply_tiles<Format>(my, matrix_of(my.args, matvec), tiles, row.columns, layer, row.phase,
                           [&](int at, float value) {
    if (row.epilogue == Epilogue::Residual) {
      Handoff::publish(my.args, to, at, residual[at] + value);
      return;
    }
    value *= norm_scale(my);
    if (row.epilogue == Epilogue::Scale) {
      Handoff::publish(my.args, to, at, value);
    } else if (row.epilogue == Epilogue::Gate) {
      // Gate row i and up row i are eight rows apart in a tile, and so eight lanes apart in a warp.
      // A batch consists of whole tiles: either all lanes of a half-warp get here or none.
      const float other = __shfl_xor_sync(0xffffu << (threadIdx.x & 16), value, 8);
      if (at % shape::TILE_ROWS < 8) {
        Handoff::publish(my.args, to, at / shape::TILE_ROWS * 8 + at % 8, silu(value) * other);
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

// One piece of code for all matvecs of a format.
__device__ __forceinline__ bool run_matvec(Consumer& my, u32 matvec, u32 token) {
  const PhaseRow row = phase_row(matvec);
  if (!SAME<LayerFormat, HeadFormat> && row.phase == abi::Phase::LmHead) {
    return run_row<HeadFormat>(my, LAYER_MATVECS * shape::LAYERS, HEAD_ROW, token);
  }
  return run_row<LayerFormat>(my, matvec, row, token);
}
