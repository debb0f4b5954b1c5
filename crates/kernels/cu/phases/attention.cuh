// Attention and the O projection, in one phase. An item is one KV head and one rank: the blocks of a KV
// head (its ranks) each multiply ITEM_TILES tiles of the O projection by the columns of the head's query
// heads, and publish partial sums, which the next gather adds up over the KV heads.
//
// Up to KV_LOCAL positions every rank attends to all of them: the same sums RANKS times, for one hand-off
// less. Beyond, chunks of positions go to the ranks round-robin as in flash-decoding (split-KV), and
// the ranks exchange their results among themselves.
//
// Attention may also be a phase of its own (APART): up to KV_LOCAL positions the first rank alone attends and
// hands the output over, as the O projection multiplies it. Beyond, the exchange of the ranks' results is that
// hand-off.
//
// Scores and sums of values are products of the tensor cores. Keys and values come through the ring, ahead of
// the queries; the queries, and the weights of the positions, are B operands in two bf16 parts. One barrier of
// the block lies between scores and weights, of up to KV_BATCH positions:
//
//   scores    a warp has the GROUP positions of its group and a quarter of the dimensions. It gathers that
//             quarter of the queries and rotates it. The norm's factor is the same for a whole head: it is
//             left to the readers of the scores, so that no warp waits for a head's sum of squares
//   newest    its key and value are not in the cache yet: one warp computes its scores, another keeps its value
//   outputs   every warp computes the softmax of its head, and the sums over all positions for a fragment of
//             16 dimensions. The warps that share a slice of the O projection's columns exchange them
#pragma once
#include "../ptx/approximate.cuh"
#include "../ptx/convert.cuh"
#include "product.cuh"
#include "share.cuh"

namespace attention {

constexpr int HEADS = shape::GROUP_HEADS;
// Parts of a head's dimensions, as many as warps share a group: 8 pairs and their partners in the rotation.
using shape::QUARTERS;
constexpr int QUARTER_PAIRS = 8;
constexpr int QUARTER_STEPS = 2;
static_assert(QUARTERS * QUARTER_STEPS * QUARTER_PAIRS == HEAD_PAIRS, "whole quarters");
static_assert(QUARTERS * GROUPS == shape::CONSUMER_WARPS, "a warp a quarter of a group");
static_assert(HEADS * QUARTER_PAIRS <= 32, "a lane a pair and its partner, of every query head");
// The warps of the newest position's key and value: of the last group, which a short text does not have.
constexpr int KEY_WARP = shape::CONSUMER_WARPS - 1, VALUE_WARP = shape::CONSUMER_WARPS - 2;

// Words of a column of the queries' B operand: two steps of eight, and eight to spare, for the banks. A head
// has a column for each part.
constexpr u32 QUERY_COLUMN = 8 * QUARTER_STEPS + 8;
constexpr u32 QUERY_COLUMNS = shape::PARTS * HEADS;
static_assert(QUERY_COLUMNS <= 8 && QUERY_COLUMNS * QUERY_COLUMN <= shape::ACTIVATION_WORDS, "fits the operand");

constexpr float MINUS_INFINITY = -__builtin_huge_valf();

__device__ __forceinline__ int group_of(const Consumer& my) { return my.warp() / QUARTERS; }
__device__ __forceinline__ int quarter_of(const Consumer& my) { return my.warp() % QUARTERS; }

// ---- what does not depend on the queries

// A lane's norm weights, bf16: of a pair of dimensions, and of its partner in the rotation. `norm`: the
// queries' (0) or the keys' (1).
__device__ __forceinline__ uint2 norm_weights(const Consumer& my, int norm, int pair) {
  // The layer's norms: before attention, before the MLP, of queries, of keys.
  const u32* weights =
      reinterpret_cast<const u32*>(my.layer_base() + my.args.norms) + shape::HIDDEN + norm * HEAD_PAIRS + pair;
  return {weights[0], weights[HEAD_PAIRS / 2]};
}

// Takes a round's keys, as the A operand of this warp's positions and dimensions.
__device__ __forceinline__ void take_keys(Consumer& my, uint4 (&keys)[QUARTER_STEPS]) {
  const u32 full = wait_for_stages<1>(my, my.layer, abi::Phase::Attention);
  const u32 from = stage_at(my, 0) + group_of(my) * GROUP_BYTES +
                   quarter_of(my) * QUARTER_STEPS * abi::FRAGMENT_BYTES_BF16 + my.lane() * 16;
#pragma unroll
  for (int step = 0; step < QUARTER_STEPS; step++) {
    keys[step] = ptx::load_shared_words_at(from + step * abi::FRAGMENT_BYTES_BF16);
  }
  release_stages<1>(my, full);
}

// ---- queries, and the newest position's key and value

// The values of a pair of dimensions and its partner.
__device__ __forceinline__ void unpack(const u64* units, float (&x)[4]) {
  const float2 low = values_of(units[0]), high = values_of(units[1]);
  x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
}

__device__ __forceinline__ float squares_of(const float (&x)[4]) {
  return (x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3]);
}

