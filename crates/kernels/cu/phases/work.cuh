// A matvec's work as compile-time numbers: which fragments a warp owns, how many it takes into registers
// ahead of the activation, and which columns it gathers.
#pragma once
#include "../formats/tiles.cuh"
#include "../handoff/handoff.cuh"
#include "../shape.cuh"

__device__ constexpr int ceiling(int a, int b) { return (a + b - 1) / b; }

// Whether every phase is a kernel.
constexpr bool BY_PHASE = ML_LAUNCH != static_cast<u32>(abi::Launch::Cooperative);

// Where a block keeps which pieces of each matvec are its own.
enum ShareAt : int { QKV_SHARE, O_PROJ_SHARE, GATE_UP_SHARE, DOWN_SHARE, HEAD_SHARE };

// The matvecs of a step, and the columns that one block multiplies: all of the matrix's, or a split's.
struct Qkv {
  static constexpr int SHARE = QKV_SHARE;
  static constexpr PhaseRow ROW = QKV_ROW;
  static constexpr int COLUMNS = ROW.columns;
};
struct GateUp {
  static constexpr int SHARE = GATE_UP_SHARE;
  static constexpr PhaseRow ROW = GATE_UP_ROW;
  static constexpr int COLUMNS = ROW.columns;
};
struct Down {
  static constexpr int SHARE = DOWN_SHARE;
  static constexpr PhaseRow ROW = DOWN_ROW;
  static constexpr int COLUMNS = ROW.columns / shape::DOWN_SPLITS;
};
struct Head {
  static constexpr int SHARE = HEAD_SHARE;
  static constexpr PhaseRow ROW = HEAD_ROW;
  static constexpr int COLUMNS = ROW.columns;
};

// Columns of a run: a warp owns every CONSUMER_WARPS-th run of a matrix's columns, in every format and
// phase, so that its part of the residual stream stays the same. 16 pairs: one line of the exchange.
constexpr int RUN_COLUMNS = shape::RUN_COLUMNS;
constexpr int RUN_PAIRS = RUN_COLUMNS / 2;
constexpr int RUN_STEPS = RUN_COLUMNS / abi::FRAGMENT_COLS;

template <class Matvec, class Format_>
struct Work {
  using Format = Format_;
  static constexpr PhaseRow ROW = Matvec::ROW;
  static constexpr int COLUMNS = Matvec::COLUMNS;
  static constexpr int SHARE_AT = Matvec::SHARE;
  static_assert(COLUMNS % RUN_COLUMNS == 0, "whole runs");

  // Runs of a tile, and of a warp; fragments of a run.
  static constexpr int RUNS = COLUMNS / RUN_COLUMNS;
  static constexpr int WARP_RUNS = ceiling(RUNS, shape::CONSUMER_WARPS);
  static constexpr int RUN_FRAGMENTS = RUN_COLUMNS / Format::COLS;
  static constexpr int RUN_BYTES = RUN_FRAGMENTS * Format::BYTES;
  static_assert(RUN_BYTES <= sizeof(Shared::zeros), "a run of zeros");
  // Whether every warp has WARP_RUNS runs.
  static constexpr bool WHOLE = RUNS % shape::CONSUMER_WARPS == 0;

  // Stages of a tile (pieces). A stage has a run or more of every warp, or one of every SHARE-th.
  static constexpr int STAGE_RUNS = shape::STAGE_BYTES / RUN_BYTES;
  static constexpr int PIECES = ceiling(RUNS, STAGE_RUNS);
  static constexpr int STAGE_OWN = STAGE_RUNS / shape::CONSUMER_WARPS;
  static constexpr int PIECE_RUNS = STAGE_OWN > 0 ? STAGE_OWN : 1;
  static constexpr int SHARE = STAGE_OWN > 0 ? 1 : shape::CONSUMER_WARPS / STAGE_RUNS;
  static_assert(STAGE_OWN * shape::CONSUMER_WARPS == STAGE_RUNS ||
                    (STAGE_OWN == 0 && SHARE * STAGE_RUNS == shape::CONSUMER_WARPS),
                "a stage divides among the warps");
  // A narrow tile may end before every warp has a run.
  static_assert(PIECES % SHARE == 0 || PIECES < SHARE, "whole turns of stages");

  // A warp's steps along K of one tile, 16 columns each; and tiles that its registers hold at a time.
  static constexpr int STEPS = WARP_RUNS * RUN_STEPS;
  static_assert(STEPS <= shape::STEPS_AHEAD, "a tile's part fits the registers");
  static constexpr int BLOCK_TILES = ceiling(ceiling(ROW.rows, shape::TILE_ROWS), shape::GRID);
  static constexpr int TILES_AHEAD =
      ROW.phase == abi::Phase::Down
          ? 1
          : shape::smaller(shape::smaller(shape::STEPS_AHEAD / STEPS, shape::ROUND_TILES), BLOCK_TILES);
  // Where blocks share an SM, and so its registers: one tile.
  static constexpr int TILES = shape::RESIDENTS > 1 ? 1 : TILES_AHEAD;
  // Chains of sums along K, of one order in every row: two where registers allow it, so that no MMA waits for
  // the one just before it.
  static constexpr int CHAINS = TILES_AHEAD <= 2 ? 2 : 1;

