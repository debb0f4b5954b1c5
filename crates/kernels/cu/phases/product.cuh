// A matvec of a consumer warp: take weights, gather the warp's own columns, multiply, hand the sums to
// the epilogue warp. No barrier of the block lies between the gather and the product.
#pragma once
#include "../mma/activation.cuh"
#include "../roles/consumer.cuh"
#include "work.cuh"

// Waits for the next `STAGES` stages' weights.
template <int STAGES>
__device__ __forceinline__ void wait_for_stages(Consumer& my, u32 layer, abi::Phase phase) {
  RingCursor cursor = my.cursor;
#pragma unroll
  for (int stage = 0; stage < STAGES; stage++, cursor.advance()) {
    if (is_full(my.shared, cursor) || has_failed(my.shared)) continue;
    xray::note(my.log, abi::Moment::Starved);
    if (!wait_full(my.args, my.shared, cursor, layer, phase)) my.fail();
    xray::note(my.log, abi::Moment::Fed);
  }
}

// The `ahead`-th of the next stages.
__device__ __forceinline__ const u8* stage_at(const Consumer& my, int ahead) {
  const u32 stage = my.cursor.stage() + ahead;
  return my.shared.ring[stage < shape::STAGES ? stage : stage - shape::STAGES];
}

// Releases them, once the warp's lanes have what they need of them.
template <int STAGES>
__device__ __forceinline__ void release_stages(Consumer& my) {
  __syncwarp();
#pragma unroll
  for (int stage = 0; stage < STAGES; stage++, my.cursor.advance()) {
    if (my.releases) ptx::mbarrier_arrive(&my.shared.empty[my.cursor.stage()]);
  }
}

// A run's A operands.
template <class W>
__device__ __forceinline__ void widen_run(const u8* run, uint4* a) {
#pragma unroll
  for (int at = 0; at < W::RUN_FRAGMENTS; at++) {
    W::Format::widen(run + at * W::Format::BYTES, a + at * (RUN_STEPS / W::RUN_FRAGMENTS));
  }
}

// A warp's part of the next W::SHARE stages of a tile. Runs behind a narrow matrix' last are zeros.
template <class W>
__device__ __forceinline__ void take_pieces(const Consumer& my, int piece, uint4* a) {
  const u8* stage = stage_at(my, W::SHARE == 1 ? 0 : my.warp() / W::STAGE_RUNS);
#pragma unroll
  for (int own = 0; own < W::PIECE_RUNS; own++) {
    const int mine = piece / W::SHARE * W::PIECE_RUNS + own;
    if (mine >= W::WARP_RUNS) break;
    const bool exists = W::WHOLE || mine * shape::CONSUMER_WARPS + my.warp() < W::RUNS;
    const int within = W::SHARE == 1 ? own * shape::CONSUMER_WARPS + my.warp() : my.warp() % W::STAGE_RUNS;
    widen_run<W>(exists ? stage + within * W::RUN_BYTES : my.shared.zeros, a + mine * RUN_STEPS);
  }
}

// Takes this warp's fragments of W::TILES tiles into registers, as the A operands of the steps along K,
// and releases the stages. A round always has W::TILES tiles: behind the block's last, the loader hands
// over stages that it has not filled, whose rows the epilogue leaves out.
template <class W>
__device__ __forceinline__ void take_weights(Consumer& my, u32 layer, uint4 (&a)[W::TILES * W::STEPS]) {
#pragma unroll
  for (int tile = 0; tile < W::TILES; tile++) {
#pragma unroll
    for (int piece = 0; piece < W::PIECES; piece += W::SHARE) {
      constexpr int STAGES = shape::smaller(W::SHARE, W::PIECES);
      wait_for_stages<STAGES>(my, layer, W::ROW.phase);
      take_pieces<W>(my, piece, a + tile * W::STEPS);
      release_stages<STAGES>(my);
    }
  }
  // Here, and not behind the gather, where the compiler would put what depends on nothing.
#pragma unroll
  for (int at = 0; at < W::TILES * W::STEPS; at++) ptx::pin(a[at]);
}

// A lane's pair of the residual stream, in shared memory: nobody else reads it.
__device__ __forceinline__ float2& residual(Consumer& my, int at) {
  return reinterpret_cast<float2*>(my.shared.residual[my.warp()])[at * 32 + my.lane()];
}