// The factor of RMSNorm, from a head's sum of squares.
__device__ __forceinline__ float rms_of(const Consumer& my, float squares) {
  return ptx::reciprocal_sqrt(squares / shape::HEAD_DIM + my.args.norm_eps);
}

// Of a pair and its partner: RMSNorm without its factor, then RoPE.
__device__ __forceinline__ void weigh_and_rotate(const Consumer& my, int pair, uint2 weights, float (&x)[4]) {
  const float4 angles = reinterpret_cast<const float4*>(my.shared.angles)[pair];
  const float a = x[0] * bf16_low(weights.x), b = x[1] * bf16_high(weights.x);
  const float c = x[2] * bf16_low(weights.y), d = x[3] * bf16_high(weights.y);
  x[0] = a * angles.x - c * angles.y;
  x[1] = b * angles.z - d * angles.w;
  x[2] = c * angles.x + a * angles.y;
  x[3] = d * angles.z + b * angles.w;
}

// The place of a head's pair in the slot of queries, keys and values; of its partner if `at` is 1.
__device__ __forceinline__ int place_of(int head, int pair, int at) {
  return QkvSums::place(head * HEAD_PAIRS + at * (HEAD_PAIRS / 2) + pair, 0);
}

__device__ __forceinline__ Slot heads_slot(const Consumer& my, int kv_head) {
  return slot_of(my.args, my.layer, abi::Phase::Qkv, shape::QKV_SLOT).of(kv_head);
}

// Gathers this warp's quarter of the queries, as the B operand of its steps.
__device__ __forceinline__ void gather_queries(Consumer& my, int kv_head, uint2 weights,
                                               uint2 (&b)[QUARTER_STEPS]) {
  const int lane = my.lane(), head = lane / QUARTER_PAIRS, within = lane % QUARTER_PAIRS;
  const int pair = quarter_of(my) * QUARTER_PAIRS + within;
  const bool is_used = lane < HEADS * QUARTER_PAIRS;
  const auto used = [&](int) { return is_used; };
  const auto place = [&](int at) {
    return place_of(kv_head * HEADS + head, pair, at);
  };
  u32* words = my.shared.x[my.warp()];
  const u32 to = activation::pair_address(words + head * shape::PARTS * QUERY_COLUMN, within);
  const u32 column = lane / 4;
  const u32 from = column < QUERY_COLUMNS ? ptx::shared_address(words + column * QUERY_COLUMN + lane % 4 * 2)
                                          : ptx::shared_address(my.shared.zeros);
  u64 units[2];
  gather(my, heads_slot(my, kv_head), used, place, units);
  float x[4];
  unpack(units, x);
  float squares = squares_of(x);
  weigh_and_rotate(my, pair, weights, x);
#pragma unroll
  for (u32 part = 0; is_used && part < shape::PARTS; part++) {
    const u32 low = ptx::bf16_pair(x[0], x[1]), high = ptx::bf16_pair(x[2], x[3]);
    ptx::store_shared_at(to + part * QUERY_COLUMN * 4, low);
    ptx::store_shared_at(to + part * QUERY_COLUMN * 4 + 32, high);
    x[0] -= bf16_low(low), x[1] -= bf16_high(low), x[2] -= bf16_low(high), x[3] -= bf16_high(high);
  }
  __syncwarp();
#pragma unroll
  for (int step = 0; step < QUARTER_STEPS; step++) b[step] = ptx::load_shared_pair_at(from + 32 * step);
  if (group_of(my) != 0) return;
#pragma unroll
  for (int distance = QUARTER_PAIRS / 2; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(~0u, squares, distance);
  }
  if (is_used && within == 0) my.shared.query_squares[head][quarter_of(my)] = squares;
}

// This warp's part of the scores of a batch's round: over its positions and dimensions.
__device__ __forceinline__ void score(Consumer& my, int round, const uint4 (&keys)[QUARTER_STEPS],
                                      const uint2 (&b)[QUARTER_STEPS]) {
  float sums[4] = {};
#pragma unroll
  for (int step = 0; step < QUARTER_STEPS; step++) ptx::mma_bf16(sums, keys[step], b[step].x, b[step].y);
  // A lane has two columns: the parts of one head.
  const int head = my.lane() % 4;
  if (head >= HEADS) return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int at = round * shape::KV_ROUND + group_of(my) * GROUP + half * 8 + my.lane() / 4;
    my.shared.scores[head][at][quarter_of(my)] = sums[2 * half] + sums[2 * half + 1];
  }
}

