// A matvec of a consumer warp: take weights, gather the warp's own columns, multiply, hand the sums to
// the epilogue warp. No barrier of the block lies between the gather and the product.
#pragma once
#include "../handoff/handoff.cuh"
#include "../mma/activation.cuh"
#include "../roles/consumer.cuh"
#include "work.cuh"

// Waits for a stage's weights.
__device__ __forceinline__ void wait_for_stage(Consumer& my, u32 layer, abi::Phase phase) {
  if (!my.ok || is_full(my.shared, my.cursor)) return;
  xray::note(my.log, abi::Moment::Starved);
  if (!wait_full(my.args, my.shared, my.cursor, layer, phase)) my.fail();
  xray::note(my.log, abi::Moment::Fed);
}

// Takes this warp's fragments of up to W::TILES tiles into registers, as the A operands of the steps
// along K, and releases the stages.
template <class W>
__device__ __forceinline__ void take_weights(Consumer& my, int count, u32 layer,
                                             uint4 (&a)[W::TILES * W::STEPS]) {
  using Format = typename W::Format;
  const bool injected = my.args.injected_kind == abi::INJECTED_NO_RELEASE &&
                        my.args.injected_block == blockIdx.x && my.args.injected_layer == layer &&
                        my.args.injected_phase == static_cast<u32>(W::ROW.phase);
#pragma unroll
  for (int tile = 0; tile < W::TILES; tile++) {
    if (tile > 0 && tile >= count) break;
#pragma unroll
    for (int piece = 0; piece < W::PIECES; piece++) {
      wait_for_stage(my, layer, W::ROW.phase);
      const u8* stage = my.shared.ring[my.cursor.stage];
#pragma unroll
      for (int own = 0; own < W::DEAL; own++) {
        const int fragment = my.warp() * W::DEAL + own;
        const int step = (piece * W::DEAL + own) * W::FRAGMENT_STEPS;
        Format::widen(stage + fragment * Format::BYTES, &a[tile * W::STEPS + step]);
      }
      __syncwarp();
      if (my.lane() == 0 && !injected) ptx::mbarrier_arrive(&my.shared.empty[my.cursor.stage]);
      my.cursor.advance();
    }
  }
  // Here, and not behind the gather, where the compiler would put what depends on nothing (32 us).
#pragma unroll
  for (int at = 0; at < W::TILES * W::STEPS; at++) ptx::pin(a[at]);
}

// Where a matvec's activation comes from.
struct Source {
  Slot slot;
  // The norm's weight, bf16; null if the activation is not normed.
  const u32* norm;
  // Whether it is the token's embedding, which lies in shared memory (begin_embedding).
  bool is_embedding;
};

// The token's row of the embedding, into shared memory.
__device__ __forceinline__ void begin_embedding(Consumer& my, u32 token) {
  const u8* embedding = my.args.weights + my.args.embedding;
#pragma unroll 1
  for (int pair = my.thread(); pair < shape::HIDDEN / 2; pair += shape::CONSUMERS) {
    const float2 values = Tiles<HeadFormat>::element_pair(embedding, shape::HIDDEN, int(token), 2 * pair);
    reinterpret_cast<float2*>(my.shared.embedding)[pair] = values;
  }
  my.sync();
}

template <class W>
__device__ __forceinline__ void load_norm(const Consumer& my, const Source& from, u32 (&weights)[W::LANE_PAIRS]) {
#pragma unroll
  for (int at = 0; W::ROW.normed && at < W::LANE_PAIRS; at++) {
    const int mine = at * 32 + my.lane();
    weights[at] = W::has_pair(mine, my.warp()) ? from.norm[W::pair_of(mine, my.warp())] : 0;
  }
}

// This lane's pairs of the activation.
template <class W>
__device__ __forceinline__ void gather(Consumer& my, const Source& from, float2 (&values)[W::LANE_PAIRS]) {
  const auto pair = [&](int at) { return W::pair_of(at * 32 + my.lane(), my.warp()); };
  const auto used = [&](int at) { return W::has_pair(at * 32 + my.lane(), my.warp()); };
  if (from.is_embedding) {
    const float2* embedding = reinterpret_cast<const float2*>(my.shared.embedding);
#pragma unroll
    for (int at = 0; at < W::LANE_PAIRS; at++) values[at] = used(at) ? embedding[pair(at)] : float2{0.f, 0.f};
    return;
  }
  inject_delay(my.args, from.slot.layer, from.slot.phase);
  u64 units[W::LANE_PAIRS];
  const auto place = [&](int at) { return output_place<W::ROW.from>(pair(at)); };
  if (my.ok && !Handoff::poll(my.args, my.log, from.slot, used, place, units)) my.fail();
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) values[at] = used(at) ? values_of(units[at]) : float2{0.f, 0.f};
}

