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
// Within a block it is flash-decoding again: a warp has a group of GROUP positions. Scores and sums of values
// are products of the tensor cores; keys and values come through the ring, ahead of the queries. The queries,
// and the weights of the positions, are B operands of which each query head has a column a bf16 part. Two
// barriers of the block divide three steps:
//
//   heads     the warps share out the queries and the newest key and value, norm and rotate them, and put them
//             into shared memory. A norm's factor is left to the readers, so that nobody waits for a head's sum
//             of squares
//   groups    every warp computes the scores of its group, their softmax, and the sums of the group's values: a
//             partial result. The newest position, not in the cache yet, is a partial result, too
//   outputs   every warp adds up the partial results for a fragment of 16 dimensions. The warps that share a
//             slice of the O projection's columns exchange them
#pragma once
#include "../ptx/approximate.cuh"
#include "../ptx/convert.cuh"
#include "product.cuh"
#include "share.cuh"

namespace attention {

constexpr int HEADS = shape::GROUP_HEADS;
// Fragments of 16 of a head's dimensions.
constexpr int FRAGMENTS = shape::HEAD_DIM / 16;
// Dimensions that are rotated with a partner each.
constexpr int ROTATED = HEAD_PAIRS / 2;

// Words of a column of the queries' B operand, and eight to spare, for the banks. A head has a column a part.
constexpr u32 QUERY_COLUMN = shape::QUERY_WORDS;
constexpr u32 QUERY_COLUMNS = shape::QUERY_COLUMNS;
static_assert(QUERY_COLUMNS <= 8, "a B operand has eight columns");
static_assert(shape::PARTS == 2, "a lane of a result has both parts of a head");

constexpr float MINUS_INFINITY = -__builtin_huge_valf();

__device__ __forceinline__ float4 quad_at(const float* values) {
  return *reinterpret_cast<const float4*>(values);
}

// ---- queries, and the newest position's key and value

// Heads to gather: query heads, the newest key, the newest value.
constexpr int GATHERED = shape::GATHERED_HEADS;
constexpr int KEY_HEAD = HEADS, VALUE_HEAD = HEADS + 1;
// Warps that share a head, and their lanes that have a pair of its dimensions and the pair's partner.
constexpr int HEAD_WARPS = shape::HEAD_WARPS;
constexpr int HEAD_LANES = ROTATED / HEAD_WARPS;
static_assert(GATHERED * HEAD_WARPS <= shape::CONSUMER_WARPS, "a warp has one head");
static_assert(HEAD_LANES <= 32 && HEAD_LANES % 8 == 0, "whole fragments");

// What this warp and lane gather. Warps without a head, and lanes without a pair, gather nothing.
struct Gathered {
  int head, pair;
  bool is_used;

  __device__ __forceinline__ explicit Gathered(const Consumer& my)
      : head(my.warp() / HEAD_WARPS),
        pair(my.warp() % HEAD_WARPS * HEAD_LANES + my.lane() % HEAD_LANES),
        is_used(head < GATHERED && my.lane() < HEAD_LANES) {}

  __device__ __forceinline__ bool is_query() const { return head < HEADS; }
  __device__ __forceinline__ bool is_value() const { return head == VALUE_HEAD; }