// Sums `N` values over the warp: a lane gets the sum of one of them. At each of the first steps a lane gives
// away one half of its values and adds the other lane's to the other half.
template <int N, int STEP = 16>
__device__ __forceinline__ float scattered_sum(const float (&values)[N], int lane) {
  if constexpr (STEP == 0) {
    return values[0];
  } else if constexpr (N == 1) {
    const float sum[1] = {values[0] + __shfl_xor_sync(~0u, values[0], STEP)};
    return scattered_sum<1, STEP / 2>(sum, lane);
  } else {
    const bool upper = lane & STEP;
    float half[N / 2];
#pragma unroll
    for (int at = 0; at < N / 2; at++) {
      const float given = upper ? values[at] : values[at + N / 2];
      half[at] = (upper ? values[at + N / 2] : values[at]) + __shfl_xor_sync(~0u, given, STEP);
    }
    return scattered_sum<N / 2, STEP / 2>(half, lane);
  }
}

// The next power of two.
constexpr int padded(int heads) { return heads <= 1 ? 1 : 2 * padded((heads + 1) / 2); }

// a b + c d. The compiler rounds one of the products before it adds the other: which one, it chooses by the
// code around the sum, and so the last bit. It chose c d in the megakernel for long texts, and a b in the one
// for short ones and in all kernels of one phase. So where a phase is a kernel, this is said.
template <bool IS_LOCAL>
__device__ __forceinline__ float sum_of_products(float a, float b, float c, float d) {
  if (!BY_PHASE) return a * b + c * d;
  return IS_LOCAL ? __fmaf_rn(c, d, a * b) : __fmaf_rn(a, b, c * d);
}

// The newest position's key: this lane's pair and its partner, in bf16. Its scores go into shared memory.
template <bool IS_LOCAL>
__device__ __forceinline__ uint2 newest_key(Consumer& my, int kv_head, uint2 query_weights, uint2 key_weights) {
  const auto used = [](int) { return true; };
  const auto unit = [&](int at) {
    const int head = at / 2 < HEADS ? kv_head * HEADS + at / 2 : shape::HEADS + kv_head;
    return place_of(head, my.lane(), at % 2);
  };
  u64 units[2 * HEADS + 2];
  gather(my, heads_slot(my, kv_head), used, unit, units);
  float key[4];
  unpack(units + 2 * HEADS, key);
  float squares = squares_of(key);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) squares += __shfl_xor_sync(~0u, squares, distance);
  weigh_and_rotate(my, my.lane(), key_weights, key);
  const float rms = rms_of(my, squares);
  const uint2 words = {ptx::bf16_pair(key[0] * rms, key[1] * rms), ptx::bf16_pair(key[2] * rms, key[3] * rms)};
  constexpr int N = padded(HEADS);
  float products[N] = {};
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    float query[4];
    unpack(units + 2 * head, query);
    weigh_and_rotate(my, my.lane(), query_weights, query);
    const float2 key_low = {bf16_low(words.x), bf16_high(words.x)};
    const float2 key_high = {bf16_low(words.y), bf16_high(words.y)};
    products[head] = sum_of_products<IS_LOCAL>(query[0], key_low.x, query[1], key_low.y) +
                     sum_of_products<IS_LOCAL>(query[2], key_high.x, query[3], key_high.y);
  }
  const float sum = scattered_sum<N>(products, my.lane());
  const int head = my.lane() / (32 / N);
  if (my.lane() % (32 / N) == 0 && head < HEADS) my.shared.newest_scores[head] = sum;
  return words;
}

// The newest position's value likewise, which goes into shared memory.
__device__ __forceinline__ uint2 newest_value(Consumer& my, int kv_head) {
  const auto used = [](int) { return true; };
  const auto unit = [&](int at) { return place_of(shape::HEADS + shape::KV_HEADS + kv_head, my.lane(), at); };
  u64 units[2];
  gather(my, heads_slot(my, kv_head), used, unit, units);
  const float2 low = values_of(units[0]), high = values_of(units[1]);
  const uint2 words = {ptx::bf16_pair(low.x, low.y), ptx::bf16_pair(high.x, high.y)};
  u32* to = my.shared.newest_value + my.lane();
  to[0] = words.x;
  to[HEAD_PAIRS / 2] = words.y;
  return words;
}

// Puts a position's key, of which this lane has a pair and its partner, into its group.
__device__ __forceinline__ void put_key(u8* group, u32 position, int pair, uint2 words) {
  const u32 row = position % GROUP, within = pair % QUARTER_PAIRS;
  u8* fragment = group + pair / QUARTER_PAIRS * QUARTER_STEPS * abi::FRAGMENT_BYTES_BF16;
  u32* to = reinterpret_cast<u32*>(fragment + (4 * (row % 8) + within % 4) * 16) + row / 8 + 2 * (within / 4);
  to[0] = words.x;
  to[abi::FRAGMENT_BYTES_BF16 / 4] = words.y;
}

// A position's value likewise.
__device__ __forceinline__ void put_value(u8* group, u32 position, int pair, uint2 words) {
  const u32 column = position % GROUP, row = pair % 8;
  u8* fragment = group + pair / 8 * abi::FRAGMENT_BYTES_BF16;
  u16* to = reinterpret_cast<u16*>(fragment + (4 * row + column % 8 / 2) * 16 + column / 8 * 8) + column % 2;
  constexpr int PARTNER = HEAD_PAIRS / 2 / 8 * abi::FRAGMENT_BYTES_BF16 / 2;
  to[0] = u16(words.x);
  to[2] = u16(words.x >> 16);
  to[PARTNER] = u16(words.y);
  to[PARTNER + 2] = u16(words.y >> 16);
}