// This lane's pairs of the token's embedding: the residual stream at the step's begin.
__device__ __forceinline__ void begin_residual(Consumer& my, u32 token) {
  using W = Work<Qkv, LayerFormat>;
  const u8* embedding = my.args.weights + my.args.embedding;
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    const int mine = at * 32 + my.lane();
    residual(my, at) = {0.f, 0.f};
    if (!W::has_pair(mine, my.warp())) continue;
    residual(my, at) = Tiles<HeadFormat>::element_pair(embedding, shape::HIDDEN, int(token),
                                                       2 * W::pair_of(mine, my.warp()));
  }
}

// The residual stream between kernels of a phase each, a unit a pair: qkv leaves one of the two for gate and up,
// which leaves the other one for the next layer's qkv, or for the head. So no kernel writes what others of its
// blocks read.
template <class W>
__device__ __forceinline__ u64* carried(const Consumer& my, bool out) {
  const int which = (W::ROW.phase == abi::Phase::GateUp) == out;
  return my.args.slots + shape::RESIDUAL_BASE + which * shape::RESIDUAL_UNITS +
         my.warp() * (shape::RESIDUAL_FLOATS / 2) + my.lane();
}

// This lane's pairs of it, loaded before a gather and kept behind it: one trip to L2 for both. Empty where the
// stream stays in the block.
template <class W, bool LOADS>
struct Carried {
  __device__ __forceinline__ void load(const Consumer&) {}
  __device__ __forceinline__ void keep(Consumer&) {}
};
template <class W>
struct Carried<W, true> {
  u64 pairs[W::LANE_PAIRS];

  __device__ __forceinline__ void load(const Consumer& my) {
#pragma unroll
    for (int at = 0; at < W::LANE_PAIRS; at++) pairs[at] = ptx::load_relaxed(carried<W>(my, false) + at * 32);
  }

  __device__ __forceinline__ void keep(Consumer& my) {
#pragma unroll
    for (int at = 0; at < W::LANE_PAIRS; at++) {
      residual(my, at) = {__uint_as_float(u32(pairs[at])), __uint_as_float(u32(pairs[at] >> 32))};
    }
  }
};

// Leaves it for the next kernels: every block has all of it, so one block does.
template <class W>
__device__ __forceinline__ void carry(Consumer& my) {
  if (blockIdx.x != 0 || W::ROW.phase == abi::Phase::LmHead) return;
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    const float2 pair = residual(my, at);
    ptx::store_relaxed(carried<W>(my, true) + at * 32,
                       u64(__float_as_uint(pair.y)) << 32 | __float_as_uint(pair.x));
  }
}

// The sum of `COUNT` values, as a tree.
template <int COUNT>
__device__ __forceinline__ float2 sum_of(const u64* units) {
  if constexpr (COUNT == 1) {
    return values_of(units[0]);
  } else {
    const float2 a = sum_of<COUNT / 2>(units), b = sum_of<COUNT - COUNT / 2>(units + COUNT / 2);
    return {a.x + b.x, a.y + b.y};
  }
}

// Gathers up to `N` units of a slot: those for which `used(at)` holds, at `place(at)`.
template <int N, class Used, class Place>
__device__ __forceinline__ void gather(Consumer& my, const Slot& from, Used used, Place place, u64 (&units)[N]) {
  if (!Handoff::poll(my.args, my.shared, my.log, from, used, place, units)) my.fail();
}

// Adds a phase's partial sums to this lane's pairs of the residual stream.
template <class W, class From>
__device__ __forceinline__ void add_to_residual(Consumer& my, const Slot& from) {
  constexpr int N = W::LANE_PAIRS * From::SUMS;
  const auto mine = [&](int at) { return at / From::SUMS * 32 + my.lane(); };
  const auto used = [&](int at) { return W::has_pair(mine(at), my.warp()); };
  const auto place = [&](int at) { return From::place(W::pair_of(mine(at), my.warp()), at % From::SUMS); };
  inject_delay(my.args, from.layer, from.phase);
  u64 units[N];
  Carried<W, BY_PHASE> before;
  before.load(my);
  gather(my, from, used, place, units);
  before.keep(my);
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    if (!used(at * From::SUMS)) continue;
    const float2 sum = sum_of<From::SUMS>(units + at * From::SUMS), before = residual(my, at);
    residual(my, at) = {before.x + sum.x, before.y + sum.y};
  }
}

