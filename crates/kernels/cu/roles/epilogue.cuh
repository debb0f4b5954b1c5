// The epilogue warp: adds up the consumer warps' partial sums of a round, applies the norm,
// SwiGLU or the argmax, and publishes. The consumers are at the next weights meanwhile.
#pragma once
#include "../phases/head.cuh"
#include "../phases/work.cuh"
#include "../ptx/approximate.cuh"
#include "consumer.cuh"

struct EpilogueWarp {
  const abi::StepArgs& args;
  Shared& shared;
  u32 round = 0;
  bool failed = false;
  head::Best best = head::nothing();
  xray::Rounds log;

  __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
};

// The sum of a row's partial sums, as a tree whose shape does not depend on anything.
template <int COUNT>
__device__ __forceinline__ float tree_sum(const float* values) {
  if constexpr (COUNT == 2) {
    const float2 both = *reinterpret_cast<const float2*>(values);
    return both.x + both.y;
  }
  float4 quads[ceiling(COUNT, 4)];
  float sum = 0.f;
#pragma unroll
  for (int at = 0; at < COUNT / 4; at++) quads[at] = reinterpret_cast<const float4*>(values)[at];
#pragma unroll
  for (int at = 0; at < COUNT / 4; at++) sum += (quads[at].x + quads[at].y) + (quads[at].z + quads[at].w);
  return sum;
}

__device__ __forceinline__ float silu(float x) {
  return x * ptx::reciprocal(1.f + ptx::exp2(-ptx::LOG2_E * x));
}

// Rows of a lane in a round; of gate and up, one of each.
template <class W>
struct Rows {
  static constexpr int EACH = W::ROW.epilogue == Epilogue::Gate ? 2 : ceiling(W::TILES * shape::TILE_ROWS, 32);
};

// Publishes the pair of this lane's value and the next lane's, from the even lanes.
template <class To>
__device__ __forceinline__ void publish_pairs(const EpilogueWarp& my, const Slot& to, int row, float value,
                                              bool used) {
  const float next = __shfl_down_sync(~0u, value, 1);
  if (!used || my.lane() % 2 != 0 || my.failed) return;
  Handoff::publish(my.args, to, To::place(row / 2, 0), {value, next});
}

// One round of a matvec: `first` is its first tile, `count` its tiles. `scale` holds the rows' scales.
template <class W, class To>
__device__ __forceinline__ void round_of(EpilogueWarp& my, const Slot& to, int first, int count,
                                         const float (&scale)[Rows<W>::EACH], float rms, int buffer) {
  constexpr PhaseRow ROW = W::ROW;
  const auto& partial = my.shared.partial[buffer];
  if constexpr (ROW.epilogue == Epilogue::Gate) {
    // Gate row i and up row i are eight rows apart in a tile. A lane has one of the round's values.
    constexpr int VALUES = W::TILES * shape::TILE_ROWS / 2;
    static_assert(VALUES <= 32, "a lane a value");
    const int row = my.lane() / 8 * shape::TILE_ROWS + my.lane() % 8;
    float value = 0.f;
    if (my.lane() < VALUES) {
      const float gate = tree_sum<shape::CONSUMER_WARPS>(partial[row]) * rms * scale[0];
      const float up = tree_sum<shape::CONSUMER_WARPS>(partial[row + 8]) * rms * scale[1];
      value = silu(gate) * up;
    }
    publish_pairs<To>(my, to, first * 8 + my.lane(), value, my.lane() < 8 * count);
  } else {
#pragma unroll
    for (int at = 0; at < Rows<W>::EACH; at++) {
      const int row = at * 32 + my.lane(), index = first * shape::TILE_ROWS + row;
      const bool used = row < count * shape::TILE_ROWS;
      float value = 0.f;
      if (used) value = tree_sum<shape::CONSUMER_WARPS>(partial[row]) * rms * scale[at];
      if constexpr (ROW.epilogue == Epilogue::Logits) {
        if (!used || index >= shape::VOCAB) continue;
        if (my.args.logits != nullptr) my.args.logits[index] = value;
        my.best.consider(value, value == value ? u32(index) : abi::NOT_A_NUMBER);
      } else {
        publish_pairs<To>(my, to, index, value, used);
      }
    }
  }
}

// The scales of a lane's rows in a round, loaded before the sums are there. For gate and up: of the gate
// row, and of the up row.
template <class W>
__device__ __forceinline__ void load_scales(const EpilogueWarp& my, const u8* matrix, int first, int count,
                                            float (&scale)[Rows<W>::EACH]) {
#pragma unroll
  for (int at = 0; at < Rows<W>::EACH; at++) {
    int row = at * 32 + my.lane();
    if (W::ROW.epilogue == Epilogue::Gate) row = my.lane() / 8 * shape::TILE_ROWS + my.lane() % 8 + 8 * at;
    scale[at] = 1.f;
    if (row < count * shape::TILE_ROWS) {
      scale[at] = Tiles<typename W::Format>::row_scale(matrix, W::ROW.columns, first * shape::TILE_ROWS + row);
    }
  }
}

