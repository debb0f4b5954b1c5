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
  // Where the partial sums and the squares lie in shared memory: in registers, since computing an address
  // would lie between the sums and their publication.
  u32 partials = ptx::pinned(ptx::shared_address(shared.partial)),
      squares = ptx::pinned(ptx::shared_address(shared.squares));

  __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
};

// The sum of `COUNT` values in shared memory, as a tree whose shape does not depend on anything.
template <int COUNT>
__device__ __forceinline__ float tree_sum(u32 values) {
  static_assert(COUNT == 4 || COUNT == 8 || COUNT == 16, "a tree of quads");
  const float4 a = ptx::load_shared_quad_at(values);
  float sum = (a.x + a.y) + (a.z + a.w);
  if constexpr (COUNT >= 8) {
    const float4 b = ptx::load_shared_quad_at(values + 16);
    sum += (b.x + b.y) + (b.z + b.w);
  }
  if constexpr (COUNT == 16) {
    const float4 c = ptx::load_shared_quad_at(values + 32), d = ptx::load_shared_quad_at(values + 48);
    sum += ((c.x + c.y) + (c.z + c.w)) + ((d.x + d.y) + (d.z + d.w));
  }
  return sum;
}

// Where a row's partial sums of a buffer lie.
__device__ __forceinline__ u32 partials_of(const EpilogueWarp& my, int buffer, int row) {
  constexpr u32 ROW = sizeof(my.shared.partial[0][0]), BUFFER = sizeof(my.shared.partial[0]);
  return my.partials + buffer * BUFFER + row * ROW;
}

__device__ __forceinline__ float silu(float x) {
  return x * ptx::reciprocal(1.f + ptx::exp2(-ptx::LOG2_E * x));
}

// Rows of a lane in a round; of gate and up, one of each.
template <class W>
struct Rows {
  static constexpr int EACH = W::ROW.epilogue == Epilogue::Gate ? 2 : ceiling(W::TILES * shape::TILE_ROWS, 32);
};

// A lane's own unit of a slot: computed before the sums are there.
__device__ __forceinline__ Slot unit_at(const Slot& slot, int place) {
  u64* unit = slot.units + place;
  ptx::pin(unit);
  return {unit, slot.layer, slot.phase};
}

// Publishes the pair of this lane's value and the next lane's, from the even lanes.
__device__ __forceinline__ void publish_pair(const EpilogueWarp& my, const Slot& unit, float value, bool used) {
  const float next = __shfl_down_sync(~0u, value, 1);
  if (used && my.lane() % 2 == 0 && !my.failed) Handoff::publish(my.args, unit, 0, {value, next});
}

// The norm's factor, from the sums of squares that come with a matvec's first round.
__device__ __forceinline__ float rms_of(const EpilogueWarp& my, int buffer) {
  const float squares = tree_sum<shape::CONSUMER_WARPS>(my.squares + buffer * sizeof(my.shared.squares[0]));
  return ptx::reciprocal_sqrt(squares / shape::HIDDEN + my.args.norm_eps);
}

// The row of a round whose sum a lane has; of gate and up the gate's, eight rows before the up row.
template <class W>
__device__ __forceinline__ int row_of(const EpilogueWarp& my, int at) {
  if (W::ROW.epilogue != Epilogue::Gate) return at * 32 + my.lane();
  return my.lane() / 8 * shape::TILE_ROWS + my.lane() % 8 + 8 * at;
}

// The scales of a lane's rows in a round, loaded before the sums are there. For gate and up: of the gate
// row, and of the up row.
template <class W>
__device__ __forceinline__ void load_scales(const EpilogueWarp& my, const u8* matrix, int first, int count,
                                            float (&scale)[Rows<W>::EACH]) {
#pragma unroll
  for (int at = 0; at < Rows<W>::EACH; at++) {
    const int row = row_of<W>(my, at);
    scale[at] = 1.f;
    if (row < count * shape::TILE_ROWS) {
      scale[at] = Tiles<typename W::Format>::row_scale(matrix, W::ROW.columns, first * shape::TILE_ROWS + row);
    }
  }
}