  // The place in the slot of queries, keys and values; of the partner if `at` is 1.
  __device__ __forceinline__ int place(int kv_head, int at) const {
    const int row =
        is_query() ? kv_head * HEADS + head : shape::HEADS + (head - HEADS) * shape::KV_HEADS + kv_head;
    return QkvSums::place(row * HEAD_PAIRS + at * ROTATED + pair, 0);
  }
};

// A lane's norm weights, bf16: of a pair of dimensions, and of its partner in the rotation. `norm`: the
// queries' (0) or the keys' (1).
__device__ __forceinline__ uint2 norm_weights(const Consumer& my, int norm, int pair) {
  // The layer's norms: before attention, before the MLP, of queries, of keys.
  const u32* weights =
      reinterpret_cast<const u32*>(my.layer_base() + my.args.norms) + shape::HIDDEN + norm * HEAD_PAIRS + pair;
  return {weights[0], weights[ROTATED]};
}

// The factor of RMSNorm of a head, of whose sum of squares HEAD_WARPS warps have stored a part each.
__device__ __forceinline__ float norm_factor(const Consumer& my, int head) {
  static_assert(HEAD_WARPS <= 4, "a quad");
  const float4 squares = quad_at(my.memory().head_squares[head]);
  float sum = squares.x;
  if (HEAD_WARPS >= 2) sum += squares.y;
  if (HEAD_WARPS == 4) sum += squares.z + squares.w;
  return ptx::reciprocal_sqrt(sum / shape::HEAD_DIM + my.args.norm_eps);
}

// Of a pair (x, y) and its partner (z, w): RMSNorm without its factor, then RoPE.
__device__ __forceinline__ float4 weigh_and_rotate(const Consumer& my, int pair, uint2 weights, float4 x) {
  const float4 angles = reinterpret_cast<const float4*>(my.memory().angles)[pair];
  const float a = x.x * bf16_low(weights.x), b = x.y * bf16_high(weights.x);
  const float c = x.z * bf16_low(weights.y), d = x.w * bf16_high(weights.y);
  return {sum_of_products(a, angles.x, -c, angles.y), sum_of_products(b, angles.z, -d, angles.w),
          sum_of_products(c, angles.x, a, angles.y), sum_of_products(d, angles.z, b, angles.w)};
}

// Stores a pair and its partner of a query, in parts, where every warp loads its B operand from: words as the
// fragments of keys have their columns.
__device__ __forceinline__ void keep_query(Consumer& my, int head, int pair, float4 x) {
  u32* words = my.memory().queries[head * shape::PARTS] + pair / 8 * 16;
  const u32 to = activation::pair_address(words, pair % 8);
#pragma unroll
  for (u32 part = 0; part < shape::PARTS; part++) {
    const u32 low = ptx::bf16_pair(x.x, x.y), high = ptx::bf16_pair(x.z, x.w);
    ptx::store_shared_at(to + part * QUERY_COLUMN * 4, low);
    ptx::store_shared_at(to + part * QUERY_COLUMN * 4 + 32, high);
    x.x -= bf16_low(low), x.y -= bf16_high(low), x.z -= bf16_low(high), x.w -= bf16_high(high);
  }
}

// Gathers this warp's part of the queries and of the newest position, and puts it into shared memory: queries
// and the key normed, but for the factor, and rotated; the value rounded as the cache has it.
__device__ __forceinline__ void gather_heads(Consumer& my, int kv_head, uint2 weights) {
  const Gathered mine(my);
  const auto used = [&](int) { return mine.is_used; };
  const auto place = [&](int at) { return mine.place(kv_head, at); };
  u64 units[2];
  gather(my, slot_of(my.args, my.layer, abi::Phase::Qkv, shape::QKV_SLOT).of(kv_head), used, place, units);
  xray::note(my.log, abi::Moment::Gathered);
  const float2 low = values_of(units[0]), high = values_of(units[1]);
  float4 x = {low.x, low.y, high.x, high.y};
  float squares = sum_of_products(x.x, x.x, x.y, x.y) + sum_of_products(x.z, x.z, x.w, x.w);
  if (mine.is_value()) {
    const u32 pair = ptx::bf16_pair(x.x, x.y), partner = ptx::bf16_pair(x.z, x.w);
    x = {bf16_low(pair), bf16_high(pair), bf16_low(partner), bf16_high(partner)};
  } else {
    x = weigh_and_rotate(my, mine.pair, weights, x);
  }
  if (mine.is_used) {
    reinterpret_cast<float4*>(my.memory().heads[mine.head])[mine.pair] = x;
    if (mine.is_query()) keep_query(my, mine.head, mine.pair, x);
  }
#pragma unroll
  for (int distance = HEAD_LANES / 2; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(~0u, squares, distance);
  }
  if (mine.is_used && my.lane() == 0) my.memory().head_squares[mine.head][my.warp() % HEAD_WARPS] = squares;
}

// ---- groups of positions

// Of queries, per score: the norm's factor, 1 / sqrt(HEAD_DIM) of heads of 128, and base 2, for exp2.
__device__ __forceinline__ float score_factor(const Consumer& my, int head) {
  return norm_factor(my, head) * (ptx::LOG2_E * 0.08838834764831845f);
}

// A group's partial result. A lane has that of the head `lane % 4`, if there is one.
struct Weighed {
  // The largest score, in base 2; the sums of weights and outputs are relative to it.
  float largest;
  // Of both parts: the sum of weights, and the outputs of a fragment's dimensions 2 r and 2 r + 1, r the
  // lane / 4.
  float weights[4], outputs[FRAGMENTS][4];
};

// This warp's number among the batch's groups: its round, and the group in the round.
__device__ __forceinline__ int round_of(const Consumer& my) { return my.warp() / GROUPS; }
__device__ __forceinline__ int group_of(const Consumer& my) { return my.warp() % GROUPS; }

__device__ __forceinline__ bool has_group(const Consumer& my, const Share& share, int first, u32 cached) {
  return round_of(my) < ROUNDS && share.has_group(first + round_of(my), group_of(my), cached);
}

// A group's keys, of a stage, as A operands.
__device__ __forceinline__ void take_keys(const Consumer& my, u32 stage, uint4 (&keys)[FRAGMENTS]) {
  const u32 from = stage + group_of(my) * GROUP_BYTES + my.lane() * 16;
#pragma unroll
  for (int step = 0; step < FRAGMENTS; step++) {
    keys[step] = ptx::load_shared_words_at(from + step * abi::FRAGMENT_BYTES_BF16);
  }
}

// The scores of a group's positions `lane / 4` and 8 more, of the lane's head.
__device__ __forceinline__ float2 scores_of(Consumer& my, const uint4 (&keys)[FRAGMENTS]) {
  const u32 column = my.lane() / 4;
  const u32 from = column < QUERY_COLUMNS
                       ? ptx::shared_address(&my.memory().queries[column][my.lane() % 4 * 2])
                       : ptx::shared_address(my.memory().zeros);
  // Chains of two: a longer one waits for itself.
  float sums[4][4] = {};
#pragma unroll
  for (int step = 0; step < FRAGMENTS; step++) {
    const uint2 b = activation::operand(from, step);
    ptx::mma_bf16(sums[step % 4], keys[step], b.x, b.y);
  }
  const auto sum = [&](int of) { return (sums[0][of] + sums[1][of]) + (sums[2][of] + sums[3][of]); };
  return {sum(0) + sum(1), sum(2) + sum(3)};
}

// The weights of a group's positions as a B operand, from the lanes that have them (`weights` of lane / 4, and
// of 8 more) to those that hold a column of B: a head's part, at positions 2 t, 2 t + 1, 2 t + 8 and 2 t + 9,
// t the lane % 4.
__device__ __forceinline__ uint2 weights_operand(const Consumer& my, float2 weights) {
  const int column = my.lane() / 4, from = my.lane() % 4 * 8 + column / 2;
  float2 low, high;
  low.x = __shfl_sync(~0u, weights.x, from), low.y = __shfl_sync(~0u, weights.x, from + 4);
  high.x = __shfl_sync(~0u, weights.y, from), high.y = __shfl_sync(~0u, weights.y, from + 4);
  uint2 b = {ptx::bf16_pair(low.x, low.y), ptx::bf16_pair(high.x, high.y)};
  if (column % 2 == 1) {
    b = {ptx::bf16_pair(low.x - bf16_low(b.x), low.y - bf16_high(b.x)),
         ptx::bf16_pair(high.x - bf16_low(b.y), high.y - bf16_high(b.y))};
  }
  if (column >= QUERY_COLUMNS) b = {0, 0};
  return b;
}

// The largest of all lanes' values. A NaN of positive sign counts as the largest.
__device__ __forceinline__ float warp_largest(float value) {
  const auto ordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  return __int_as_float(ordered(__reduce_max_sync(~0u, ordered(__float_as_int(value)))));
}

// The largest of a head's values, which every fourth lane has.
__device__ __forceinline__ float head_largest(const Consumer& my, float value) {
  float largest = MINUS_INFINITY;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const bool is_mine = my.lane() % 4 == head;
    const float mine = warp_largest(is_mine ? value : MINUS_INFINITY);
    if (is_mine) largest = mine;
  }
  return largest;
}

