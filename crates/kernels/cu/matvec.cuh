// The one streaming product: this block's tiles of a matrix times the activation.
#pragma once
#include "activation.cuh"
#include "formats/bf16.cuh"
#include "ring.cuh"

// The consumer warps' place: which stage comes next. Same for every warp.
struct Consumer {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // False once a wait has failed; the block leaves together at the next barrier.
  bool fine = true;

  __device__ __forceinline__ int warp() const { return threadIdx.x / 32; }
  __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
  __device__ __forceinline__ int thread() const { return threadIdx.x; }

  __device__ __forceinline__ bool sync() {
    fine = ptx::consumers_sync_all<shape::CONSUMERS>(fine);
    return fine;
  }
};

// This block's share of `count` pieces of work, contiguous, the same rule as on the host. In 32
// bits, which a vocabulary's tiles times 256 blocks fit: a 64-bit division is 150 instructions.
struct Share {
  int begin, end;
};

__device__ __forceinline__ Share share_of(int count) {
  const u32 block = blockIdx.x, blocks = gridDim.x, pieces = count;
  return {int(block * pieces / blocks), int((block + 1) * pieces / blocks)};
}

// One fragment, `at` fragments on.
__device__ __forceinline__ void multiply_fragment(const u8* weights, const u16* operand, int at,
                                                  float (&sums)[4]) {
  const uint2 x = *reinterpret_cast<const uint2*>(operand + at * shape::FRAGMENT_COLS);
  bf16::multiply(weights + at * shape::FRAGMENT_BYTES, x.x, x.y, sums);
}

// One tile: of each stage, the team whose turn it is multiplies the fragments and releases it.
__device__ __forceinline__ void multiply_tile(Consumer& my, int columns, u32 layer, abi::Phase phase,
                                              float (&sums)[4]) {
  const int fragments = columns / shape::FRAGMENT_COLS;
  const int member = my.warp() % shape::TEAM_WARPS, team = my.warp() / shape::TEAM_WARPS;
  const bool planted = my.args.planted_kind == abi::PLANTED_NO_RELEASE &&
                       my.args.planted_block == blockIdx.x && my.args.planted_layer == layer &&
                       my.args.planted_phase == static_cast<u32>(phase);
  const u16* x = activation_operand(my.shared) + member * shape::FRAGMENT_COLS;
#pragma unroll 1
  for (int first = 0; first < fragments; first += shape::STAGE_FRAGMENTS) {
    if (my.cursor.team() == team) {
      const int stage = my.cursor.stage;
      my.fine = wait_full(my.args, my.shared, my.cursor, layer, phase) && my.fine;
      const u8* weights = &my.shared.ring[stage][member * shape::FRAGMENT_BYTES];
      const u16* operand = x + first * shape::FRAGMENT_COLS;
      float others[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int at = 0; at < shape::STAGE_FRAGMENTS; at += 2 * shape::TEAM_WARPS) {
        // A tile's last stage may be part full, by whole rounds of all warps.
        if (first + at >= fragments) break;
        // Two sums, so that one product need not wait for the one before it.
        multiply_fragment(weights, operand, at, sums);
        multiply_fragment(weights, operand, at + shape::TEAM_WARPS, others);
      }
#pragma unroll
      for (int at = 0; at < 4; at++) sums[at] += others[at];
      __syncwarp();
      if (my.lane() == 0 && !planted) ptx::mbarrier_arrive(&my.shared.empty[stage]);
    }
    my.cursor.advance();
  }
}

// Adds the parts' columns and keeps this warp's sums of one tile's 16 rows.
__device__ __forceinline__ void keep_sums(float (&to)[BATCH_ROWS], int tile, const float (&sums)[4]) {
  // Lane 4 g + t holds columns 2 t and 2 t + 1 of rows g and g + 8: hi and mid in t = 0, lo in
  // t = 1. The other columns are zero.
  float top = sums[0] + sums[1], bottom = sums[2] + sums[3];
  top += __shfl_xor_sync(~0u, top, 1);
  bottom += __shfl_xor_sync(~0u, bottom, 1);
  const int lane = threadIdx.x % 32;
  if (lane % 4 == 0) {
    to[tile * shape::TILE_ROWS + lane / 4] = top;
    to[tile * shape::TILE_ROWS + lane / 4 + 8] = bottom;
  }
}

// Calls `each(row, value)` for every row of this block's tiles, a thread a row, in order of the
// rows for each thread. False if the launch is to be left.
template <class Each>
__device__ __forceinline__ bool product(Consumer& my, Share tiles, int columns, u32 layer,
                                        abi::Phase phase, Each each) {
#pragma unroll 1
  for (int first = tiles.begin, batch = 0; first < tiles.end; first += BATCH_TILES, batch ^= 1) {
    const int count = min(BATCH_TILES, tiles.end - first);
    const int first_team = my.cursor.team();
#pragma unroll 1
    for (int tile = 0; tile < count; tile++) {
      float sums[4] = {0.f, 0.f, 0.f, 0.f};
      multiply_tile(my, columns, layer, phase, sums);
      keep_sums(my.shared.sums[batch][my.warp()], tile, sums);
    }
    if (!my.sync()) return false;
    // The other batch's sums are written next: this one's may be read until the sync after.
    if (my.thread() < count * shape::TILE_ROWS) {
      // In order of the pieces, whose first team depends on where in the stream the tile lies.
      const int tile = my.thread() / shape::TILE_ROWS;
      const int rotation = (first_team + tile * shape::pieces(columns)) % shape::TEAMS;
      float value = 0.f;
#pragma unroll
      for (int at = 0; at < shape::CONSUMER_WARPS; at++) {
        const int warp = (at + rotation * shape::TEAM_WARPS) % shape::CONSUMER_WARPS;
        value += my.shared.sums[batch][warp][my.thread()];
      }
      each(first * shape::TILE_ROWS + my.thread(), value);
    }
  }
  return true;
}
