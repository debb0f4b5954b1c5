// What the model's shape and the row of the variant table must hold (step.cuh has the numbers).
#pragma once
#include "step.cuh"

namespace shape {

static_assert(SLOT_UNITS < 1ull << 32, "a unit's number is 32 bits of a fault record");
static_assert(HEAD_DIM == 128, "attention is written for heads of 128: a lane holds 4 dimensions");
static_assert(HEADS % KV_HEADS == 0 && GROUP_HEADS <= 8, "query heads of a KV head: 1 to 8");
static_assert(HIDDEN % (ITEM_TILES * TILE_ROWS) == 0, "whole ranks");
static_assert(INTERMEDIATE % (DOWN_SPLITS * RUN_COLUMNS) == 0, "whole splits");
static_assert(HIDDEN % 256 == 0, "hidden: a multiple of 256");
static_assert(INTERMEDIATE % 256 == 0, "intermediate: likewise");
static_assert(Q_DIM % 256 == 0, "all query heads: likewise");
static_assert(KV_CHUNK % CONSUMER_WARPS == 0, "a chunk divides among the warps");
// A loader that waited for the copy of more stages ago would wait for one that it issues behind the wait.
static_assert(FLIGHT <= STAGES && KV_FLIGHT <= STAGES && HEAD_FLIGHT <= STAGES, "a stage for each copy");
static_assert(QKV_DIM % TILE_ROWS == 0 && HIDDEN % TILE_ROWS == 0, "whole tiles");

}  // namespace shape