// A group's weights as an operand, relative to its largest score. `position` is the group's first.
__device__ __forceinline__ uint2 weigh(Consumer& my, const uint4 (&keys)[FRAGMENTS], u32 position, u32 cached,
                                       float& largest) {
  const int head = my.lane() % 4;
  const float factor = score_factor(my, head < HEADS ? head : 0);
  float2 score = scores_of(my, keys);
  const u32 row = my.lane() / 4;
  score.x = position + row < cached ? score.x * factor : MINUS_INFINITY;
  score.y = position + row + 8 < cached ? score.y * factor : MINUS_INFINITY;
  largest = head_largest(my, fmaxf(score.x, score.y));
  return weights_operand(my, {ptx::exp2(score.x - largest), ptx::exp2(score.y - largest)});
}

// A group's sums over its values, of a stage, whose weights are `b`.
__device__ __forceinline__ void sum_values(Consumer& my, u32 stage, uint2 b, Weighed& sums) {
  const u32 values = stage + group_of(my) * GROUP_BYTES + my.lane() * 16;
  constexpr u32 ONES = 0x3f803f80;
#pragma unroll
  for (int of = 0; of < 4; of++) {
    sums.weights[of] = 0.f;
#pragma unroll
    for (int at = 0; at < FRAGMENTS; at++) sums.outputs[at][of] = 0.f;
  }
  ptx::mma_bf16(sums.weights, {ONES, ONES, ONES, ONES}, b.x, b.y);
#pragma unroll
  for (int at = 0; at < FRAGMENTS; at++) {
    const uint4 a = ptx::load_shared_words_at(values + at * abi::FRAGMENT_BYTES_BF16);
    ptx::mma_bf16(sums.outputs[at], a, b.x, b.y);
  }
}

