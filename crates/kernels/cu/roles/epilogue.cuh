// The epilogue warp: adds up the consumer warps' partial sums of a round, applies the norm, the residual
// stream, SwiGLU or the argmax, and publishes. The consumers are at the next weights meanwhile.
#pragma once
#include "../phases/head.cuh"
#include "../phases/work.cuh"
#include "consumer.cuh"

struct Epilogue_ {
  const abi::StepArgs& args;
  Shared& shared;
  u32 round = 0;
  bool failed = false;
  head::Best best = head::nothing();

  __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
};

// The sum of a row's partial sums, as a tree whose shape does not depend on anything.
template <int COUNT>
__device__ __forceinline__ float tree_sum(const float* values) {
  float4 quads[COUNT / 4];
  float sum = 0.f;
#pragma unroll
  for (int at = 0; at < COUNT / 4; at++) quads[at] = reinterpret_cast<const float4*>(values)[at];
#pragma unroll
  for (int at = 0; at < COUNT / 4; at++) sum += (quads[at].x + quads[at].y) + (quads[at].z + quads[at].w);
  return sum;
}

__device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }

// One round's rows: `value(row)` is the sum of a row of the round.
template <class W>
struct Rows {
  static constexpr int COUNT = W::TILES * shape::TILE_ROWS;
  // Rows of a lane; of gate and up, one of each.
  static constexpr int EACH = W::ROW.epilogue == Epilogue::Gate ? 2 : ceiling(COUNT, 32);
};

// Publishes the pair of this lane's value and the next lane's, from the even lanes.
template <class W>
__device__ __forceinline__ void publish_pairs(const Epilogue_& my, const Slot& to, int row, float value, bool used) {
  const float next = __shfl_down_sync(~0u, value, 1);
  if (!used || my.lane() % 2 != 0 || my.failed) return;
  Handoff::publish(my.args, to, output_place<W::ROW.phase>(row / 2), {value, next});
}

// One round of a matvec: `first` is its first tile, `count` its tiles. `scale` holds the rows' scales.
template <class W>
__device__ __forceinline__ void round_of(Epilogue_& my, const Slot& to, int first, int count,
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
    publish_pairs<W>(my, to, first * 8 + my.lane(), value, my.lane() < 8 * count);
  } else {
#pragma unroll
    for (int at = 0; at < Rows<W>::EACH; at++) {
      const int row = at * 32 + my.lane(), index = first * shape::TILE_ROWS + row;
      const bool used = row < count * shape::TILE_ROWS;
      float value = 0.f;
      if (used) value = tree_sum<shape::CONSUMER_WARPS>(partial[row]) * rms * scale[at];
      if constexpr (ROW.epilogue == Epilogue::Residual) {
        if (used) my.shared.residual[index] = value += my.shared.residual[index];
      }
      if constexpr (ROW.epilogue == Epilogue::Logits) {
        if (!used || index >= shape::VOCAB) continue;
        if (my.args.logits != nullptr) my.args.logits[index] = value;
        my.best.consider(value, value == value ? u32(index) : abi::NOT_A_NUMBER);
      } else {
        publish_pairs<W>(my, to, index, value, used);
      }
    }
  }
}

// The scales of a lane's rows in a round, loaded before the sums are there. For gate and up: of the gate
// row, and of the up row.
template <class W>
__device__ __forceinline__ void load_scales(const Epilogue_& my, const u8* matrix, int first, int count,
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

// The epilogue of one matvec.
template <class W>
__device__ __forceinline__ void epilogue(Epilogue_& my, const u8* matrix, const Slot& to) {
  const TileRange tiles = tiles_of_block(shape::tiles(W::ROW.rows, shape::TILE_ROWS));
  float rms = 1.f;
#pragma unroll 1
  for (int first = tiles.begin; first < tiles.end; first += W::TILES) {
    const int count = min(W::TILES, tiles.end - first), buffer = my.round % 2;
    float scale[Rows<W>::EACH];
    load_scales<W>(my, matrix, first, count, scale);
    ptx::partials_sync<shape::EPILOGUE_THREADS>(buffer);
    my.failed = *static_cast<volatile u32*>(&my.shared.failed[0]) != 0;
    if (W::ROW.normed && first == tiles.begin) {
      const float squares = tree_sum<shape::CONSUMER_WARPS>(my.shared.squares[buffer]);
      rms = 1.f / sqrtf(squares / shape::HIDDEN + my.args.norm_eps);
    }
    round_of<W>(my, to, first, count, scale, rms, buffer);
    __syncwarp();
    if (my.lane() == 0) ptx::mbarrier_arrive(&my.shared.read[buffer]);
    my.round++;
  }
}

// The block's rows of the residual stream as they are at the step's begin: of the token's embedding.
__device__ __forceinline__ void begin_residual(Epilogue_& my, u32 token) {
  const TileRange tiles = tiles_of_block(shape::tiles(shape::HIDDEN, shape::TILE_ROWS));
  const u8* embedding = my.args.weights + my.args.embedding;
#pragma unroll 1
  for (int pair = tiles.begin * 8 + my.lane(); pair < tiles.end * 8; pair += 32) {
    const float2 values = Tiles<HeadFormat>::element_pair(embedding, shape::HIDDEN, int(token), 2 * pair);
    my.shared.residual[2 * pair] = values.x;
    my.shared.residual[2 * pair + 1] = values.y;
  }
  __syncwarp();
}