// Waits for a round's partial sums.
__device__ __forceinline__ int begin_sums(EpilogueWarp& my) {
  const int buffer = my.round % 2;
  ptx::partials_sync<shape::EPILOGUE_THREADS>(buffer);
  xray::sums_begin(my.log);
  my.failed = has_failed(my.shared);
  return buffer;
}

// Releases their buffer.
__device__ __forceinline__ void end_sums(EpilogueWarp& my, int buffer) {
  xray::sums_end(my.log);
  __syncwarp();
  if (my.lane() == 0) ptx::mbarrier_arrive(&my.shared.read[buffer]);
  xray::keep(my.log, my.args, my.round);
  my.round++;
}

// The block's pieces of a phase are published.
__device__ __forceinline__ void finish(const EpilogueWarp& my, const Slot& to, int2 pieces) {
  Handoff::finish_pieces(my.args, my.shared, to, pieces.x, pieces.y);
  Handoff::finish_phase(my.args, my.shared, to);
}

// The epilogue of a matvec of the normed residual stream.
template <class W, class To>
__device__ __forceinline__ void epilogue(EpilogueWarp& my, const u8* matrix, const Slot& to) {
  const int2 tiles = my.shared.shares[W::SHARE_AT];
  float rms = 1.f;
  int first = tiles.x;
#pragma unroll 1
  do {
    const int count = min(W::TILES, tiles.y - first);
    float scale[Rows<W>::EACH];
    load_scales<W>(my, matrix, first, count, scale);
    const int buffer = begin_sums(my);
    if (first == tiles.x) {
      const float squares = tree_sum<shape::CONSUMER_WARPS>(my.shared.squares[buffer]);
      rms = ptx::reciprocal_sqrt(squares / shape::HIDDEN + my.args.norm_eps);
    }
    round_of<W, To>(my, to, first, count, scale, rms, buffer);
    end_sums(my, buffer);
    first += W::TILES;
  } while (first < tiles.y);
  if (W::ROW.epilogue != Epilogue::Logits) finish(my, to, tiles);
}

// The epilogue of the O projection: a lane has a pair of an item's rows.
__device__ __forceinline__ void output_epilogue(EpilogueWarp& my, const u8* matrix, const Slot& to) {
  using Scales = Tiles<OutputWork::Format>;
  const int2 items = my.shared.shares[O_PROJ_SHARE];
  static_assert(shape::ITEM_TILES * shape::TILE_ROWS == 64, "a pair of rows a lane");
#pragma unroll 1
  for (int item = items.x; item < items.y; item++) {
    const int row = shape::rank_of_item(item, shape::KV_HEADS) * 64 + 2 * my.lane();
    const float first = Scales::row_scale(matrix, shape::Q_DIM, row);
    const float second = Scales::row_scale(matrix, shape::Q_DIM, row + 1);
    const int buffer = begin_sums(my);
    // The warps that share a tile lie side by side in its rows.
    const int tile = my.lane() / 8, within = 2 * my.lane() % shape::TILE_ROWS;
    const auto sum = [&](int row) {
      return tree_sum<OutputWork::SLICES>(&my.shared.partial[buffer][row][tile * OutputWork::SLICES]);
    };
    const float2 values = {sum(within) * first, sum(within + 1) * second};
    if (!my.failed) Handoff::publish(my.args, to, item * shape::O_PROJ_LINE + my.lane(), values);
    end_sums(my, buffer);
  }
  finish(my, to, items);
}

// The epilogue of the down projection: two lanes have a row.
__device__ __forceinline__ void down_epilogue(EpilogueWarp& my, const u8* matrix, const Slot& to) {
  using Scales = Tiles<LayerFormat>;
  constexpr int HALF = shape::CONSUMER_WARPS / 2;
  const int2 items = my.shared.shares[DOWN_SHARE];
#pragma unroll 1
  for (int item = items.x; item < items.y; item++) {
    const int row = my.lane() / 2, tile = item / shape::DOWN_SPLITS;
    const float scale = Scales::row_scale(matrix, shape::INTERMEDIATE, tile * shape::TILE_ROWS + row);
    const int buffer = begin_sums(my);
    float value = tree_sum<HALF>(&my.shared.partial[buffer][row][my.lane() % 2 * HALF]);
    value = (value + __shfl_xor_sync(~0u, value, 1)) * scale;
    const float next = __shfl_down_sync(~0u, value, 2);
    if (my.lane() % 4 == 0 && !my.failed) {
      Handoff::publish(my.args, to, item * shape::DOWN_LINE + my.lane() / 4, {value, next});
    }
    end_sums(my, buffer);
  }
  finish(my, to, items);
}
