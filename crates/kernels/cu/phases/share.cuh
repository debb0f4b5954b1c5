// Which positions of the KV cache a block attends to, and how the cache lies in memory: what attention and
// the loader both need.
//
// Keys and values are cached as fragments of the tensor cores' A operand, 16 positions to a group of
// GROUP_BYTES, so that a bulk copy of a group needs no conversion:
//
//   keys      rows are positions, columns dimensions: the fragments 2 j and 2 j + 1 hold the dimensions
//             16 j to 16 j + 15 and their partners in the rotation, 64 more
//   values    rows are dimensions, columns positions: fragment f holds the dimensions 16 f to 16 f + 15, the
//             dimension 2 r in row r and 2 r + 1 in row r + 8, so that one lane gets a pair of sums
#pragma once
#include "../shape.cuh"

namespace attention {

using shape::HEAD_PAIRS;
// Whether attention is a phase of its own, up to KV_LOCAL positions.
constexpr bool APART = ML_ATTENTION == static_cast<u32>(abi::Attention::Apart);
// Positions of a group.
constexpr int GROUP = shape::KV_GROUP;
constexpr int POSITION_BYTES = 2 * shape::HEAD_DIM;
constexpr int GROUP_BYTES = GROUP * POSITION_BYTES;
// Groups of a round: two chunks of positions.
constexpr int GROUPS = shape::KV_ROUND / GROUP;
static_assert(shape::KV_CHUNK % GROUP == 0, "whole groups");
static_assert(shape::KV_ROUND * POSITION_BYTES <= shape::STAGE_BYTES, "a round's keys fit a stage");
static_assert(shape::KV_LOCAL <= shape::KV_BATCH, "one batch if every rank attends to all positions");
// Rounds of a batch.
constexpr int ROUNDS = shape::KV_BATCH / shape::KV_ROUND;
static_assert(ROUNDS <= shape::STAGES, "a batch's keys are waited for at once");
static_assert(ROUNDS * GROUPS <= shape::CONSUMER_WARPS, "a warp a group");

// The cached keys (0) or values (1) of a KV head.
__device__ __forceinline__ u8* cache_of(const abi::StepArgs& args, u32 layer, int which, int kv_head) {
  const u64 head = (u64(layer) * 2 + which) * shape::KV_HEADS + kv_head;
  const u64 positions = shape::kv_capacity(args.context, shape::KV_CHUNK);
  return reinterpret_cast<u8*>(args.kv) + head * positions * POSITION_BYTES;
}

struct Item {
  int kv_head, rank;
};

__device__ __forceinline__ Item item_of(int at) {
  return {shape::kv_head_of_item(at, shape::KV_HEADS), shape::rank_of_item(at, shape::KV_HEADS)};
}

// The chunks that are one of `splits` shares of the KV range: all of them, if there is one share. `cached` is
// how many positions are in the cache: all but the newest.
struct Share {
  int split, splits;

  // The first position of a round's first or second chunk.
  __device__ __forceinline__ u32 chunk_begin(int round, int chunk) const {
    return u32(split + splits * (2 * round + chunk)) * shape::KV_CHUNK;
  }

  // A round's `at`-th position.
  __device__ __forceinline__ u32 position(int round, int at) const {
    return chunk_begin(round, at / shape::KV_CHUNK) + at % shape::KV_CHUNK;
  }

  // Whether any of a group's positions is cached.
  __device__ __forceinline__ bool has_group(int round, int group, u32 cached) const {
    return position(round, group * GROUP) < cached;
  }

  // Rounds that have cached positions.
  __device__ __forceinline__ int rounds(u32 cached) const {
    if (splits == 1) return (cached + shape::KV_ROUND - 1) / shape::KV_ROUND;
    const int chunks = (cached + shape::KV_CHUNK - 1) / shape::KV_CHUNK;
    return chunks <= split ? 0 : ((chunks - 1 - split) / splits + 2) / 2;
  }

  // Whether the newest position is this share's.
  __device__ __forceinline__ bool has_newest(u32 newest) const {
    return splits == 1 || shape::split_of(newest, shape::KV_CHUNK, splits) == u32(split);
  }
};

// The number of splits of a step.
__device__ __forceinline__ int splits_of(const abi::StepArgs& args) {
  return shape::active_splits(args.position + 1, shape::KV_CHUNK, shape::SPLITS, shape::KV_LOCAL);
}

}  // namespace attention