// Writes the newest position to the cache, of which KEY_WARP has the key and VALUE_WARP the value: once the
// block's other warps have what they wait for.
__device__ __forceinline__ void write_newest(const Consumer& my, int kv_head, uint2 words) {
  const u32 position = my.args.position;
  const u64 group = u64(position / GROUP) * GROUP_BYTES;
  if (my.warp() == KEY_WARP) {
    put_key(cache_of(my.args, my.layer, 0, kv_head) + group, position, my.lane(), words);
  }
  if (my.warp() == VALUE_WARP) {
    put_value(cache_of(my.args, my.layer, 1, kv_head) + group, position, my.lane(), words);
  }
}

// ---- softmax, and the sums of the values

using Output = OutputWork;

// This warp's slice of the group's dimensions, and its number among the warps of the slice.
__device__ __forceinline__ int slice_of(const Consumer& my) { return my.warp() % Output::SLICES; }
__device__ __forceinline__ int tile_of(const Consumer& my) { return my.warp() / Output::SLICES; }
// The slice's query head in the group, and its first pair of that head.
__device__ __forceinline__ int head_of(const Consumer& my) {
  return slice_of(my) * Output::SLICE_COLUMNS / shape::HEAD_DIM;
}
__device__ __forceinline__ int first_pair_of(const Consumer& my) {
  return slice_of(my) * Output::SLICE_COLUMNS % shape::HEAD_DIM / 2;
}

// Fragments of 16 dimensions of a slice: a warp has every ITEM_TILES-th.
constexpr int OUTPUT_FRAGMENTS = Output::SLICE_COLUMNS / 16;
constexpr int OUTPUTS = ceiling(OUTPUT_FRAGMENTS, shape::ITEM_TILES);
static_assert(OUTPUT_FRAGMENTS % OUTPUTS == 0, "as many fragments for every warp that has any");

__device__ __forceinline__ bool has_outputs(const Consumer& my) {
  return OUTPUT_FRAGMENTS >= shape::ITEM_TILES || tile_of(my) < OUTPUT_FRAGMENTS;
}

// A lane's pair of dimensions in the slice, of the warp's `at`-th fragment.
__device__ __forceinline__ int output_pair(const Consumer& my, int at) {
  return (tile_of(my) + at * shape::ITEM_TILES) * 8 + my.lane() / 4;
}

// A warp's sums over the positions so far.
struct Weighed {
  // The largest score, in base 2; the sums of weights and outputs are relative to it.
  float largest;
  // In lanes that are multiples of four, of both parts: the sum of weights, and the outputs of a fragment's
  // dimensions 2 r and 2 r + 1, r the lane / 4.
  float weights[4], outputs[OUTPUTS][4];

  __device__ __forceinline__ float weight() const { return weights[0] + weights[1]; }
  __device__ __forceinline__ float2 output(int at) const {
    return {outputs[at][0] + outputs[at][1], outputs[at][2] + outputs[at][3]};
  }
};

// The largest of all lanes' values. A NaN of positive sign counts as the largest.
__device__ __forceinline__ float warp_largest(float value) {
  const auto ordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  return __int_as_float(ordered(__reduce_max_sync(~0u, ordered(__float_as_int(value)))));
}

// Starts a warp's sums: with the newest position, if the share has it.
__device__ __forceinline__ Weighed begin_sums(Consumer& my, bool has_newest, float scale) {
  Weighed sums = {has_newest ? my.shared.newest_scores[head_of(my)] * scale : MINUS_INFINITY, {}, {}};
  sums.weights[0] = has_newest ? 1.f : 0.f;
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    const u32 value = has_newest ? my.shared.newest_value[first_pair_of(my) + output_pair(my, at)] : 0;
    sums.outputs[at][0] = bf16_low(value);
    sums.outputs[at][2] = bf16_high(value);
  }
  return sums;
}

// Adds a round's values: the warp's weights of its positions are an operand in shared memory.
__device__ __forceinline__ void add_values(Consumer& my, const Share& share, int round, u32 cached,
                                           Weighed& sums) {
  const u32 full = wait_for_stages<1>(my, my.layer, abi::Phase::Attention);
  const u32 values =
      stage_at(my, 0) + my.lane() * 16 + (first_pair_of(my) / 8 + tile_of(my)) * abi::FRAGMENT_BYTES_BF16;
  constexpr u32 ONES = 0x3f803f80;
#pragma unroll
  for (int group = 0; group < GROUPS; group++) {
    if (!share.has_group(round, group, cached)) break;
    const uint2 b = activation::operand(my.x_operand, group);
    ptx::mma_bf16(sums.weights, {ONES, ONES, ONES, ONES}, b.x, b.y);
#pragma unroll
    for (int at = 0; has_outputs(my) && at < OUTPUTS; at++) {
      const int fragment = at * shape::ITEM_TILES * abi::FRAGMENT_BYTES_BF16;
      const uint4 a = ptx::load_shared_words_at(values + group * GROUP_BYTES + fragment);
      ptx::mma_bf16(sums.outputs[at], a, b.x, b.y);
    }
  }
  release_stages<1>(my, full);
}

