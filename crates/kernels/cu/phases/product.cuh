// A matvec of a consumer warp: take weights, gather the warp's own columns, multiply, hand the sums to
// the epilogue warp. No barrier of the block lies between the gather and the product.
#pragma once
#include "../mma/activation.cuh"
#include "../roles/consumer.cuh"
#include "work.cuh"

// Waits for the next `stages` stages: a lane looks at one of them each. Returns where the lane's barrier lies.
__device__ __forceinline__ u32 wait_for_stages(Consumer& my, int stages, u32 layer, abi::Phase phase) {
  const RingCursor mine = my.cursor.ahead(my.lane());
  const bool looks = my.lane() < stages;
  const u32 full = my.base + __builtin_offsetof(Shared, full) + mine.stage() * sizeof(u64);
  if (__all_sync(~0u, is_full_if(looks, full, mine.parity())) || has_failed(my.shared)) return full;
  xray::note(my.log, abi::Moment::Starved);
  RingCursor cursor = my.cursor;
#pragma unroll 1
  for (int stage = 0; stage < stages; stage++, cursor.advance()) {
    if (is_full(my.shared, cursor) || has_failed(my.shared)) continue;
    if (!wait_full(my.args, my.shared, cursor, layer, phase)) my.fail();
  }
  xray::note(my.log, abi::Moment::Fed);
  return full;
}

// Where the `ahead`-th of the next stages lies in shared memory.
__device__ __forceinline__ u32 stage_at(const Consumer& my, u32 ahead) {
  return my.base + __builtin_offsetof(Shared, ring) + my.cursor.ahead(ahead).stage() * shape::STAGE_BYTES;
}

// Releases them, a lane one of them each, once the warp's lanes have what they need of them.
__device__ __forceinline__ void release_stages(Consumer& my, int stages, u32 full) {
  __syncwarp();
  if (my.lane() < stages && my.releases) ptx::mbarrier_arrive_at(full + EMPTY_BEHIND_FULL);
  my.cursor.advance(stages);
}

// A run's A operands.
template <class W>
__device__ __forceinline__ void widen_run(u32 run, uint4* a) {
#pragma unroll
  for (int at = 0; at < W::RUN_FRAGMENTS; at++) {
    W::Format::widen(run + at * W::Format::BYTES, a + at * (RUN_STEPS / W::RUN_FRAGMENTS));
  }
}

// A warp's part of W::SHARE stages of a tile, from the `ahead`-th of the next on. Runs behind a narrow matrix'
// last are zeros.
template <class W>
__device__ __forceinline__ void take_pieces(const Consumer& my, int ahead, int piece, uint4* a) {
  const u32 lane = my.lane() * 16;
  const u32 stage = stage_at(my, ahead + (W::SHARE == 1 ? 0 : my.warp() / W::STAGE_RUNS)) + lane;
#pragma unroll
  for (int own = 0; own < W::PIECE_RUNS; own++) {
    const int mine = piece / W::SHARE * W::PIECE_RUNS + own;
    if (mine >= W::WARP_RUNS) break;
    const bool exists = W::WHOLE || mine * shape::CONSUMER_WARPS + my.warp() < W::RUNS;
    const int within = W::SHARE == 1 ? own * shape::CONSUMER_WARPS + my.warp() : my.warp() % W::STAGE_RUNS;
    const u32 zeros = my.base + __builtin_offsetof(Shared, zeros) + lane;
    widen_run<W>(exists ? stage + within * W::RUN_BYTES : zeros, a + mine * RUN_STEPS);
  }
}

// Takes this warp's fragments of W::TILES tiles into registers, as the A operands of the steps along K,
// and releases the stages. A round always has W::TILES tiles: behind the block's last, the loader hands
// over stages that it has not filled, whose rows the epilogue leaves out. `ask` is called before the last
// tile, when the registers of a tile are still free.
template <class W, class Ask>
__device__ __forceinline__ void take_weights(Consumer& my, u32 layer, uint4 (&a)[W::TILES * W::STEPS], Ask ask) {
  // All stages in one go, if the ring has as many besides; else, and in the head, which waits for memory
  // alone, a tile's.
  constexpr int STEP = shape::smaller(W::SHARE, W::PIECES);
  constexpr bool AT_ONCE = W::TILES * W::PIECES <= 6 * shape::STAGES / 10 && W::ROW.phase != abi::Phase::LmHead;
  constexpr int STAGES = AT_ONCE ? W::TILES * W::PIECES : STEP;
  u32 full = 0;
#pragma unroll
  for (int tile = 0; tile < W::TILES; tile++) {
    if (tile == W::TILES - 1) ask();
#pragma unroll
    for (int piece = 0; piece < W::PIECES; piece += W::SHARE) {
      const int at = AT_ONCE ? tile * W::PIECES + piece : 0;
      if (at == 0) full = wait_for_stages(my, STAGES, layer, W::ROW.phase);
      take_pieces<W>(my, at, piece, a + tile * W::STEPS);
      if (!AT_ONCE) release_stages(my, STAGES, full);
    }
    // Here, and not behind the gather, where the compiler would put what depends on nothing.
#pragma unroll
    for (int step = 0; step < W::STEPS; step++) ptx::pin(a[tile * W::STEPS + step]);
  }
  if (AT_ONCE) release_stages(my, STAGES, full);
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

// This lane's pairs of it, loaded with the partial sums: one trip to L2 for both. Empty where the stream stays
// in the block.
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
    for (int at = 0; at < W::LANE_PAIRS; at++) residual(my, at) = pair_of_word(pairs[at]);
  }
};

