// The streaming matrix-vector product: this block's tiles of a matrix times the activation.
#pragma once
#include "../formats/tiles.cuh"
#include "../roles/consumer.cuh"

// Multiplies this warp's fragments of one stage; the team's warps take fragments round-robin.
// `left` counts the fragments from this warp's first one to the end of the tile.
template <class Format>
__device__ __forceinline__ void multiply_stage(const u8* weights, const u8* x, int left,
                                               float (&sums)[4]) {
  constexpr int STEPS = Format::COLS / abi::FRAGMENT_COLS * Format::Activation::STEP_BYTES;
  constexpr bool WHOLE = Tiles<Format>::WHOLE_ROUNDS;
  // Two accumulators, so that no MMA waits for the one just before it.
  float others[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int at = 0; at < Tiles<Format>::STAGE_FRAGMENTS; at += 2 * shape::TEAM_WARPS) {
    const int next = at + shape::TEAM_WARPS;
    if (at >= left) break;
    Format::multiply(weights + at * Format::BYTES, x + at * STEPS, sums);
    if (!WHOLE && next >= left) break;
    Format::multiply(weights + next * Format::BYTES, x + next * STEPS, others);
  }
#pragma unroll
  for (int at = 0; at < 4; at++) sums[at] += others[at];
}

__device__ __forceinline__ void wait_for_stage(Consumer& my, u32 layer, abi::Phase phase) {
  xray::note(my.log, abi::Moment::Starved);
  if (!wait_full(my.args, my.shared, my.cursor, layer, phase)) my.ok = false;
  xray::note(my.log, abi::Moment::Fed);
}

// Multiplies one tile, stage by stage: each stage's team multiplies its fragments and releases it.
template <class Format>
__device__ __forceinline__ void multiply_tile(Consumer& my, int columns, u32 layer, abi::Phase phase,
                                              float (&sums)[4]) {
  constexpr int STEPS = Format::COLS / abi::FRAGMENT_COLS * Format::Activation::STEP_BYTES;
  const int fragments = Tiles<Format>::fragments(columns);
  const int member = my.warp() % shape::TEAM_WARPS, team = my.warp() / shape::TEAM_WARPS;
  const bool injected = my.args.injected_kind == abi::INJECTED_NO_RELEASE &&
                       my.args.injected_block == blockIdx.x && my.args.injected_layer == layer &&
                       my.args.injected_phase == static_cast<u32>(phase);
  const u8* x = Format::Activation::operand(my.shared) + member * STEPS;
#pragma unroll 1
  for (int first = 0; first < fragments; first += Tiles<Format>::STAGE_FRAGMENTS) {
    if (my.cursor.team() == team) {
      const int stage = my.cursor.stage;
      if (!is_full(my.shared, my.cursor)) wait_for_stage(my, layer, phase);
      const u8* weights = &my.shared.ring[stage][member * Format::BYTES];
      multiply_stage<Format>(weights, x + first * STEPS, fragments - first - member, sums);
      __syncwarp();
      if (my.lane() == 0 && !injected) ptx::mbarrier_arrive(&my.shared.empty[stage]);
    }
    my.cursor.advance();
  }
}

// Stores this warp's sums of one tile's 16 rows.
template <class Format>
__device__ __forceinline__ void keep_sums(float (&to)[shape::BATCH_ROWS], int tile, const float (&sums)[4]) {
  const float2 rows = Format::Activation::row_sums(sums);
  const int lane = threadIdx.x % 32;
  if (lane % 4 == 0) {
    to[tile * shape::TILE_ROWS + lane / 4] = rows.x;
    to[tile * shape::TILE_ROWS + lane / 4 + 8] = rows.y;
  }
}

// Multiplies this block's tiles by the activation and calls the epilogue `each(row, value)` for
// every row: one thread per row, and each thread in the order of its rows. Returns false on abort.
template <class Format, class Each>
__device__ __forceinline__ bool multiply_tiles(Consumer& my, const u8* matrix, TileRange tiles, int columns,
                                        u32 layer, abi::Phase phase, Each each) {
#pragma unroll 1
  for (int first = tiles.begin, batch = 0; first < tiles.end; first += shape::BATCH_TILES, batch ^= 1) {
    const int count = min(shape::BATCH_TILES, tiles.end - first);
    const int first_team = my.cursor.team(), row = first * shape::TILE_ROWS + my.thread();
    const bool has_row = my.thread() < count * shape::TILE_ROWS;
    // Prefetched: the scale is used after the sums.
    float scale = 1.f;
    if (has_row) scale = Tiles<Format>::row_scale(matrix, columns, row);
#pragma unroll 1
    for (int tile = 0; tile < count; tile++) {
      float sums[4] = {0.f, 0.f, 0.f, 0.f};
      multiply_tile<Format>(my, columns, layer, phase, sums);
      keep_sums<Format>(my.shared.sums[batch][my.warp()], tile, sums);
    }
    xray::note(my.log, abi::Moment::Multiplied);
    if (!my.sync()) return false;
    xray::note(my.log, abi::Moment::Summed);
    // The next batch writes the other buffer, so this one may be read until the sync after that.
    if (has_row) {
      // Adds in the order of the pieces; the first piece's team depends on the tile's place in the
      // stream.
      const int tile = my.thread() / shape::TILE_ROWS;
      const int rotation = (first_team + tile * Tiles<Format>::pieces(columns)) % shape::TEAMS;
      float value = 0.f;
#pragma unroll
      for (int at = 0; at < shape::CONSUMER_WARPS; at++) {
        const int warp = (at + rotation * shape::TEAM_WARPS) % shape::CONSUMER_WARPS;
        value += my.shared.sums[batch][warp][my.thread()];
      }
      each(row, Format::SCALE_BYTES == 0 ? value : value * scale);
    }
  }
  return true;
}