// Adds a round to the sums: number `round` of the share, and `at` in the batch whose scores are in shared
// memory.
__device__ __forceinline__ void weigh(Consumer& my, const Share& share, int round, int at, u32 cached,
                                      float scale, Weighed& sums) {
  const float4* scores = reinterpret_cast<const float4*>(
      my.shared.scores[head_of(my)][at * shape::KV_ROUND + 2 * my.lane()]);
  float score[2];
#pragma unroll
  for (int of = 0; of < 2; of++) {
    const float4 quarters = scores[of];
    score[of] = ((quarters.x + quarters.y) + (quarters.z + quarters.w)) * scale;
    if (share.position(round, 2 * my.lane() + of) >= cached) score[of] = MINUS_INFINITY;
  }
  const float largest = fmaxf(sums.largest, warp_largest(fmaxf(score[0], score[1])));
  activation::set(my.x_pair(), {ptx::exp2(score[0] - largest), ptx::exp2(score[1] - largest)});
  const float rescale = ptx::exp2(sums.largest - largest);
  sums.largest = largest;
#pragma unroll
  for (int of = 0; of < 4; of++) sums.weights[of] *= rescale;
#pragma unroll
  for (int of = 0; of < 4 * OUTPUTS; of++) sums.outputs[of / 4][of % 4] *= rescale;
  __syncwarp();
  add_values(my, share, round, cached, sums);
}

// Attends to a share, batch by batch: the scores, then the sums. `ahead` is called before the wait for the
// queries. Sets `newest` in the two warps that keep the newest position.
template <bool IS_LOCAL, class Ahead>
__device__ __forceinline__ Weighed attend(Consumer& my, int kv_head, const Share& share, uint2& newest,
                                          Ahead ahead) {
  // Pinned, or what follows from it would be computed before the first layer and kept in registers.
  const u32 cached = ptx::pinned(my.args.position);
  const int rounds = share.rounds(cached), lane = my.lane();
  const bool has_newest = share.has_newest(cached);
  uint4 keys[QUARTER_STEPS] = {};
  const auto take_first = [&] {
    ahead();
    if (rounds > 0) take_keys(my, keys);
  };
  // The queries of a kernel of one phase are there before its keys.
  if (!BY_PHASE) take_first();
  const uint2 weights = norm_weights(my, 0, quarter_of(my) * QUARTER_PAIRS + lane % QUARTER_PAIRS);
  const uint2 query_weights = norm_weights(my, 0, lane), key_weights = norm_weights(my, 1, lane);
  uint2 b[QUARTER_STEPS] = {};
  xray::note(my.log, abi::Moment::AskedHeads, my.layer);
  inject_delay(my.args, my.layer, abi::Phase::Qkv);
  // The first group's warps have the sums of squares, too.
  if (group_of(my) == 0 || share.has_group(0, group_of(my), cached)) gather_queries(my, kv_head, weights, b);
  xray::note(my.log, abi::Moment::Gathered);
  if (BY_PHASE) take_first();
  Weighed sums;
  float scale = 0.f;
#pragma unroll 1
  for (int first = 0;; first += ROUNDS) {
    const int count = min(ROUNDS, rounds - first);
#pragma unroll 1
    for (int round = 0; round < count; round++) {
      if (first + round > 0) take_keys(my, keys);
      if (share.has_group(first + round, group_of(my), cached)) score(my, round, keys, b);
    }
    if (first == 0 && has_newest && my.warp() == KEY_WARP) {
      newest = newest_key<IS_LOCAL>(my, kv_head, query_weights, key_weights);
    }
    if (first == 0 && has_newest && my.warp() == VALUE_WARP) newest = newest_value(my, kv_head);
    xray::note(my.log, abi::Moment::Arrived);
    my.sync();
    xray::note(my.log, abi::Moment::Passed);
    if (first == 0) {
      const float4 squares = *reinterpret_cast<const float4*>(my.shared.query_squares[head_of(my)]);
      // Scores are in base 2, for exp2; the other factor is 1 / sqrt(HEAD_DIM), of heads of 128.
      const float factor = ptx::LOG2_E * 0.08838834764831845f;
      scale = rms_of(my, (squares.x + squares.y) + (squares.z + squares.w)) * factor;
      sums = begin_sums(my, has_newest, scale);
    }
#pragma unroll 1
    for (int round = 0; round < count; round++) weigh(my, share, first + round, round, cached, scale, sums);
    if (share.splits == 1) return sums;
    if (first + ROUNDS >= rounds) return sums;
    // Until all warps have read the scores.
    my.sync();
  }
}