// Leaves it for the next kernels: every block has all of it, so one block does.
template <class W>
__device__ __forceinline__ void carry(Consumer& my) {
  if (blockIdx.x != 0 || W::ROW.phase == abi::Phase::LmHead) return;
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    ptx::store_relaxed(carried<W>(my, true) + at * 32, word_of_pair(residual(my, at)));
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
  Handoff::look(my.args, from, used, place, units);
  if (!Handoff::poll(my.args, my.shared, my.log, from, used, place, units)) my.fail();
}

// A phase's partial sums `From` of this lane's pairs of the residual stream.
template <class W, class From>
struct PartialSums {
  static constexpr int N = W::LANE_PAIRS * From::SUMS;
  u64 units[N];
  Carried<W, BY_PHASE> before;

  // Which of a lane's pairs a unit is of.
  __device__ static __forceinline__ int pair(const Consumer& my, int at) {
    return at / From::SUMS * 32 + my.lane();
  }

  __device__ static __forceinline__ auto place(const Consumer& my) {
    return [&my](int at) { return From::place(W::pair_of(pair(my, at), my.warp()), at % From::SUMS); };
  }

  __device__ static __forceinline__ auto used(const Consumer& my) {
    return [&my](int at) { return W::has_pair(pair(my, at), my.warp()); };
  }

  __device__ __forceinline__ void look(const Consumer& my, const Slot& from) {
    inject_delay(my.args, from.layer, from.phase);
    before.load(my);
    Handoff::look(my.args, from, used(my), place(my), units);
  }

  // Adds them to the residual stream.
  __device__ __forceinline__ void add(Consumer& my, const Slot& from) {
    if (!Handoff::poll(my.args, my.shared, my.log, from, used(my), place(my), units)) my.fail();
    before.keep(my);
#pragma unroll
    for (int at = 0; at < W::LANE_PAIRS; at++) {
      if (!W::has_pair(at * 32 + my.lane(), my.warp())) continue;
      const float2 sum = sum_of<From::SUMS>(units + at * From::SUMS), before = residual(my, at);
      residual(my, at) = {before.x + sum.x, before.y + sum.y};
    }
  }
};

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

// Multiplies the fragments in registers by the activation at `x`, and puts the rows' sums where the
// epilogue finds them.
template <int TILES, int STEPS, int CHAINS, bool SQUARES>
__device__ __forceinline__ void multiply(Consumer& my, u32 x, const uint4 (&a)[TILES * STEPS], int buffer,
                                         float& squares) {
  float2 rows[TILES];
  products<TILES, STEPS, CHAINS, SQUARES>(x, a, rows, squares);
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
__device__ __forceinline__ void multiply(Consumer& my, u32 x, const uint4 (&a)[TILES * STEPS], int buffer) {
  float none = 0.f;
  multiply<TILES, STEPS, CHAINS, false>(my, x, a, buffer, none);
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

// The norm's weights of this lane's pairs.
template <class W>
__device__ __forceinline__ void load_norm(const Consumer& my, u32 (&weights)[W::LANE_PAIRS]) {
  const u32* norm = norm_of<W>(my);
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    const int mine = at * 32 + my.lane();
    weights[at] = W::has_pair(mine, my.warp()) ? norm[W::pair_of(mine, my.warp())] : 0;
  }
}

// Keeps the residual stream as the activation, times the norm's weights. Returns the lane's sum of squares.
template <class W>
__device__ __forceinline__ float keep_normed(Consumer& my, const u32 (&weights)[W::LANE_PAIRS]) {
  float squares = 0.f;
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    const float2 value = residual(my, at);
    squares += sum_of_products(value.x, value.x, value.y, value.y);
    keep<W>(my, at * 32 + my.lane(), {value.x * bf16_low(weights[at]), value.y * bf16_high(weights[at])});
  }
  __syncwarp();
  return squares;
}