// The row of the newest position among the partial results.
constexpr int NEWEST = shape::PARTIAL_RESULTS - 1;
// The warp that computes its scores: the last one, which has a group only where a text is long.
constexpr int NEWEST_WARP = shape::CONSUMER_WARPS - 1;

// Where a warp's outputs lie, a head's dimensions in their order: in its part of the activation, which it does
// not need meanwhile. It fills that part again when it has the next phase's values, and those come after this
// block's sums, to which all of its warps contribute: after all of them have read the outputs.
__device__ __forceinline__ float* outputs_of(const Consumer& my, int warp, int head) {
  return reinterpret_cast<float*>(my.memory().x[warp]) + head * shape::HEAD_OUTPUTS;
}

// Keeps a group's partial result as this warp's; adds it, if the warp had a group before.
__device__ __forceinline__ void keep_partial(Consumer& my, const Weighed& sums, bool is_first) {
  const int head = my.lane() % 4, row = my.lane() / 4;
  const bool is_used = head < HEADS;
  float& kept_largest = my.memory().largest[is_used ? head : 0][my.warp()];
  float& kept_weight = my.memory().weights[is_used ? head : 0][my.warp()];
  float2* to = reinterpret_cast<float2*>(outputs_of(my, my.warp(), is_used ? head : 0)) + row;
  float largest = sums.largest, weight = sums.weights[0] + sums.weights[1], factor = 1.f, before = 0.f;
  if (!is_first) {
    largest = fmaxf(largest, kept_largest);
    factor = ptx::exp2(sums.largest - largest), before = ptx::exp2(kept_largest - largest);
    weight = sum_of_products(weight, factor, kept_weight, before);
    __syncwarp();
  }
#pragma unroll
  for (int at = 0; at < FRAGMENTS; at++) {
    const float* sum = sums.outputs[at];
    float2 output = {sum[0] + sum[1], sum[2] + sum[3]};
    if (!is_first) {
      const float2 kept = to[8 * at];
      output = {sum_of_products(output.x, factor, kept.x, before),
                sum_of_products(output.y, factor, kept.y, before)};
    }
    if (is_used) to[8 * at] = output;
  }
  if (!is_used || row != 0) return;
  kept_largest = largest;
  kept_weight = weight;
}

// A lane's pair and its partner of the newest key, in bf16, as the cache has it.
__device__ __forceinline__ uint2 newest_key(const Consumer& my) {
  const float4 key = reinterpret_cast<const float4*>(my.memory().heads[KEY_HEAD])[my.lane()];
  const float rms = norm_factor(my, KEY_HEAD);
  return {ptx::bf16_pair(key.x * rms, key.y * rms), ptx::bf16_pair(key.z * rms, key.w * rms)};
}

// The newest position's scores.
__device__ __forceinline__ void score_newest(Consumer& my) {
  static_assert(ROTATED == 32, "a lane a pair and its partner");
  const uint2 key = newest_key(my);
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const float4 query = reinterpret_cast<const float4*>(my.memory().heads[head])[my.lane()];
    float sum = sum_of_products(query.x, bf16_low(key.x), query.y, bf16_high(key.x)) +
                sum_of_products(query.z, bf16_low(key.y), query.w, bf16_high(key.y));
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (my.lane() != 0) continue;
    my.memory().largest[head][NEWEST] = sum * score_factor(my, head);
    my.memory().weights[head][NEWEST] = 1.f;
  }
}

