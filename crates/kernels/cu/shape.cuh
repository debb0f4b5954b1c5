// The model's shape and the variant as compile-time constants, and the constants derived from them.
#pragma once
#include "abi.cuh"
#include "types.cuh"

namespace shape {

constexpr int HIDDEN = ML_HIDDEN;
constexpr int INTERMEDIATE = ML_INTERMEDIATE;
constexpr int LAYERS = ML_LAYERS;
constexpr int HEADS = ML_HEADS;
constexpr int KV_HEADS = ML_KV_HEADS;
constexpr int HEAD_DIM = ML_HEAD_DIM;
constexpr int VOCAB = ML_VOCAB;

constexpr int GROUP_HEADS = HEADS / KV_HEADS;
constexpr int Q_DIM = HEADS * HEAD_DIM;
constexpr int KV_DIM = KV_HEADS * HEAD_DIM;
constexpr int QKV_DIM = Q_DIM + 2 * KV_DIM;

// ---- the block: consumer warps and one loader warp

constexpr int CONSUMER_WARPS = ML_CONSUMER_WARPS;
constexpr int CONSUMERS = 32 * CONSUMER_WARPS;
// The loader's warp; in X-ray builds also the observer's and the watcher's warps.
constexpr int LOADER = CONSUMERS;
constexpr int OBSERVER = LOADER + 32;
constexpr int WATCHER = OBSERVER + 32;
constexpr int THREADS = OBSERVER + (ML_XRAY ? 64 : 0);

// One team of warps multiplies a stage, the next team the next stage: fewer warps pay a stage's
// fixed cost (the wait, the release). With all 16 warps at every bf16 stage, that cost was 250 ns
// of issue per stage on an H200. FP8 is fastest with one team (notes/fp8.md).
constexpr int TEAMS = ML_TEAMS;
constexpr int TEAM_WARPS = CONSUMER_WARPS / TEAMS;
static_assert(CONSUMER_WARPS % TEAMS == 0, "whole teams");

// ---- tiles of 16 rows (tiles.cuh), and the ring whose stages hold pieces of tiles

constexpr int TILE_ROWS = abi::TILE_ROWS;

__device__ constexpr int tiles(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }

constexpr int STAGES = ML_STAGES;
constexpr int STAGE_BYTES = ML_STAGE_BYTES;

__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int WIDEST = larger(larger(HIDDEN, INTERMEDIATE), Q_DIM);

// ---- the KV cache: chunks of positions go to splits round-robin

constexpr int KV_CHUNK = ML_KV_CHUNK;
constexpr int KV_SPLITS = ML_KV_SPLITS;

// ---- slots, in units of 8 bytes

constexpr int QKV_SLOT = 0;
constexpr int ATTENTION_SLOT = QKV_SLOT + QKV_DIM;
constexpr int O_PROJ_SLOT = ATTENTION_SLOT + Q_DIM;
constexpr int GATE_UP_SLOT = O_PROJ_SLOT + HIDDEN;
constexpr int DOWN_SLOT = GATE_UP_SLOT + INTERMEDIATE;
constexpr int LAYER_UNITS = DOWN_SLOT + HIDDEN;

// For each query head and split: the unnormalized output, the largest score, the sum of weights.
constexpr int PARTIAL_UNITS = HEAD_DIM + 2;
constexpr int LAYER_PARTIALS = HEADS * KV_SPLITS * PARTIAL_UNITS;

constexpr u64 PARTIALS_BASE = u64(LAYERS) * LAYER_UNITS;
constexpr u64 FINAL_BASE = PARTIALS_BASE + u64(LAYERS) * LAYER_PARTIALS;
// Two copies, used by the parity of the step; two units per block.
constexpr u64 FINAL_UNITS = 2 * abi::BLOCKS_MAX;
constexpr u64 SLOT_UNITS = FINAL_BASE + 2 * FINAL_UNITS;

static_assert(SLOT_UNITS < 1ull << 32, "a unit's number is 32 bits of a fault record");
static_assert(HEAD_DIM == 128, "attention is written for heads of 128: a lane holds 4 dimensions");
static_assert(HEADS % KV_HEADS == 0 && GROUP_HEADS <= 8, "query heads of a KV head: 1 to 8");
static_assert(GROUP_HEADS + 2 <= CONSUMER_WARPS, "a warp for each query head, the key, the value");
static_assert(HIDDEN % 256 == 0, "hidden: a multiple of 256");
static_assert(INTERMEDIATE % 256 == 0, "intermediate: likewise");
static_assert(Q_DIM % 256 == 0, "all query heads: likewise");
static_assert(STAGES % TEAMS == 0, "a stage belongs to one team for good");
static_assert(KV_CHUNK % CONSUMER_WARPS == 0, "a chunk divides among the warps");

}  // namespace shape