// Puts a pair into the warp's own activation.
template <class W>
__device__ __forceinline__ void keep(Consumer& my, int mine, float2 value) {
  if (W::PAIRS % 32 != 0 && mine >= W::PAIRS) return;
  activation::set(my.x_pair() + (mine - my.lane()) * 4,
                  {value.x * W::Format::X_SCALE, value.y * W::Format::X_SCALE});
}

// The sums of a tile's rows 8 i + lane / 4, i of 0 and 1, over the columns of `STEPS` steps: of both parts
// of the activation, in lanes that are multiples of four.
// `squares`, a lane's part of another sum, is added up over the warp meanwhile: shuffles and MMAs take turns.
template <int TILES, int STEPS, int CHAINS, bool SQUARES>
__device__ __forceinline__ void products(u32 x, const uint4 (&a)[TILES * STEPS], float2 (&rows)[TILES],
                                         float& squares) {
  int distance = SQUARES ? 16 : 0;
  float sums[TILES][CHAINS][4];
#pragma unroll
  for (int at = 0; at < TILES * CHAINS * 4; at++) sums[at / (CHAINS * 4)][at / 4 % CHAINS][at % 4] = 0.f;
  uint2 b[STEPS];
#pragma unroll
  for (int step = 0; step < STEPS; step++) b[step] = activation::operand(x, step);
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      ptx::mma_bf16(sums[tile][step % CHAINS], a[tile * STEPS + step], b[step].x, b[step].y);
    }
    if (distance > 0) squares += __shfl_xor_sync(~0u, squares, distance);
    distance /= 2;
  }
#pragma unroll
  for (; distance > 0; distance /= 2) squares += __shfl_xor_sync(~0u, squares, distance);
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    rows[tile] = {sums[tile][0][0] + sums[tile][0][1], sums[tile][0][2] + sums[tile][0][3]};
    if (CHAINS == 2) {
      rows[tile].x += sums[tile][CHAINS - 1][0] + sums[tile][CHAINS - 1][1];
      rows[tile].y += sums[tile][CHAINS - 1][2] + sums[tile][CHAINS - 1][3];
    }
  }
}

// Multiplies the fragments in registers by the warp's activation, and puts the rows' sums where the
// epilogue finds them.
template <int TILES, int STEPS, int CHAINS, bool SQUARES>
__device__ __forceinline__ void multiply(Consumer& my, const uint4 (&a)[TILES * STEPS], int buffer,
                                         float& squares) {
  float2 rows[TILES];
  products<TILES, STEPS, CHAINS, SQUARES>(my.x_operand, a, rows, squares);
  if (my.lane() % 4 != 0) return;
  constexpr u32 ROW = sizeof(my.shared.partial[0][0]);
  const u32 to = ptx::shared_address(&my.shared.partial[buffer][my.lane() / 4][my.warp()]);
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    ptx::store_shared_at(to + tile * shape::TILE_ROWS * ROW, rows[tile].x);
    ptx::store_shared_at(to + (tile * shape::TILE_ROWS + 8) * ROW, rows[tile].y);
  }
}

// The same where nothing else is added up.
template <int TILES, int STEPS, int CHAINS>
__device__ __forceinline__ void multiply(Consumer& my, const uint4 (&a)[TILES * STEPS], int buffer) {
  float none = 0.f;
  multiply<TILES, STEPS, CHAINS, false>(my, a, buffer, none);
}

// Ends a round: the partial sums are the epilogue's.
__device__ __forceinline__ void end_round(Consumer& my, int buffer) {
  ptx::partials_arrive<shape::EPILOGUE_THREADS>(buffer);
  my.round++;
}

// The layer that waits and fault records name.
template <class W>
__device__ __forceinline__ u32 layer_of(const Consumer& my) {
  return W::ROW.phase == abi::Phase::LmHead ? u32(abi::NO_LAYER) : u32(my.layer);
}

// The norm's weights.
template <class W>
__device__ __forceinline__ const u32* norm_of(const Consumer& my) {
  const bool is_head = W::ROW.phase == abi::Phase::LmHead;
  if (is_head) return reinterpret_cast<const u32*>(my.args.weights + my.args.final_norm);
  const u32* norms = reinterpret_cast<const u32*>(my.layer_base() + my.args.norms);
  return W::ROW.phase == abi::Phase::Qkv ? norms : norms + shape::HIDDEN / 2;
}