// Stages that are waited for at once: keys and values, if the ring has as many.
constexpr bool AT_ONCE = 2 * ROUNDS <= shape::STAGES;
constexpr int WAITS = AT_ONCE ? 2 : 1;

// Attends to this warp's group of a batch, whose stages have been waited for, and releases them.
__device__ __forceinline__ void attend_to_group(Consumer& my, const Share& share, int first, int count, u32 full,
                                                u32 cached) {
  const bool has = has_group(my, share, first, cached);
  Weighed sums;
  uint2 b = {0, 0};
  if (has) {
    uint4 keys[FRAGMENTS];
    take_keys(my, stage_at(my, round_of(my)), keys);
    b = weigh(my, keys, share.position(first + round_of(my), group_of(my) * GROUP), cached, sums.largest);
  }
  if (!AT_ONCE) {
    release_stages(my, count, full);
    full = wait_for_stages(my, count, my.layer, abi::Phase::Attention);
  }
  if (has) {
    sum_values(my, stage_at(my, (AT_ONCE ? count : 0) + round_of(my)), b, sums);
    keep_partial(my, sums, share.splits == 1 || first == 0);
  }
  release_stages(my, WAITS * count, full);
}

// Attends to a share, batch by batch: afterwards the warps' partial results are in shared memory. `ahead` is
// called before the wait for the queries.
template <class Ahead>
__device__ __forceinline__ void attend(Consumer& my, int kv_head, const Share& share, Ahead ahead) {
  // Pinned, or what follows from it would be computed before the first layer and kept in registers.
  const u32 cached = ptx::pinned(my.args.position);
  const int rounds = share.rounds(cached);
  int count = min(ROUNDS, rounds);
  u32 full = 0;
  const auto take_first = [&] {
    ahead();
    if (rounds > 0) full = wait_for_stages(my, WAITS * count, my.layer, abi::Phase::Attention);
  };
  // The queries of a kernel of one phase are there before its keys.
  if (!BY_PHASE) take_first();
  const Gathered mine(my);
  const uint2 weights = norm_weights(my, !mine.is_query(), mine.pair);
  xray::note(my.log, abi::Moment::AskedHeads, my.layer);
  inject_delay(my.args, my.layer, abi::Phase::Qkv);
  gather_heads(my, kv_head, weights);
  if (BY_PHASE) take_first();
  xray::note(my.log, abi::Moment::Arrived);
  my.sync();
  xray::note(my.log, abi::Moment::Passed);
  if (my.warp() == NEWEST_WARP && share.has_newest(cached)) score_newest(my);
#pragma unroll 1
  for (int first = 0; first < rounds;) {
    attend_to_group(my, share, first, count, full, cached);
    first += ROUNDS;
    if (share.splits == 1 || first >= rounds) break;
    count = min(ROUNDS, rounds - first);
    full = wait_for_stages(my, WAITS * count, my.layer, abi::Phase::Attention);
  }
  xray::note(my.log, abi::Moment::Arrived);
  my.sync();
  xray::note(my.log, abi::Moment::Passed);
}

// Puts a position's key, of which this lane has a pair and its partner, into its group.
__device__ __forceinline__ void put_key(u8* group, u32 position, int pair, uint2 words) {
  const u32 row = position % GROUP, within = pair % 8;
  u8* fragment = group + pair / 8 * 2 * abi::FRAGMENT_BYTES_BF16;
  u32* to = reinterpret_cast<u32*>(fragment + (4 * (row % 8) + within % 4) * 16) + row / 8 + 2 * (within / 4);
  to[0] = words.x;
  to[abi::FRAGMENT_BYTES_BF16 / 4] = words.y;
}

// A position's value likewise: a pair.
__device__ __forceinline__ void put_value(u8* group, u32 position, int pair, u32 word) {
  const u32 column = position % GROUP, row = pair % 8;
  u8* fragment = group + pair / 8 * abi::FRAGMENT_BYTES_BF16;
  u16* to = reinterpret_cast<u16*>(fragment + (4 * row + column % 8 / 2) * 16 + column / 8 * 8) + column % 2;
  to[0] = u16(word);
  to[2] = u16(word >> 16);
}