// ---- the exchange among the ranks

// The partial result of one query head and rank: the head's pairs, then the largest score and the sum of
// weights.
__device__ __forceinline__ Slot partials_of(const abi::StepArgs& args, u32 layer, int head, int rank) {
  u64* units = args.slots + shape::PARTIALS_BASE + u64(layer) * shape::LAYER_PARTIALS +
               u64(head * shape::SPLITS + rank) * shape::PARTIAL_LINE;
  return {units, layer, abi::Phase::Attention};
}

// What attention hands over of a KV head is published, by all of the block's warps.
__device__ __forceinline__ void finish_head(Consumer& my, const Slot& to, int kv_head) {
  if (!Handoff::COUNTS_PIECES) return;
  my.sync();
  if (my.warp() == 0) Handoff::finish_pieces(my.args, my.shared, to, kv_head, kv_head + 1);
}

// All that this block hands over.
__device__ __forceinline__ void finish_heads(Consumer& my, const Slot& to) {
  if (!Handoff::COUNTS_BLOCKS) return;
  my.sync();
  if (my.warp() == 0) Handoff::finish_phase(my.args, my.shared, to);
}

// Publishes this block's share.
__device__ __forceinline__ void publish_share(Consumer& my, const Item& item, const Weighed& sums) {
  if (my.lane() % 4 != 0 || !has_outputs(my) || has_failed(my.shared)) return;
  const Slot to = partials_of(my.args, my.layer, item.kv_head * HEADS + head_of(my), item.rank);
  // The sums are relative to the score that the reader sees.
  const float largest = __uint_as_float(rounded24(sums.largest) & 0xffffff00u);
  const float factor = ptx::exp2(sums.largest - largest);
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    const float2 output = sums.output(at);
    Handoff::publish(my.args, to, first_pair_of(my) + output_pair(my, at),
                     {output.x * factor, output.y * factor});
  }
  if (first_pair_of(my) == 0 && tile_of(my) == 0 && my.lane() == 0) {
    Handoff::publish(my.args, to, HEAD_PAIRS, {largest, sums.weight() * factor});
  }
}

// A lane's pair of the slice where lanes have pairs side by side.
__device__ __forceinline__ int pair_of(const Consumer& my, int at) {
  return slice_of(my) * (Output::SLICE_COLUMNS / 2) + at * 32 + my.lane();
}

// Gathers the ranks' partial results: a warp takes its slice of every ITEM_TILES-th rank, and stores their
// sum for the other warps of the slice.
__device__ __forceinline__ void gather_shares(Consumer& my, const Item& item, int splits) {
  xray::note(my.log, abi::Moment::AskedPartials, my.layer);
  inject_delay(my.args, my.layer, abi::Phase::Attention);
  const int group = tile_of(my);
  constexpr int RANKS = ceiling(shape::SPLITS, shape::ITEM_TILES);
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int pair = pair_of(my, at), head = pair / HEAD_PAIRS;
    const Slot from = partials_of(my.args, my.layer, item.kv_head * HEADS + head, 0).of(item.kv_head, splits);
    const auto rank = [&](int of) { return group + of / 2 * shape::ITEM_TILES; };
    const auto used = [&](int of) { return rank(of) < splits; };
    const auto place = [&](int of) {
      return rank(of) * shape::PARTIAL_LINE + (of % 2 == 0 ? pair % HEAD_PAIRS : HEAD_PAIRS);
    };
    u64 units[2 * RANKS];
    gather(my, from, used, place, units);
    float largest = MINUS_INFINITY, weights = 0.f;
    float2 output = {0.f, 0.f};
#pragma unroll
    for (int of = 0; of < RANKS; of++) {
      if (used(2 * of)) largest = fmaxf(largest, values_of(units[2 * of + 1]).x);
    }
#pragma unroll
    for (int of = 0; of < RANKS; of++) {
      if (!used(2 * of)) continue;
      const float2 each = values_of(units[2 * of]), scale = values_of(units[2 * of + 1]);
      const float factor = ptx::exp2(scale.x - largest);
      weights += scale.y * factor;
      output.x += each.x * factor;
      output.y += each.y * factor;
    }
    *reinterpret_cast<float2*>(&my.shared.merged[group][2 * pair]) = output;
    if (my.lane() == 0) {
      my.shared.merged_largest[head][group] = largest;
      my.shared.merged_weights[head][group] = weights;
    }
  }
  xray::note(my.log, abi::Moment::Gathered);
}

__device__ __forceinline__ float4 quad_at(const float* values) {
  return *reinterpret_cast<const float4*>(values);
}