// Waits for a round's partial sums.
__device__ __forceinline__ void begin_sums(EpilogueWarp& my, int buffer) {
  ptx::partials_sync<shape::EPILOGUE_THREADS>(buffer);
  xray::sums_begin(my.log);
  my.failed = has_failed(my.shared);
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
  constexpr bool IS_GATE = W::ROW.epilogue == Epilogue::Gate, IS_HEAD = W::ROW.epilogue == Epilogue::Logits;
  constexpr int EACH = Rows<W>::EACH;
  const int2 tiles = my.shared.shares[W::SHARE_AT];
  static_assert(IS_HEAD || IS_GATE || EACH == 1, "a lane a value");
  static_assert(!IS_GATE || W::TILES * shape::TILE_ROWS / 2 <= 32, "likewise");
  float rms = 1.f;
  int first = tiles.x;
#pragma unroll 1
  do {
    const int count = min(W::TILES, tiles.y - first), buffer = my.round % 2;
    float scale[EACH], sums[EACH];
    load_scales<W>(my, matrix, first, count, scale);
    // The first of this lane's values, and the end of the round's.
    const int value = first * shape::TILE_ROWS / (IS_GATE ? 2 : 1) + my.lane();
    const int end = (first + count) * shape::TILE_ROWS / (IS_GATE ? 2 : 1);
    const Slot unit = IS_HEAD ? to : unit_at(to, To::place(value / 2, 0));
    u32 from[EACH];
#pragma unroll
    for (int at = 0; at < EACH; at++) {
      // A lane without a row adds up another's.
      from[at] = ptx::pinned(partials_of(my, buffer, min(row_of<W>(my, at), W::TILES * shape::TILE_ROWS - 1)));
    }
    begin_sums(my, buffer);
#pragma unroll
    for (int at = 0; at < EACH; at++) sums[at] = tree_sum<shape::CONSUMER_WARPS>(from[at]);
    if (first == tiles.x) rms = rms_of(my, buffer);
#pragma unroll
    for (int at = 0; at < EACH; at++) sums[at] *= rms * scale[at];
    if constexpr (IS_HEAD) {
#pragma unroll
      for (int at = 0; at < EACH; at++) {
        const int index = value + 32 * at;
        if (index >= end || index >= shape::VOCAB) continue;
        if (my.args.logits != nullptr) my.args.logits[index] = sums[at];
        my.best.consider(sums[at], sums[at] == sums[at] ? u32(index) : abi::NOT_A_NUMBER);
      }
    } else {
      publish_pair(my, unit, IS_GATE ? silu(sums[0]) * sums[EACH - 1] : sums[0], value < end);
    }
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
    const int row = shape::rank_of_item(item, shape::KV_HEADS) * 64 + 2 * my.lane(), buffer = my.round % 2;
    const float first = Scales::row_scale(matrix, shape::Q_DIM, row);
    const float second = Scales::row_scale(matrix, shape::Q_DIM, row + 1);
    const Slot unit = unit_at(to, item * shape::O_PROJ_LINE + my.lane());
    // The warps that share a tile lie side by side in its rows.
    const int tile = my.lane() / 8, within = 2 * my.lane() % shape::TILE_ROWS;
    const u32 from = ptx::pinned(partials_of(my, buffer, within) + tile * OutputWork::SLICES * sizeof(float));
    begin_sums(my, buffer);
    const float2 values = {tree_sum<OutputWork::SLICES>(from) * first,
                           tree_sum<OutputWork::SLICES>(from + sizeof(my.shared.partial[0][0])) * second};
    if (!my.failed) Handoff::publish(my.args, unit, 0, values);
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
    const int row = my.lane() / 2, tile = item / shape::DOWN_SPLITS, buffer = my.round % 2;
    const float scale = Scales::row_scale(matrix, shape::INTERMEDIATE, tile * shape::TILE_ROWS + row);
    const Slot unit = unit_at(to, item * shape::DOWN_LINE + my.lane() / 4);
    const u32 from = ptx::pinned(partials_of(my, buffer, row) + my.lane() % 2 * HALF * sizeof(float));
    begin_sums(my, buffer);
    float value = tree_sum<HALF>(from);
    value = (value + __shfl_xor_sync(~0u, value, 1)) * scale;
    const float next = __shfl_down_sync(~0u, value, 2);
    if (my.lane() % 4 == 0 && !my.failed) Handoff::publish(my.args, unit, 0, {value, next});
    end_sums(my, buffer);
  }
  finish(my, to, items);
}