// Writes the newest position to the cache: two warps, once the block's other warps have what they wait for.
__device__ __forceinline__ void write_newest(const Consumer& my, int kv_head) {
  const u32 position = my.args.position;
  const u64 group = u64(position / GROUP) * GROUP_BYTES;
  if (my.warp() == NEWEST_WARP) {
    put_key(cache_of(my.args, my.layer, 0, kv_head) + group, position, my.lane(), newest_key(my));
  }
  if (my.warp() == NEWEST_WARP - 1) {
    const float4 value = reinterpret_cast<const float4*>(my.memory().heads[VALUE_HEAD])[my.lane()];
    u8* values = cache_of(my.args, my.layer, 1, kv_head) + group;
    put_value(values, position, my.lane(), ptx::bf16_pair(value.x, value.y));
    put_value(values, position, my.lane() + ROTATED, ptx::bf16_pair(value.z, value.w));
  }
}

// ---- outputs

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
  return (tile_of(my) + at * shape::ITEM_TILES) * 8 + my.lane() % 8;
}

// The partial results of a block, added up.
struct Outputs {
  float largest, weight;
  float2 pairs[OUTPUTS];
};

// Adds up a block's partial results for this warp's dimensions. Lanes that are 8, 16 or 24 apart have the same
// pairs.
__device__ __forceinline__ Outputs merge(Consumer& my, const Share& share) {
  const u32 cached = ptx::pinned(my.args.position);
  const int lane = my.lane(), head = head_of(my);
  // Groups are those of the first warps; the newest position comes last.
  const bool exists = lane < GROUPS * ROUNDS && share.has_group(lane / GROUPS, lane % GROUPS, cached);
  const int groups = __popc(__ballot_sync(~0u, exists)), results = groups + share.has_newest(cached);
  const int row = lane < groups ? lane : NEWEST;
  Outputs sums;
  const float score = lane < results ? my.memory().largest[head][row] : MINUS_INFINITY;
  const float weight = lane < results ? my.memory().weights[head][row] : 0.f;
  sums.largest = warp_largest(score);
  const float factor = lane < results ? ptx::exp2(score - sums.largest) : 0.f;
  const float weighed = weight * factor;
  sums.weight = 0.f;
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) sums.pairs[at] = {0.f, 0.f};
  // Every fourth result, by the lane / 8.
  const auto add = [&](int turn) {
    const int result = turn * 4 + lane / 8;
    const float mine = __shfl_sync(~0u, factor, result);
    sums.weight += __shfl_sync(~0u, weighed, result);
#pragma unroll
    for (int at = 0; at < OUTPUTS; at++) {
      const int pair = first_pair_of(my) + output_pair(my, at);
      // The newest value has a pair and its partner side by side.
      const float* newest = my.memory().heads[VALUE_HEAD] + pair % ROTATED * 4 + pair / ROTATED * 2;
      const float* from = result < groups ? outputs_of(my, result, head) + 2 * pair : newest;
      const float2 output = *reinterpret_cast<const float2*>(from);
      if (result >= results) continue;
      sums.pairs[at].x = __fmaf_rn(output.x, mine, sums.pairs[at].x);
      sums.pairs[at].y = __fmaf_rn(output.y, mine, sums.pairs[at].y);
    }
  };
  add(0), add(1);
#pragma unroll 1
  for (int turn = 2; turn * 4 < results; turn++) add(turn);