// The slot of the partial sums that come first.
template <class W>
__device__ __forceinline__ Slot input_of(const Consumer& my) {
  const bool follows_output = W::ROW.phase == abi::Phase::GateUp;
  if (follows_output) return slot_of(my.args, my.layer, abi::Phase::OProj, shape::O_PROJ_SLOT);
  return slot_of(my.args, my.layer - 1, abi::Phase::Down, shape::DOWN_SLOT);
}

// A matvec of the normed residual stream, to which the partial sums `from` are added first, unless it is
// the step's first.
template <class W, class From>
__device__ __forceinline__ void normed_product(Consumer& my, bool is_first) {
  // One at least: a block without tiles of its own keeps the residual stream, too.
  int rounds = rounds_of<W>(my.shared);
  bool gathers = true;
#pragma unroll 1
  do {
    my.begin_phase(W::ROW.phase);
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, W::ROW));
    uint4 a[W::TILES * W::STEPS];
    u32 weights[W::LANE_PAIRS] = {};
    const u32* norm = norm_of<W>(my);
#pragma unroll
    for (int at = 0; gathers && at < W::LANE_PAIRS; at++) {
      const int mine = at * 32 + my.lane();
      weights[at] = W::has_pair(mine, my.warp()) ? norm[W::pair_of(mine, my.warp())] : 0;
    }
    take_weights<W>(my, layer_of<W>(my), a);
    const int buffer = my.round % 2;
    wait_for_buffer(my, buffer);
    float squares = 0.f;
    if (gathers) {
      xray::note(my.log, abi::Moment::Asked, xray::matvec(my.layer, W::ROW));
      if (!is_first) add_to_residual<W, From>(my, input_of<W>(my));
      xray::note(my.log, abi::Moment::Gathered);
      if (BY_PHASE) carry<W>(my);
#pragma unroll
      for (int at = 0; at < W::LANE_PAIRS; at++) {
        const float2 value = residual(my, at);
        squares += value.x * value.x + value.y * value.y;
        keep<W>(my, at * 32 + my.lane(), {value.x * bf16_low(weights[at]), value.y * bf16_high(weights[at])});
      }
      __syncwarp();
    }
    multiply<W::TILES, W::STEPS, W::CHAINS, true>(my, a, buffer, squares);
    if (gathers && my.lane() == 0) my.shared.squares[buffer][my.warp()] = squares;
    end_round(my, buffer);
    gathers = false;
  } while (--rounds > 0);
}

// The down projection: an item is one tile by one split of its columns.
template <class W>
__device__ __forceinline__ void down_product(Consumer& my) {
  const int2 items = my.shared.shares[DOWN_SHARE];
#pragma unroll 1
  for (int item = items.x; item < items.y; item++) {
    my.begin_phase(W::ROW.phase);
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, W::ROW));
    uint4 a[W::STEPS];
    take_weights<W>(my, my.layer, a);
    const int split = item % shape::DOWN_SPLITS;
    const Slot from = slot_of(my.args, my.layer, abi::Phase::GateUp, shape::GATE_UP_SLOT).of(split);
    const int buffer = my.round % 2, begin = split * (W::COLUMNS / 2);
    wait_for_buffer(my, buffer);
    xray::note(my.log, abi::Moment::Asked, xray::matvec(my.layer, W::ROW));
    const auto used = [&](int at) { return W::has_pair(at * 32 + my.lane(), my.warp()); };
    const auto place = [&](int at) {
      return GateUpSums::place(begin + W::pair_of(at * 32 + my.lane(), my.warp()), 0);
    };
    inject_delay(my.args, from.layer, from.phase);
    u64 units[W::LANE_PAIRS];
    gather(my, from, used, place, units);
    xray::note(my.log, abi::Moment::Gathered);
#pragma unroll
    for (int at = 0; at < W::LANE_PAIRS; at++) {
      keep<W>(my, at * 32 + my.lane(), used(at) ? values_of(units[at]) : float2{0.f, 0.f});
    }
    __syncwarp();
    multiply<W::TILES, W::STEPS, W::CHAINS>(my, a, buffer);
    end_round(my, buffer);
  }
}
