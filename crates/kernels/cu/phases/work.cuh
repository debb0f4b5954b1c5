// A matvec's work as compile-time numbers: which fragments a warp owns, how many it takes into registers
// ahead of the activation, and which columns it gathers.
#pragma once
#include "../formats/tiles.cuh"
#include "../handoff/handoff.cuh"
#include "table.cuh"

// The matvecs of a step.
struct Qkv {
  static constexpr PhaseRow ROW = QKV_ROW;
};
struct OProj {
  static constexpr PhaseRow ROW = O_PROJ_ROW;
};
struct GateUp {
  static constexpr PhaseRow ROW = GATE_UP_ROW;
};
struct Down {
  static constexpr PhaseRow ROW = DOWN_ROW;
};
struct Head {
  static constexpr PhaseRow ROW = HEAD_ROW;
};

// Where pair `pair` of a phase's output lies in its slot.
template <abi::Phase PHASE>
__device__ __forceinline__ int output_place(int pair) {
  switch (PHASE) {
    case abi::Phase::Qkv: return place_of<shape::QKV_PER, shape::QKV_LINE>(pair);
    case abi::Phase::Attention: return pair;
    case abi::Phase::OProj: return place_of<shape::O_PROJ_PER, shape::O_PROJ_LINE>(pair);
    case abi::Phase::GateUp: return place_of<shape::GATE_UP_PER, shape::GATE_UP_LINE>(pair);
    default: return place_of<shape::DOWN_PER, shape::DOWN_LINE>(pair);
  }
}

__device__ constexpr int ceiling(int a, int b) { return (a + b - 1) / b; }
__device__ constexpr int least(int a, int b) { return a < b ? a : b; }

template <class Matvec, class Format_>
struct Work {
  using Format = Format_;
  static constexpr PhaseRow ROW = Matvec::ROW;

  // Fragments of a tile, dealt to the warps by DEAL from every stage.
  static constexpr int FRAGMENTS = ROW.columns / Format::COLS;
  static constexpr int STAGE_FRAGMENTS = shape::STAGE_BYTES / Format::BYTES;
  static constexpr int DEAL = STAGE_FRAGMENTS / shape::CONSUMER_WARPS;
  static_assert(STAGE_FRAGMENTS % shape::CONSUMER_WARPS == 0, "a stage divides among the warps");
  // Pieces (stages) of a tile.
  static constexpr int PIECES = ceiling(FRAGMENTS, STAGE_FRAGMENTS);
  static constexpr bool WHOLE = FRAGMENTS % STAGE_FRAGMENTS == 0;

  // A warp's steps along K of one tile, 16 columns each; and tiles that its registers hold at a time.
  static constexpr int FRAGMENT_STEPS = Format::COLS / abi::FRAGMENT_COLS;
  static constexpr int STEPS = PIECES * DEAL * FRAGMENT_STEPS;
  static_assert(STEPS <= shape::STEPS_AHEAD, "a tile's part fits the registers");
  static constexpr int BLOCK_TILES = ceiling(ceiling(ROW.rows, shape::TILE_ROWS), shape::GRID);
  static constexpr int TILES = least(least(shape::STEPS_AHEAD / STEPS, shape::ROUND_TILES), BLOCK_TILES);

  // The pairs of columns that a warp gathers: runs of RUN, one of each piece.
  static constexpr int RUN = DEAL * Format::COLS / 2;
  static constexpr int PAIRS = PIECES * RUN;
  static constexpr int LANE_PAIRS = ceiling(PAIRS, 32);

  // The pair of columns of a warp's `at`-th.
  __device__ static __forceinline__ int pair_of(int at, int warp) {
    return at / RUN * (shape::CONSUMER_WARPS * RUN) + warp * RUN + at % RUN;
  }

  // Whether a warp's `at`-th pair is one.
  __device__ static __forceinline__ bool has_pair(int at, int warp) {
    return (PAIRS % 32 == 0 || at < PAIRS) && (WHOLE || pair_of(at, warp) < ROW.columns / 2);
  }
};