#pragma unroll
  for (int distance = 8; distance < 32; distance *= 2) {
    sums.weight += __shfl_xor_sync(~0u, sums.weight, distance);
#pragma unroll
    for (int at = 0; at < OUTPUTS; at++) {
      sums.pairs[at].x += __shfl_xor_sync(~0u, sums.pairs[at].x, distance);
      sums.pairs[at].y += __shfl_xor_sync(~0u, sums.pairs[at].y, distance);
    }
  }
  return sums;
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
__device__ __forceinline__ void publish_share(Consumer& my, const Item& item, const Outputs& sums) {
  if (my.lane() >= 8 || !has_outputs(my) || has_failed(my.shared)) return;
  const Slot to = partials_of(my.args, my.layer, item.kv_head * HEADS + head_of(my), item.rank);
  // The sums are relative to the score that the reader sees.
  const float largest = __uint_as_float(rounded24(sums.largest) & 0xffffff00u);
  const float factor = ptx::exp2(sums.largest - largest);
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    Handoff::publish(my.args, to, first_pair_of(my) + output_pair(my, at),
                     {sums.pairs[at].x * factor, sums.pairs[at].y * factor});
  }
  if (first_pair_of(my) == 0 && tile_of(my) == 0 && my.lane() == 0) {
    Handoff::publish(my.args, to, HEAD_PAIRS, {largest, sums.weight * factor});
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

// Adds up the warps' sums over the ranks: this warp's slice of the output is its activation.
__device__ __forceinline__ void keep_merged(Consumer& my) {
  static_assert(shape::ITEM_TILES == 4, "four sums");
  const int head = head_of(my);
  const float4 scores = quad_at(my.shared.merged_largest[head]), sums = quad_at(my.shared.merged_weights[head]);
  const float largest = fmaxf(fmaxf(scores.x, scores.y), fmaxf(scores.z, scores.w));
  const float factor[4] = {ptx::exp2(scores.x - largest), ptx::exp2(scores.y - largest),
                           ptx::exp2(scores.z - largest), ptx::exp2(scores.w - largest)};
  const float weights =
      sum_of_products(sums.x, factor[0], sums.y, factor[1]) +
      sum_of_products(sums.z, factor[2], sums.w, factor[3]);
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
  const u32 full = wait_for_stages(my, Output::PIECES, my.layer, abi::Phase::OProj);
  const int tile = tile_of(my);
  const u32 part = stage_at(my, tile / Output::STAGE_PARTS) + tile % Output::STAGE_PARTS * Output::PART_BYTES +
                   my.lane() * 16;
#pragma unroll
  for (int at = 0; at < Output::SLICE_FRAGMENTS; at++) {
    constexpr int STEPS = Output::STEPS / Output::SLICE_FRAGMENTS;
    const int fragment = slice_of(my) * Output::SLICE_FRAGMENTS + at;
    Output::Format::widen(part + fragment * Output::Format::BYTES, a + at * STEPS);
  }
  release_stages(my, Output::PIECES, full);
#pragma unroll
  for (int at = 0; at < Output::STEPS; at++) ptx::pin(a[at]);
}

// Exchanges the outputs among the warps of a slice. Returns where this lane's B operand begins.
__device__ __forceinline__ u32 share_outputs(Consumer& my, const Outputs& sums) {
  u32* words = my.shared.outputs[slice_of(my)];
  const u32 to = activation::pair_address(words, my.lane() % 8) + tile_of(my) * 32;
  const float factor = Output::Format::X_SCALE * ptx::reciprocal(sums.weight);
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    if (my.lane() >= 8 || !has_outputs(my)) continue;
    activation::set(to + at * shape::ITEM_TILES * 32, {sums.pairs[at].x * factor, sums.pairs[at].y * factor});
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
    xray::note(my.log, abi::Moment::Attends, my.layer);
    // Before a second item: slower warps may still read the first one's sums.
    if (index > 0) my.sync();
    const auto ahead = [&] {
      take_output_weights(my, a);
      wait_for_buffer(my, buffer);
    };
    attend(my, item.kv_head, Share{0, 1}, ahead);
    xray::note(my.log, abi::Moment::Entered, xray::matvec(my.layer, O_PROJ_ROW));
    const u32 x = share_outputs(my, merge(my, Share{0, 1}));
    multiply<1, Output::STEPS, Output::CHAINS>(my, x, a, buffer);
    end_round(my, buffer);
    if (item.rank == 0) write_newest(my, item.kv_head);
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
    attend(my, item.kv_head, share, [] {});
    publish_share(my, item, merge(my, share));
    finish_head(my, partials_of(my.args, my.layer, 0, 0), item.kv_head);
    if (share.has_newest(my.args.position)) write_newest(my, item.kv_head);
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
__device__ __forceinline__ void publish_output(Consumer& my, int kv_head, const Outputs& sums) {
  const Slot to = output_of(my, kv_head);
  const float factor = Output::Format::X_SCALE * ptx::reciprocal(sums.weight);
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++) {
    const float2 output = sums.pairs[at];
    if (my.lane() >= 8 || !has_outputs(my) || has_failed(my.shared)) continue;
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
    attend(my, item.kv_head, Share{0, 1}, [] {});
    publish_output(my, item.kv_head, merge(my, Share{0, 1}));
    finish_head(my, output_of(my, 0), item.kv_head);
    write_newest(my, item.kv_head);
    // Until all warps have read what the next item, or the product, puts in its place: a warp may get its slice
    // of the output, for its part of the activation, while others still add up their partial results.
    my.sync();
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