// Puts this lane's pairs into the warp's own activation, in parts, times the norm's weight. Returns the
// lane's sum of squares.
template <class W>
__device__ __forceinline__ float keep(Consumer& my, const float2 (&values)[W::LANE_PAIRS],
                                      const u32 (&weights)[W::LANE_PAIRS]) {
  float squares = 0.f;
#pragma unroll
  for (int at = 0; at < W::LANE_PAIRS; at++) {
    float2 value = values[at];
    if (W::ROW.normed) {
      squares += value.x * value.x + value.y * value.y;
      value.x *= bf16_low(weights[at]);
      value.y *= bf16_high(weights[at]);
    }
    const int mine = at * 32 + my.lane();
    if (W::PAIRS % 32 != 0 && mine >= W::PAIRS) continue;
    activation::set<W::STEPS>(my.shared.x[my.warp()], mine,
                              {value.x * W::Format::X_SCALE, value.y * W::Format::X_SCALE});
  }
  __syncwarp();
  return squares;
}

// Multiplies the fragments in registers by the warp's activation, and puts the rows' sums where the
// epilogue finds them.
template <class W>
__device__ __forceinline__ void multiply(Consumer& my, const uint4 (&a)[W::TILES * W::STEPS], int buffer) {
  // Two chains of sums where there is one tile, so that no MMA waits for the one just before it.
  constexpr int CHAINS = W::TILES == 1 ? 2 : 1;
  float sums[W::TILES][CHAINS][4];
#pragma unroll
  for (int at = 0; at < W::TILES * CHAINS * 4; at++) sums[at / (CHAINS * 4)][at / 4 % CHAINS][at % 4] = 0.f;
#pragma unroll
  for (int step = 0; step < W::STEPS; step++) {
    const uint2 b = activation::operand<W::STEPS>(my.shared.x[my.warp()], step);
#pragma unroll
    for (int tile = 0; tile < W::TILES; tile++) {
      ptx::mma_bf16(sums[tile][step % CHAINS], a[tile * W::STEPS + step], b.x, b.y);
    }
  }
  const int group = my.lane() / 4;
#pragma unroll
  for (int tile = 0; tile < W::TILES; tile++) {
    float top = sums[tile][0][0] + sums[tile][0][1], bottom = sums[tile][0][2] + sums[tile][0][3];
    if (CHAINS == 2) {
      top += sums[tile][CHAINS - 1][0] + sums[tile][CHAINS - 1][1];
      bottom += sums[tile][CHAINS - 1][2] + sums[tile][CHAINS - 1][3];
    }
    if (my.lane() % 4 == 0) {
      my.shared.partial[buffer][tile * shape::TILE_ROWS + group][my.warp()] = top;
      my.shared.partial[buffer][tile * shape::TILE_ROWS + group + 8][my.warp()] = bottom;
    }
  }
}

// One matvec.
template <class W>
__device__ __forceinline__ void product(Consumer& my, u32 layer, const Source& from) {
  const TileRange tiles = tiles_of_block(shape::tiles(W::ROW.rows, shape::TILE_ROWS));
#pragma unroll 1
  for (int first = tiles.begin; first < tiles.end; first += W::TILES) {
    uint4 a[W::TILES * W::STEPS];
    u32 weights[W::LANE_PAIRS];
    const bool gathers = first == tiles.begin;
    if (gathers) load_norm<W>(my, from, weights);
    take_weights<W>(my, tiles.end - first, layer, a);
    const int buffer = my.round % 2;
    wait_for_buffer(my, buffer);
    if (gathers) {
      float2 values[W::LANE_PAIRS];
      xray::note(my.log, abi::Moment::Asked, 0);
      gather<W>(my, from, values);
      xray::note(my.log, abi::Moment::Gathered);
      float squares = keep<W>(my, values, weights);
      multiply<W>(my, a, buffer);
      if (W::ROW.normed) {
        squares = warp_sum(squares);
        if (my.lane() == 0) my.shared.squares[buffer][my.warp()] = squares;
      }
    } else {
      multiply<W>(my, a, buffer);
    }
    xray::note(my.log, abi::Moment::Multiplied);
    ptx::partials_arrive<shape::EPILOGUE_THREADS>(buffer);
    my.round++;
  }
}