  // The pairs of columns that a warp gathers, and a lane.
  static constexpr int PAIRS = WARP_RUNS * RUN_PAIRS;
  static constexpr int LANE_PAIRS = ceiling(PAIRS, 32);

  // The pair of columns of a warp's `at`-th.
  __device__ static __forceinline__ int pair_of(int at, int warp) {
    return (at / RUN_PAIRS * shape::CONSUMER_WARPS + warp) * RUN_PAIRS + at % RUN_PAIRS;
  }

  // Whether a warp's `at`-th pair is one.
  __device__ static __forceinline__ bool has_pair(int at, int warp) {
    return (PAIRS % 32 == 0 || at < PAIRS) && (WHOLE || pair_of(at, warp) < COLUMNS / 2);
  }
};

// Work of the O projection: an item is ITEM_TILES tiles by the columns of one KV head's query heads. Warps
// share a tile: each multiplies a slice of its columns.
struct OutputWork {
  using Format = LayerFormat;
  static constexpr int SLICES = shape::CONSUMER_WARPS / shape::ITEM_TILES;
  static constexpr int SLICE_COLUMNS = shape::GROUP_DIM / SLICES;
  static constexpr int SLICE_FRAGMENTS = SLICE_COLUMNS / Format::COLS;
  static_assert(SLICES >= 1 && SLICE_FRAGMENTS * Format::COLS * SLICES == shape::GROUP_DIM, "whole slices");
  static constexpr int STEPS = SLICE_COLUMNS / abi::FRAGMENT_COLS;
  static constexpr int CHAINS = 2;
  static constexpr int LANE_PAIRS = ceiling(SLICE_COLUMNS / 2, 32);
  static_assert(SLICE_COLUMNS % 64 == 0 || SLICE_COLUMNS == 32, "whole lanes, of one head each");
  // Bytes of a tile's part, and the parts of a stage.
  static constexpr int PART_BYTES = shape::GROUP_DIM / Format::COLS * Format::BYTES;
  static constexpr int STAGE_PARTS = shape::smaller(shape::STAGE_BYTES / PART_BYTES, shape::ITEM_TILES);
  static_assert(STAGE_PARTS >= 1 && shape::ITEM_TILES % STAGE_PARTS == 0, "whole stages");
  static constexpr int PIECES = shape::ITEM_TILES / STAGE_PARTS;
};

// Where the sums of a phase lie in its slot: of a pair `pair`, its `sum`-th partial sum.
template <int SUMS_, int PER, int LINE>
struct Sums {
  static constexpr int SUMS = SUMS_;
  __device__ static __forceinline__ int place(int pair, int sum) {
    // Without the division the places of one lane are one address and constants.
    if constexpr (SUMS == 1 && PER == LINE) return pair;
    return shape::unit_of_pair(pair, sum, PER, LINE, SUMS);
  }
};
using QkvSums = Sums<1, shape::QKV_PER, shape::QKV_LINE>;
using OProjSums = Sums<shape::KV_HEADS, shape::O_PROJ_PER, shape::O_PROJ_LINE>;
using GateUpSums = Sums<1, shape::GATE_UP_PER, shape::GATE_UP_LINE>;
using DownSums = Sums<shape::DOWN_SPLITS, shape::DOWN_PER, shape::DOWN_LINE>;

constexpr int O_PROJ_ITEMS = shape::RANKS * shape::KV_HEADS;
constexpr int DOWN_ITEMS = shape::HIDDEN / shape::TILE_ROWS * shape::DOWN_SPLITS;

// The first and the end of this block's pieces of `pieces`, by the same rule as on the host. 32 bits
// suffice for a vocabulary's tiles times 256 blocks.
__device__ __forceinline__ int2 share_of(u32 pieces) {
  const u32 block = blockIdx.x, blocks = gridDim.x;
  return {int(shape::first_piece(block, blocks, pieces)), int(shape::first_piece(block + 1, blocks, pieces))};
}

// Called by one thread, so that no phase has to divide.
__device__ __forceinline__ void find_shares(Shared& shared) {
  shared.shares[QKV_SHARE] = share_of(shape::tiles(shape::QKV_DIM, shape::TILE_ROWS));
  shared.shares[O_PROJ_SHARE] = share_of(O_PROJ_ITEMS);
  shared.shares[GATE_UP_SHARE] = share_of(shape::tiles(shape::GATE_UP_DIM, shape::TILE_ROWS));
  shared.shares[DOWN_SHARE] = share_of(DOWN_ITEMS);
  shared.shares[HEAD_SHARE] = share_of(shape::tiles(shape::VOCAB, shape::TILE_ROWS));
}

// The same of one matvec of whole tiles.
template <class W>
__device__ __forceinline__ void find_share_of(Shared& shared) {
  shared.shares[W::SHARE_AT] = share_of(shape::tiles(W::ROW.rows, shape::TILE_ROWS));
}

// Rounds of this block's tiles, one at least.
template <class W>
__device__ __forceinline__ int rounds_of(const Shared& shared) {
  const int2 tiles = shared.shares[W::SHARE_AT];
  return max(1, (tiles.y - tiles.x + W::TILES - 1) / W::TILES);
}
