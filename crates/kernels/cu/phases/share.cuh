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

constexpr int HEAD_PAIRS = shape::HEAD_DIM / 2;
// Positions of a group.
constexpr int GROUP = shape::KV_GROUP;
constexpr int POSITION_BYTES = 2 * shape::HEAD_DIM;
constexpr int GROUP_BYTES = GROUP * POSITION_BYTES;
// Groups of a round: two chunks of positions.
constexpr int GROUPS = shape::KV_ROUND / GROUP;
static_assert(shape::KV_CHUNK % GROUP == 0, "whole groups");
static_assert(shape::KV_ROUND * POSITION_BYTES <= shape::STAGE_BYTES, "a round's keys fit a stage");

// The cached keys (0) or values (1) of a KV head.
__device__ __forceinline__ u8* cache_of(const abi::StepArgs& args, u32 layer, int which, int kv_head) {
  const u64 head = (u64(layer) * 2 + which) * shape::KV_HEADS + kv_head;
  return reinterpret_cast<u8*>(args.kv) + head * shape::kv_capacity(args.context, shape::KV_CHUNK) * POSITION_BYTES;
}

struct Item {
  int kv_head, rank;
};

__device__ __forceinline__ Item item_of(int at) {
  return {shape::kv_head_of_item(at, shape::KV_HEADS), shape::rank_of_item(at, shape::KV_HEADS)};
}

// The chunks that are one of `splits` shares of the KV range: all of them, if there is one share.
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

  __device__ __forceinline__ bool has_group(int round, int group, u32 newest) const {
    return position(round, group * GROUP) <= newest;
  }

  // Rounds up to the newest position; the share has at least one chunk.
  __device__ __forceinline__ int rounds(u32 newest) const {
    if (splits == 1) return 1;
    const int chunks = newest / shape::KV_CHUNK + 1;
    return ((chunks - 1 - split) / splits + 2) / 2;
  }

  // Where the newest position is: the round, and its number in that; another share has it: a round of -1.
  __device__ __forceinline__ int2 place_of(u32 newest) const {
    if (splits == 1) return {0, int(newest)};
    if (shape::split_of(newest, shape::KV_CHUNK, splits) != u32(split)) return {-1, 0};
    const int chunk = newest / shape::KV_CHUNK / splits;
    return {chunk / 2, chunk % 2 * shape::KV_CHUNK + int(newest % shape::KV_CHUNK)};
  }
};

// The number of splits of a step.
__device__ __forceinline__ int splits_of(const abi::StepArgs& args) {
  return shape::active_splits(args.position + 1, shape::KV_CHUNK, shape::SPLITS, shape::KV_ROUND);
}

}  // namespace attention