// Adds up the warps' sums over the ranks: this warp's slice of the output is its activation.
__device__ __forceinline__ void keep_merged(Consumer& my) {
  static_assert(shape::ITEM_TILES == 4, "four sums");
  const int head = head_of(my);
  const float4 scores = quad_at(my.shared.merged_largest[head]), sums = quad_at(my.shared.merged_weights[head]);
  const float largest = fmaxf(fmaxf(scores.x, scores.y), fmaxf(scores.z, scores.w));
  const float factor[4] = {ptx::exp2(scores.x - largest), ptx::exp2(scores.y - largest),
                           ptx::exp2(scores.z - largest), ptx::exp2(scores.w - largest)};
  const float weights = (sums.x * factor[0] + sums.y * factor[1]) + (sums.z * factor[2] + sums.w * factor[3]);
  const float scale = Output::Format::X_SCALE * ptx::reciprocal(weights);
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    float2 output = {0.f, 0.f};
#pragma unroll
    for (int of = 0; of < 4; of++) {
      const float2 each = *reinterpret_cast<const float2*>(&my.shared.merged[of][2 * pair_of(my, at)]);
      output.x += each.x * factor[of];
      output.y += each.y * factor[of];
    }
    if (at * 32 + my.lane() >= Output::SLICE_COLUMNS / 2) continue;
    activation::set(my.x_pair() + at * 32 * 4, {output.x * scale, output.y * scale});
  }
  __syncwarp();
}

// ---- the O projection

// Takes an item's weights: this warp's tile and slice.
__device__ __forceinline__ void take_output_weights(Consumer& my, uint4 (&a)[Output::STEPS]) {
  const u32 full = wait_for_stages<Output::PIECES>(my, my.layer, abi::Phase::OProj);
  const int tile = tile_of(my);
  const u32 part = stage_at(my, tile / Output::STAGE_PARTS) + tile % Output::STAGE_PARTS * Output::PART_BYTES +
                   my.lane() * 16;
#pragma unroll
  for (int at = 0; at < Output::SLICE_FRAGMENTS; at++) {
    constexpr int STEPS = Output::STEPS / Output::SLICE_FRAGMENTS;
    const int fragment = slice_of(my) * Output::SLICE_FRAGMENTS + at;
    Output::Format::widen(part + fragment * Output::Format::BYTES, a + at * STEPS);
  }
  release_stages<Output::PIECES>(my, full);
#pragma unroll
  for (int at = 0; at < Output::STEPS; at++) ptx::pin(a[at]);
}

// Exchanges the outputs among the warps of a slice. Returns where this lane's B operand begins.
__device__ __forceinline__ u32 share_outputs(Consumer& my, const Weighed& sums) {
  u32* words = my.shared.outputs[slice_of(my)];
  const u32 to = activation::pair_address(words, my.lane() / 4) + tile_of(my) * 32;
  const float factor = Output::Format::X_SCALE * ptx::reciprocal(sums.weight());
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    const float2 output = sums.output(at);
    if (my.lane() % 4 != 0 || !has_outputs(my)) continue;
    activation::set(to + at * shape::ITEM_TILES * 32, {output.x * factor, output.y * factor});
  }
  const u32 from = activation::operand_address(words, my.shared.zeros);
  ptx::slice_sync<32 * shape::ITEM_TILES>(slice_of(my));
  return from;
}

// This block's `index`-th item. Read again where it is needed: registers are short.
__device__ __forceinline__ Item item_at(const Consumer& my, int index) {
  return item_of(my.shared.shares[O_PROJ_SHARE].x + index);
}

__device__ __forceinline__ int items_of(const Consumer& my) {
  const int2 items = my.shared.shares[O_PROJ_SHARE];
  return items.y - items.x;
}

// A short text: every rank attends to all positions.
__device__ __forceinline__ void attend_locally(Consumer& my) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    const int buffer = my.round % 2;
    uint4 a[Output::STEPS];
    uint2 newest = {0, 0};
    xray::note(my.log, abi::Moment::Attends, my.layer);
    // Before a second item: slower warps may still read the first one's sums.
    if (index > 0) my.sync();
    const auto ahead = [&] {
      take_output_weights(my, a);
      wait_for_buffer(my, buffer);
    };
    const Weighed sums = attend<true>(my, item.kv_head, Share{0, 1}, newest, ahead);
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, O_PROJ_ROW));
    const u32 x = share_outputs(my, sums);
    multiply<1, Output::STEPS, Output::CHAINS>(my, x, a, buffer);
    end_round(my, buffer);
    if (item.rank == 0) write_newest(my, item.kv_head, newest);
  }
}

// The ranks' shares of a long text, published to the ranks of their KV head.
__device__ __forceinline__ void exchange_shares(Consumer& my, int splits) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    if (item.rank >= splits) continue;
    xray::note(my.log, abi::Moment::Attends, my.layer);
    // A warp that is behind may still read the scores of the item before.
    if (index > 0) my.sync();
    const Share share = {item.rank, splits};
    uint2 newest = {0, 0};
    const Weighed sums = attend<false>(my, item.kv_head, share, newest, [] {});
    publish_share(my, item, sums);
    finish_head(my, partials_of(my.args, my.layer, 0, 0), item.kv_head);
    if (share.has_newest(my.args.position)) write_newest(my, item.kv_head, newest);
  }
  finish_heads(my, partials_of(my.args, my.layer, 0, 0));
}