// Multiplies by it, and hands the round's sums over.
template <class W>
__device__ __forceinline__ void multiply_normed(Consumer& my, const uint4 (&a)[W::TILES * W::STEPS], int buffer,
                                                float squares) {
  multiply<W::TILES, W::STEPS, W::CHAINS, true>(my, my.x_operand, a, buffer, squares);
  if (my.lane() == 0) my.shared.squares[buffer][my.warp()] = squares;
  end_round(my, buffer);
}

// The first round of a matvec of the normed residual stream: gathers the partial sums that are added to that
// first, unless it is the step's first, and norms it.
template <class W, class From>
__device__ __forceinline__ void first_round(Consumer& my, bool is_first) {
  my.begin_phase(W::ROW.phase);
  xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, W::ROW));
  uint4 a[W::TILES * W::STEPS];
  u32 weights[W::LANE_PAIRS];
  load_norm<W>(my, weights);
  PartialSums<W, From> sums;
  take_weights<W>(my, layer_of<W>(my), a, [&] {
    if (is_first) sums = {};
    if (!is_first) sums.look(my, input_of<W>(my));
  });
  const int buffer = my.round % 2;
  wait_for_buffer(my, buffer);
  xray::note(my.log, abi::Moment::Asked, xray::matvec(my.layer, W::ROW));
  if (!is_first) sums.add(my, input_of<W>(my));
  xray::note(my.log, abi::Moment::Gathered);
  const float squares = keep_normed<W>(my, weights);
  multiply_normed<W>(my, a, buffer, squares);
}

// The rounds that follow, of the same activation.
template <class W>
__device__ __forceinline__ void next_rounds(Consumer& my) {
#pragma unroll 1
  for (int left = rounds_of<W>(my.shared) - 1; left > 0; left--) {
    my.begin_phase(W::ROW.phase);
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, W::ROW));
    uint4 a[W::TILES * W::STEPS];
    take_weights<W>(my, layer_of<W>(my), a, [] {});
    const int buffer = my.round % 2;
    wait_for_buffer(my, buffer);
    multiply<W::TILES, W::STEPS, W::CHAINS>(my, my.x_operand, a, buffer);
    end_round(my, buffer);
  }
}

// A matvec of the normed residual stream. One round at least: a block without tiles of its own keeps the
// residual stream, too.
template <class W, class From>
__device__ __forceinline__ void normed_product(Consumer& my, bool is_first) {
  first_round<W, From>(my, is_first);
  next_rounds<W>(my);
}

// What one split of the down projection's columns multiplies.
template <class W>
struct SplitInputs {
  u64 units[W::LANE_PAIRS];

  __device__ static __forceinline__ bool is_used(const Consumer& my, int at) {
    return W::has_pair(at * 32 + my.lane(), my.warp());
  }

  __device__ __forceinline__ void load(Consumer& my, const Slot& from, int begin) {
    const auto used = [&](int at) { return is_used(my, at); };
    const auto place = [&](int at) {
      return GateUpSums::place(begin + W::pair_of(at * 32 + my.lane(), my.warp()), 0);
    };
    inject_delay(my.args, from.layer, from.phase);
    gather(my, from, used, place, units);
  }

  // Keeps it as the activation.
  __device__ __forceinline__ void keep_all(Consumer& my) const {
#pragma unroll
    for (int at = 0; at < W::LANE_PAIRS; at++) {
      keep<W>(my, at * 32 + my.lane(), is_used(my, at) ? values_of(units[at]) : float2{0.f, 0.f});
    }
    __syncwarp();
  }
};

// The slot of SwiGLU's values for a split.
__device__ __forceinline__ Slot input_of_split(const Consumer& my, int split) {
  return slot_of(my.args, my.layer, abi::Phase::GateUp, shape::GATE_UP_SLOT).of(split);
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
    take_weights<W>(my, my.layer, a, [] {});
    const int split = item % shape::DOWN_SPLITS;
    const Slot from = input_of_split(my, split);
    const int buffer = my.round % 2, begin = split * (W::COLUMNS / 2);
    wait_for_buffer(my, buffer);
    xray::note(my.log, abi::Moment::Asked, xray::matvec(my.layer, W::ROW));
    SplitInputs<W> inputs;
    inputs.load(my, from, begin);
    xray::note(my.log, abi::Moment::Gathered);
    inputs.keep_all(my);
    multiply<W::TILES, W::STEPS, W::CHAINS>(my, my.x_operand, a, buffer);
    end_round(my, buffer);
  }
}