__device__ __forceinline__ void project_shares(Consumer& my, int splits) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const int buffer = my.round % 2;
    uint4 a[Output::STEPS];
    // Before a second item: slower warps may still read the first one's sums.
    if (index > 0) my.sync();
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, O_PROJ_ROW));
    if (!BY_PHASE) take_output_weights(my, a);
    wait_for_buffer(my, buffer);
    gather_shares(my, item_at(my, index), splits);
    xray::note(my.log, abi::Moment::Arrived);
    my.sync();
    xray::note(my.log, abi::Moment::Passed);
    keep_merged(my);
    if (BY_PHASE) take_output_weights(my, a);
    multiply<1, Output::STEPS, Output::CHAINS>(my, my.x_operand, a, buffer);
    end_round(my, buffer);
  }
}

// ---- attention as a phase of its own, up to KV_LOCAL positions

// The output of a KV head's query heads: of every pair the words of its parts.
__device__ __forceinline__ Slot output_of(const Consumer& my, int kv_head) {
  u64* units = my.args.slots + shape::OUTPUTS_BASE + u64(my.layer) * shape::LAYER_OUTPUTS +
               u64(kv_head) * shape::OUTPUT_LINE;
  return {units, my.layer, abi::Phase::Attention};
}

// Publishes the output of a KV head: the words that share_outputs would store.
__device__ __forceinline__ void publish_output(Consumer& my, int kv_head, const Weighed& sums) {
  const Slot to = output_of(my, kv_head);
  const float factor = Output::Format::X_SCALE * ptx::reciprocal(sums.weight());
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    const float2 output = sums.output(at);
    if (my.lane() % 4 != 0 || !has_outputs(my) || has_failed(my.shared)) continue;
    const int pair = slice_of(my) * (Output::SLICE_COLUMNS / 2) + output_pair(my, at);
    u32 words[shape::PARTS];
    activation::split({output.x * factor, output.y * factor}, words);
#pragma unroll
    for (int part = 0; part < shape::PARTS; part++) {
      Handoff::publish_word(my.args, to, shape::PARTS * pair + part, words[part]);
    }
  }
}

// Gathers the warp's slice of a KV head's output, as its activation.
__device__ __forceinline__ void gather_output(Consumer& my, int kv_head) {
  xray::note(my.log, abi::Moment::AskedPartials, my.layer);
  inject_delay(my.args, my.layer, abi::Phase::Attention);
  constexpr int PARTS = shape::PARTS;
  const auto used = [&](int of) { return of / PARTS * 32 + my.lane() < Output::SLICE_COLUMNS / 2; };
  const auto place = [&](int of) { return PARTS * pair_of(my, of / PARTS) + of % PARTS; };
  u64 units[PARTS * Output::LANE_PAIRS];
  gather(my, output_of(my, kv_head).of(kv_head), used, place, units);
  xray::note(my.log, abi::Moment::Gathered);
#pragma unroll
  for (int of = 0; of < PARTS * Output::LANE_PAIRS; of++) {
    if (used(of)) activation::set_part(my.x_pair() + of / PARTS * 32 * 4, of % PARTS, word_of(units[of]));
  }
  __syncwarp();
}

// The first ranks attend to all positions and publish the output.
__device__ __forceinline__ void attend_apart(Consumer& my) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    // Items are in order of their ranks.
    if (item.rank > 0) break;
    xray::note(my.log, abi::Moment::Attends, my.layer);
    // A warp that is behind may still read the scores of the item before.
    if (index > 0) my.sync();
    uint2 newest = {0, 0};
    const Weighed sums = attend<true>(my, item.kv_head, Share{0, 1}, newest, [] {});
    publish_output(my, item.kv_head, sums);
    finish_head(my, output_of(my, 0), item.kv_head);
    write_newest(my, item.kv_head, newest);
  }
  finish_heads(my, output_of(my, 0));
}

// The O projection of an output that other blocks have handed over.
__device__ __forceinline__ void project_output(Consumer& my) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const int buffer = my.round % 2;
    uint4 a[Output::STEPS];
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, O_PROJ_ROW));
    if (!BY_PHASE) take_output_weights(my, a);
    wait_for_buffer(my, buffer);
    gather_output(my, item_at(my, index).kv_head);
    if (BY_PHASE) take_output_weights(my, a);
    multiply<1, Output::STEPS, Output::CHAINS>(my, my.x_operand, a, buffer);
    end_round(my, buffer);
  }
}

template <bool IS_LOCAL>
__device__ __forceinline__ void attend_and_project(Consumer& my) {
  if constexpr (IS_LOCAL && APART) {
    attend_apart(my);
    project_output(my);
  } else if constexpr (IS_LOCAL) {
    attend_locally(my);
  } else {
    const int splits = splits_of(my.args);
    exchange_shares(my, splits);
    project_shares(my, splits);
  }
}

}  // namespace attention
