// Attention and the O projection, in one phase. An item is one KV head and one rank: the blocks of a KV
// head (its ranks) each multiply ITEM_TILES tiles of the O projection by the columns of the head's query
// heads, and publish partial sums, which the next gather adds up over the KV heads.
//
// Up to KV_LOCAL positions every rank attends to all of them: the same sums RANKS times, for one hand-off
// less. Beyond, chunks of positions go to the ranks round-robin as in flash-decoding (split-KV), and
// the ranks exchange their results among themselves.
//
// Attention may also be a phase of its own (ML_ATTENTION): up to KV_LOCAL positions the first rank alone attends
// and hands the output over, in all of its bits. Beyond, the exchange of the ranks' results is that hand-off.
//
// A lane holds the dimensions 2 l, 2 l + 1, 64 + 2 l and 65 + 2 l of a head (l its number): the pairs that
// RoPE rotates, as the units of the exchange hold them. The KV cache keeps a row in that order.
#pragma once
#include "../ptx/approximate.cuh"
#include "../ptx/convert.cuh"
#include "product.cuh"

namespace attention {

constexpr int HEADS = shape::GROUP_HEADS;
// Heads of a warp where every rank attends to all positions: one, if the warps divide among the heads. A warp
// with both heads loads keys and values once, but has twice the instructions.
constexpr int LOCAL_HEADS =
    shape::CONSUMER_WARPS % HEADS == 0 && shape::CONSUMER_WARPS / HEADS % 4 == 0 ? 1 : HEADS;
// Positions whose keys and values a warp loads before the queries arrive: half as many with more heads, for
// want of registers.
template <int H>
constexpr int AHEAD = H < HEADS ? shape::KV_AHEAD : 4;
// Warps that share the positions of `H` heads.
template <int H>
constexpr int WARPS = shape::CONSUMER_WARPS * H / HEADS;
constexpr int HEAD_PAIRS = shape::HEAD_DIM / 2;
constexpr int CHUNK_ROUNDS = shape::KV_CHUNK / shape::CONSUMER_WARPS;
static_assert(CHUNK_ROUNDS == 2, "a warp has two positions of a chunk");

// Positions that are added at a time.
constexpr int TURN = 4;
static_assert(shape::KV_AHEAD % TURN == 0, "whole turns");

constexpr bool APART = ML_ATTENTION == static_cast<u32>(abi::Attention::Apart);

constexpr float MINUS_INFINITY = -__builtin_huge_valf();

struct Item {
  int kv_head, rank;
};

__device__ __forceinline__ Item item_of(int at) {
  return {shape::kv_head_of_item(at, shape::KV_HEADS), shape::rank_of_item(at, shape::KV_HEADS)};
}

// The cached keys (0) or values (1) of a KV head, at this lane's dimensions.
__device__ __forceinline__ uint2* cache_rows(const Consumer& my, u32 layer, int which, int kv_head) {
  const u64 head = (u64(layer) * 2 + which) * shape::KV_HEADS + kv_head;
  return reinterpret_cast<uint2*>(my.args.kv) + head * my.args.context * (shape::HEAD_DIM / 4) + my.lane();
}

__device__ __forceinline__ void unpack(uint2 words, float (&values)[4]) {
  values[0] = bf16_low(words.x);
  values[1] = bf16_high(words.x);
  values[2] = bf16_low(words.y);
  values[3] = bf16_high(words.y);
}

// This warp's positions: of the one of `splits` shares of the KV range, or of all of it.
template <int H>
struct Share {
  int split, splits;

  // A warp's `at`-th position; `warp` counts among those with the same heads.
  __device__ __forceinline__ u32 position(int at, int warp) const {
    if (H < HEADS || splits == 1) return u32(at * WARPS<H> + warp);
    return u32((split + splits * (at / 2)) * shape::KV_CHUNK + at % 2 * shape::CONSUMER_WARPS + warp);
  }

  // How many of the TURN positions from the `first`-th on, which exists, there are.
  __device__ __forceinline__ int existing(int first, int warp, u32 newest) const {
    if (H < HEADS) return min(TURN, int(newest - position(first, warp)) / WARPS<H> + 1);
    int count = 0;
#pragma unroll
    for (int of = 0; of < TURN; of++) count += position(first + of, warp) <= newest;
    return count;
  }

  __device__ __forceinline__ bool has_newest(u32 newest, int warp) const {
    if (newest % WARPS<H> != u32(warp)) return false;
    return splits == 1 || shape::split_of(newest, shape::KV_CHUNK, splits) == u32(split);
  }
};

// By word: a choice between structs becomes one between addresses, which puts them into local memory.
__device__ __forceinline__ uint2 chosen(bool first, uint2 a, uint2 b) {
  return {first ? a.x : b.x, first ? a.y : b.y};
}

// Keys and values of a warp's positions.
template <int H>
struct Loaded {
  uint2 keys[AHEAD<H>], values[AHEAD<H>];
};

// Loads a warp's positions from the `first`-th on; the newest is not in the cache yet.
template <int H>
__device__ __forceinline__ void load_positions(const Consumer& my, u32 layer, int kv_head, Share<H> share,
                                               int first, Loaded<H>& loaded) {
  const uint2* keys = cache_rows(my, layer, 0, kv_head);
  const uint2* values = cache_rows(my, layer, 1, kv_head);
#pragma unroll
  for (int at = 0; at < AHEAD<H>; at++) {
    const u32 position = share.position(first + at, my.warp() % WARPS<H>);
    loaded.keys[at] = loaded.values[at] = {0, 0};
    if (position >= my.args.position) continue;
    loaded.keys[at] = keys[position * (shape::HEAD_DIM / 4)];
    loaded.values[at] = values[position * (shape::HEAD_DIM / 4)];
  }
}

// The constants of a head's norm and rotation, for this lane's dimensions: loaded before the head arrives.
struct HeadConstants {
  // Cosine and sine of the angles of pairs 2 l and 2 l + 1.
  float4 angles;
  // Norm weights, bf16: of the dimensions 2 l and 2 l + 1, and of their partners.
  uint2 query, key;
};

__device__ __forceinline__ HeadConstants head_constants(const Consumer& my, u32 layer) {
  // The layer's norms: before attention, before the MLP, of queries, of keys.
  const u8* norms = my.args.weights + my.args.layer_base + u64(layer) * my.args.layer_stride + my.args.norms;
  const u32* query = reinterpret_cast<const u32*>(norms) + shape::HIDDEN + my.lane();
  const u32* key = query + HEAD_PAIRS;
  const float2* angles = my.args.rope + u64(my.args.position) * HEAD_PAIRS;
  return {reinterpret_cast<const float4*>(angles)[my.lane()], {query[0], query[32]}, {key[0], key[32]}};
}

// RMSNorm of a head, then RoPE, then `scale`.
__device__ __forceinline__ void norm_and_rotate(float (&x)[4], float squares, uint2 weights,
                                                const float4& angles, float eps, float scale) {
  const float rms = ptx::reciprocal_sqrt(squares / shape::HEAD_DIM + eps) * scale;
  const float a = x[0] * rms * bf16_low(weights.x), b = x[1] * rms * bf16_high(weights.x);
  const float c = x[2] * rms * bf16_low(weights.y), d = x[3] * rms * bf16_high(weights.y);
  x[0] = a * angles.x - c * angles.y;
  x[1] = b * angles.z - d * angles.w;
  x[2] = c * angles.x + a * angles.y;
  x[3] = d * angles.z + b * angles.w;
}

// A warp's query heads, and in the warp that has the newest position its key and value.
template <int H>
struct Heads {
  float query[H][4];
  uint2 key, value;
};

// Gathers the heads, norms and rotates them. Every warp does so for itself: no barrier.
template <int H>
__device__ __forceinline__ void gather_heads(Consumer& my, u32 layer, int kv_head, bool has_newest,
                                             const HeadConstants& constants, Heads<H>& heads) {
  xray::note(my.log, abi::Moment::AskedHeads, layer);
  inject_delay(my.args, layer, abi::Phase::Qkv);
  const Slot from = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT).of(kv_head);
  constexpr int N = 2 * H + 4;
  const int first = kv_head * HEADS + my.warp() / WARPS<H> * H;
  const auto used = [&](int at) { return at < 2 * H || has_newest; };
  const auto place = [&](int at) {
    const int which = at / 2 - H;
    const int head = which < 0 ? first + at / 2 : shape::HEADS + which * shape::KV_HEADS + kv_head;
    return QkvSums::place(head * HEAD_PAIRS + at % 2 * 32 + my.lane(), 0);
  };
  u64 units[N];
  gather(my, from, used, place, units);
  xray::note(my.log, abi::Moment::Gathered);
  float x[H + 1][4], squares[H + 1];
#pragma unroll
  for (int head = 0; head <= H; head++) {
    const float2 low = values_of(units[2 * head]), high = values_of(units[2 * head + 1]);
    x[head][0] = low.x, x[head][1] = low.y, x[head][2] = high.x, x[head][3] = high.y;
    squares[head] = low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
#pragma unroll
    for (int head = 0; head <= H; head++) squares[head] += __shfl_xor_sync(~0u, squares[head], lane);
  }
  // Scores are scaled to base 2, for exp2; the other factor is 1 / sqrt(HEAD_DIM), of heads of 128.
  const float scale = ptx::LOG2_E * 0.08838834764831845f;
#pragma unroll
  for (int head = 0; head < H; head++) {
    norm_and_rotate(x[head], squares[head], constants.query, constants.angles, my.args.norm_eps, scale);
#pragma unroll
    for (int at = 0; at < 4; at++) heads.query[head][at] = x[head][at];
  }
  heads.key = heads.value = {0, 0};
  if (!has_newest) return;
  norm_and_rotate(x[H], squares[H], constants.key, constants.angles, my.args.norm_eps, 1.f);
  heads.key = {ptx::bf16_pair(x[H][0], x[H][1]), ptx::bf16_pair(x[H][2], x[H][3])};
  const float2 low = values_of(units[N - 2]), high = values_of(units[N - 1]);
  heads.value = {ptx::bf16_pair(low.x, low.y), ptx::bf16_pair(high.x, high.y)};
}

// A warp's online softmax over its positions, of its query heads.
template <int H>
struct Running {
  float largest[H], weights[H], output[H][4];
};

// Sums `N` values over the warp: a lane gets the sum of one of them. At each of the first steps
// a lane gives away one half of its values and adds the other lane's to the other half: six shuffles for
// four values, not twenty.
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

// Adds TURN positions, those of which that are beyond the newest have no weight. A lane computes the weight
// of one head and position: the heads are the upper bits of its number, the positions the next ones.
template <int H>
__device__ __forceinline__ void take_in(Running<H>& running, const Heads<H>& heads, const uint2* keys,
                                        const uint2* values, int existing, int lane) {
  constexpr int N = padded(H) * TURN, LANES = 32 / N;
  float scores[N] = {};
#pragma unroll
  for (int at = 0; at < TURN; at++) {
    float key[4];
    unpack(keys[at], key);
#pragma unroll
    for (int head = 0; head < H; head++) {
      const float(&q)[4] = heads.query[head];
      scores[head * TURN + at] = (q[0] * key[0] + q[1] * key[1]) + (q[2] * key[2] + q[3] * key[3]);
    }
  }
  float score = scattered_sum<N>(scores, lane);
  if (lane / LANES % TURN >= existing) score = MINUS_INFINITY;
  float most = score;
#pragma unroll
  for (int step = LANES; step < LANES * TURN; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  float largest[H], before = MINUS_INFINITY;
#pragma unroll
  for (int head = 0; head < H; head++) {
    // Pinned, or the compiler makes an index of the lane's number, and local memory of `running`.
    float mine = running.largest[head];
    ptx::pin(mine);
    if (H == 1 || lane / (LANES * TURN) == head) before = mine;
  }
  most = fmaxf(most, before);
  const float weight = ptx::exp2(score - most);
#pragma unroll
  for (int head = 0; head < H; head++) {
    largest[head] = H == 1 ? most : __shfl_sync(~0u, most, head * LANES * TURN);
    const float rescale = ptx::exp2(running.largest[head] - largest[head]);
    running.largest[head] = largest[head];
    running.weights[head] *= rescale;
#pragma unroll
    for (int dim = 0; dim < 4; dim++) running.output[head][dim] *= rescale;
  }
#pragma unroll
  for (int at = 0; at < TURN; at++) {
    float value[4];
    unpack(values[at], value);
#pragma unroll
    for (int head = 0; head < H; head++) {
      const float each = __shfl_sync(~0u, weight, (head * TURN + at) * LANES);
      running.weights[head] += each;
#pragma unroll
      for (int dim = 0; dim < 4; dim++) running.output[head][dim] += each * value[dim];
    }
  }
}

// A warp's sums over its positions, into shared memory.
template <int H>
__device__ __forceinline__ void store_sums(Consumer& my, const Running<H>& running) {
  const int warp = my.warp() % WARPS<H>, first = my.warp() / WARPS<H> * H;
#pragma unroll
  for (int head = 0; head < H; head++) {
    float* row = &my.shared.outputs[warp][(first + head) * shape::HEAD_DIM + 2 * my.lane()];
    *reinterpret_cast<float2*>(row) = {running.output[head][0], running.output[head][1]};
    *reinterpret_cast<float2*>(row + HEAD_PAIRS) = {running.output[head][2], running.output[head][3]};
    if (my.lane() == 0) {
      my.shared.largest[first + head][warp] = running.largest[head];
      my.shared.weights[first + head][warp] = running.weights[head];
    }
  }
}

// The newest position's key and value, in the warp that writes them to the cache.
struct Newest {
  uint2 key, value;
  bool writes;
};

// Once the block's other warps have the sums that they wait for.
__device__ __forceinline__ void write_newest(const Consumer& my, u32 layer, int kv_head, const Newest& newest) {
  if (!newest.writes) return;
  cache_rows(my, layer, 0, kv_head)[my.args.position * (shape::HEAD_DIM / 4)] = newest.key;
  cache_rows(my, layer, 1, kv_head)[my.args.position * (shape::HEAD_DIM / 4)] = newest.value;
}

// A warp attends to its positions of a share, and stores its sums; the block's barrier follows. The first
// positions were loaded before.
template <int H>
__device__ __forceinline__ Newest attend(Consumer& my, u32 layer, Item item, Share<H> share, bool writes,
                                       const HeadConstants& constants, Loaded<H>& loaded) {
  const u32 newest = my.args.position;
  const int warp = my.warp() % WARPS<H>;
  const bool has_newest = share.has_newest(newest, warp);
  Heads<H> heads;
  gather_heads<H>(my, layer, item.kv_head, has_newest, constants, heads);
  Running<H> running;
#pragma unroll
  for (int head = 0; head < H; head++) {
    running.largest[head] = MINUS_INFINITY;
    running.weights[head] = 0.f;
#pragma unroll
    for (int at = 0; at < 4; at++) running.output[head][at] = 0.f;
  }
  int first = 0;
#pragma unroll 1
  while (true) {
    bool done = false;
#pragma unroll
    for (int at = 0; at < AHEAD<H>; at += TURN) {
      done = done || share.position(first + at, warp) > newest;
      if (done) continue;
      const int existing = share.existing(first + at, warp, newest);
#pragma unroll
      for (int of = 0; has_newest && of < TURN; of++) {
        const bool is_newest = share.position(first + at + of, warp) == newest;
        loaded.keys[at + of] = chosen(is_newest, heads.key, loaded.keys[at + of]);
        loaded.values[at + of] = chosen(is_newest, heads.value, loaded.values[at + of]);
      }
      take_in<H>(running, heads, &loaded.keys[at], &loaded.values[at], existing, my.lane());
    }
    first += AHEAD<H>;
    if (done || share.position(first, warp) > newest) break;
    load_positions<H>(my, layer, item.kv_head, share, first, loaded);
  }
  store_sums<H>(my, running);
  return {heads.key, heads.value, has_newest && writes && my.warp() < WARPS<H>};
}

// The sum of `COUNT` partial results of a head for one pair of dimensions.
struct Combined {
  float largest, weights;
  float2 output;
};

// The largest of `COUNT` scores, which lie in shared memory.
template <int COUNT>
__device__ __forceinline__ float largest_of(const float* scores) {
  float largest = MINUS_INFINITY;
#pragma unroll
  for (int at = 0; at < COUNT; at += 4) {
    const float4 quad = *reinterpret_cast<const float4*>(scores + at);
    largest = fmaxf(largest, fmaxf(fmaxf(quad.x, quad.y), fmaxf(quad.z, quad.w)));
  }
  return largest;
}

// Combines a head's results: `outputs` is the first one's at this lane's pair, the others follow a row of
// GROUP_DIM later each. All lanes combine the same head.
template <int COUNT>
__device__ __forceinline__ Combined combine(Consumer& my, const float* outputs, const float* scores,
                                            const float* weights, bool published) {
  Combined all = {largest_of<COUNT>(scores), 0.f, {0.f, 0.f}};
  // As it is published, so that the weights are relative to the score that the reader sees.
  if (published) all.largest = __uint_as_float(rounded24(all.largest) & 0xffffff00u);
  // A lane computes one factor, and the warp reads all of them.
  float* factors = reinterpret_cast<float*>(my.shared.x[my.warp()]);
  __syncwarp();
  if (my.lane() < COUNT) factors[my.lane()] = ptx::exp2(scores[my.lane()] - all.largest);
  __syncwarp();
#pragma unroll
  for (int at = 0; at < COUNT; at += 4) {
    const float4 factor = *reinterpret_cast<const float4*>(factors + at);
    const float4 weight = *reinterpret_cast<const float4*>(weights + at);
    const float each[4] = {factor.x, factor.y, factor.z, factor.w};
    all.weights += (weight.x * factor.x + weight.y * factor.y) + (weight.z * factor.z + weight.w * factor.w);
#pragma unroll
    for (int of = 0; of < 4; of++) {
      const float2 mine = *reinterpret_cast<const float2*>(outputs + (at + of) * shape::GROUP_DIM);
      all.output.x += mine.x * each[of];
      all.output.y += mine.y * each[of];
    }
  }
  __syncwarp();
  return all;
}

// The partial result of one query head and rank: the head's pairs, then the largest score and the sum of
// weights.
__device__ __forceinline__ Slot partials_of(const abi::StepArgs& args, u32 layer, int head, int rank) {
  u64* units = args.slots + shape::PARTIALS_BASE + u64(layer) * shape::LAYER_PARTIALS +
               u64(head * shape::SPLITS + rank) * shape::PARTIAL_LINE;
  return {units, layer, abi::Phase::Attention};
}

// The output of a KV head's query heads, where attention is a phase of its own: a unit a value.
__device__ __forceinline__ Slot output_of(const abi::StepArgs& args, u32 layer, int kv_head) {
  u64* units = args.slots + shape::OUTPUTS_BASE + u64(layer) * shape::LAYER_OUTPUTS +
               u64(kv_head) * shape::OUTPUT_LINE;
  return {units, layer, abi::Phase::Attention};
}

using Output = OutputWork;
static_assert(Output::SLICES == ATTENTION_WARPS, "the warps that publish");

// This warp's slice of the group's dimensions, and its head.
__device__ __forceinline__ int slice_of(const Consumer& my) { return my.warp() % Output::SLICES; }
__device__ __forceinline__ int pair_of(const Consumer& my, int at) {
  return slice_of(my) * (Output::SLICE_COLUMNS / 2) + at * 32 + my.lane();
}

// Publishes this block's share: a warp a slice.
__device__ __forceinline__ void publish_share(Consumer& my, u32 layer, Item item) {
  if (my.warp() >= Output::SLICES) return;
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int pair = pair_of(my, at), head = pair / HEAD_PAIRS;
    const Combined all =
        combine<shape::CONSUMER_WARPS>(my, &my.shared.outputs[0][2 * pair], my.shared.largest[head],
                                       my.shared.weights[head], true);
    if (has_failed(my.shared)) continue;
    const Slot to = partials_of(my.args, layer, item.kv_head * HEADS + head, item.rank);
    Handoff::publish(my.args, to, pair % HEAD_PAIRS, all.output);
    if (pair % HEAD_PAIRS == 0) Handoff::publish(my.args, to, HEAD_PAIRS, {all.largest, all.weights});
  }
  Handoff::finish_pieces(my.args, my.shared, partials_of(my.args, layer, 0, 0), item.kv_head, item.kv_head + 1);
}

// Gathers the ranks' partial results: a warp takes its slice of every ITEM_TILES-th rank, and stores their
// sum for the other warps of the slice.
__device__ __forceinline__ void gather_shares(Consumer& my, u32 layer, Item item, int splits) {
  xray::note(my.log, abi::Moment::AskedPartials, layer);
  inject_delay(my.args, layer, abi::Phase::Attention);
  const int group = my.warp() / Output::SLICES;
  constexpr int RANKS = ceiling(shape::SPLITS, shape::ITEM_TILES);
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int pair = pair_of(my, at), head = pair / HEAD_PAIRS;
    const Slot first = partials_of(my.args, layer, item.kv_head * HEADS + head, 0);
    const Slot from = first.of(item.kv_head, splits);
    const auto rank = [&](int of) { return group + of / 2 * shape::ITEM_TILES; };
    const auto used = [&](int of) { return rank(of) < splits; };
    const auto place = [&](int of) {
      return rank(of) * shape::PARTIAL_LINE + (of % 2 == 0 ? pair % HEAD_PAIRS : HEAD_PAIRS);
    };
    u64 units[2 * RANKS];
    gather(my, from, used, place, units);
    Combined all = {MINUS_INFINITY, 0.f, {0.f, 0.f}};
#pragma unroll
    for (int of = 0; of < RANKS; of++) {
      if (used(2 * of)) all.largest = fmaxf(all.largest, values_of(units[2 * of + 1]).x);
    }
#pragma unroll
    for (int of = 0; of < RANKS; of++) {
      if (!used(2 * of)) continue;
      const float2 output = values_of(units[2 * of]), scale = values_of(units[2 * of + 1]);
      const float factor = ptx::exp2(scale.x - all.largest);
      all.weights += scale.y * factor;
      all.output.x += output.x * factor;
      all.output.y += output.y * factor;
    }
    *reinterpret_cast<float2*>(&my.shared.merged[group][2 * pair]) = all.output;
    if (my.lane() == 0) {
      my.shared.merged_largest[head][group] = all.largest;
      my.shared.merged_weights[head][group] = all.weights;
    }
  }
  xray::note(my.log, abi::Moment::Gathered);
}

// The warp's slice of the attention's output, scaled as the product needs it.
__device__ __forceinline__ void combine_output(Consumer& my, bool is_local,
                                               float2 (&values)[Output::LANE_PAIRS]) {
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int pair = pair_of(my, at), head = pair / HEAD_PAIRS;
    const Combined all =
        is_local ? combine<WARPS<LOCAL_HEADS>>(my, &my.shared.outputs[0][2 * pair], my.shared.largest[head],
                                               my.shared.weights[head], false)
                 : combine<shape::ITEM_TILES>(my, &my.shared.merged[0][2 * pair], my.shared.merged_largest[head],
                                              my.shared.merged_weights[head], false);
    const float factor = Output::Format::X_SCALE * ptx::reciprocal(all.weights);
    values[at] = {all.output.x * factor, all.output.y * factor};
  }
}

// Makes it the warp's activation.
__device__ __forceinline__ void set_output(Consumer& my, const float2 (&values)[Output::LANE_PAIRS]) {
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int mine = at * 32 + my.lane();
    if (mine < Output::SLICE_COLUMNS / 2) activation::set(my.x_pair() + at * 32 * 4, values[at]);
  }
  __syncwarp();
}

__device__ __forceinline__ void keep_output(Consumer& my, bool is_local) {
  float2 values[Output::LANE_PAIRS];
  combine_output(my, is_local, values);
  set_output(my, values);
}

// Publishes the output of a KV head: a warp a slice.
__device__ __forceinline__ void publish_output(Consumer& my, u32 layer, int kv_head) {
  if (my.warp() >= Output::SLICES) return;
  const Slot to = output_of(my.args, layer, kv_head);
  float2 values[Output::LANE_PAIRS];
  combine_output(my, true, values);
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    if (at * 32 + my.lane() >= Output::SLICE_COLUMNS / 2 || has_failed(my.shared)) continue;
    Handoff::publish_exact(my.args, to, 2 * pair_of(my, at), values[at].x);
    Handoff::publish_exact(my.args, to, 2 * pair_of(my, at) + 1, values[at].y);
  }
  Handoff::finish_pieces(my.args, my.shared, to, kv_head, kv_head + 1);
}

// Gathers the warp's slice of a KV head's output, as its activation.
__device__ __forceinline__ void gather_output(Consumer& my, u32 layer, int kv_head) {
  xray::note(my.log, abi::Moment::AskedPartials, layer);
  inject_delay(my.args, layer, abi::Phase::Attention);
  const Slot from = output_of(my.args, layer, kv_head).of(kv_head);
  const auto used = [&](int of) { return of / 2 * 32 + my.lane() < Output::SLICE_COLUMNS / 2; };
  const auto place = [&](int of) { return 2 * pair_of(my, of / 2) + of % 2; };
  u64 units[2 * Output::LANE_PAIRS];
  gather(my, from, used, place, units);
  xray::note(my.log, abi::Moment::Gathered);
  float2 values[Output::LANE_PAIRS];
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    values[at] = {exact_value_of(units[2 * at]), exact_value_of(units[2 * at + 1])};
  }
  set_output(my, values);
}

// Takes an item's weights: this warp's tile and slice.
__device__ __forceinline__ void take_output_weights(Consumer& my, u32 layer, uint4 (&a)[Output::STEPS]) {
  const int tile = my.warp() / Output::SLICES;
  xray::note(my.log, abi::Moment::Entered, xray::matvec(layer, O_PROJ_ROW));
  wait_for_stages<Output::PIECES>(my, layer, abi::Phase::OProj);
  const u8* part = stage_at(my, tile / Output::STAGE_PARTS) + tile % Output::STAGE_PARTS * Output::PART_BYTES;
#pragma unroll
  for (int at = 0; at < Output::SLICE_FRAGMENTS; at++) {
    constexpr int STEPS = Output::STEPS / Output::SLICE_FRAGMENTS;
    const int fragment = slice_of(my) * Output::SLICE_FRAGMENTS + at;
    Output::Format::widen(part + fragment * Output::Format::BYTES, a + at * STEPS);
  }
  release_stages<Output::PIECES>(my);
#pragma unroll
  for (int at = 0; at < Output::STEPS; at++) ptx::pin(a[at]);
}

// All warps' sums are in shared memory: a barrier in two halves.
__device__ __forceinline__ void arrive_attended(Consumer& my) {
  __syncwarp();
  if (my.lane() == 0) ptx::mbarrier_arrive(my.shared.attended);
}

// Every warp arrives for every item of every layer, whatever has failed, so this wait ends.
__device__ __forceinline__ void wait_for_attended(Consumer& my, int item, int items) {
  const u32 before = BY_PHASE ? 0 : my.layer * u32(items);
  const u32 parity = (before + u32(item)) % 2;
  while (!ptx::mbarrier_try_wait(my.shared.attended, parity)) {}
}

// This block's `index`-th item. Read again where it is needed: registers are short.
__device__ __forceinline__ Item item_at(const Consumer& my, int index) {
  return item_of(my.shared.shares[O_PROJ_SHARE].x + index);
}

__device__ __forceinline__ int items_of(const Consumer& my) {
  const int2 items = my.shared.shares[O_PROJ_SHARE];
  return items.y - items.x;
}

// The ranks' shares of a long text, published to the ranks of their KV head.
__device__ __forceinline__ void exchange_shares(Consumer& my, int splits) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    if (item.rank >= splits) continue;
    xray::note(my.log, abi::Moment::Attends, my.layer);
    const HeadConstants constants = head_constants(my, my.layer);
    Loaded<HEADS> loaded;
    load_positions<HEADS>(my, my.layer, item.kv_head, {item.rank, splits}, 0, loaded);
    // Here, since a warp that is behind may still read the sums of the layer before.
    wait_for_buffer(my, my.round % 2);
    if (index > 0) my.sync();
    const Newest newest = attend<HEADS>(my, my.layer, item, {item.rank, splits}, true, constants, loaded);
    xray::note(my.log, abi::Moment::Arrived);
    my.sync();
    xray::note(my.log, abi::Moment::Passed);
    publish_share(my, my.layer, item);
    write_newest(my, my.layer, item.kv_head, newest);
  }
  const Slot to = partials_of(my.args, my.layer, 0, 0);
  if (my.warp() < Output::SLICES) Handoff::finish_phase(my.args, my.shared, to);
}

// Attention as a phase of its own, up to KV_LOCAL positions: the first ranks attend and publish.
__device__ __forceinline__ void attend_apart(Consumer& my) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    // Items are in order of their ranks.
    if (item.rank > 0) break;
    xray::note(my.log, abi::Moment::Attends, my.layer);
    const HeadConstants constants = head_constants(my, my.layer);
    Loaded<LOCAL_HEADS> loaded;
    load_positions<LOCAL_HEADS>(my, my.layer, item.kv_head, {0, 1}, 0, loaded);
    // As in exchange_shares.
    wait_for_buffer(my, my.round % 2);
    if (index > 0) my.sync();
    const Newest newest = attend<LOCAL_HEADS>(my, my.layer, item, {0, 1}, true, constants, loaded);
    xray::note(my.log, abi::Moment::Arrived);
    my.sync();
    xray::note(my.log, abi::Moment::Passed);
    publish_output(my, my.layer, item.kv_head);
    write_newest(my, my.layer, item.kv_head, newest);
  }
  if (my.warp() < Output::SLICES) Handoff::finish_phase(my.args, my.shared, output_of(my.args, my.layer, 0));
}

// The O projection of an output that other blocks have handed over.
__device__ __forceinline__ void project_output(Consumer& my) {
#pragma unroll 1
  for (int index = 0; index < items_of(my); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    uint4 a[Output::STEPS];
    const int buffer = my.round % 2;
    take_output_weights(my, my.layer, a);
    wait_for_buffer(my, buffer);
    gather_output(my, my.layer, item.kv_head);
    multiply<1, Output::STEPS, Output::CHAINS>(my, a, buffer);
    end_round(my, buffer);
  }
}

__device__ __forceinline__ int splits_of(const Consumer& my) {
  return shape::active_splits(my.args.position + 1, shape::KV_CHUNK, shape::SPLITS, shape::KV_LOCAL);
}

// Attention and the O projection, or what of them comes before attention's hand-off, if there is one between
// them (ATTENDS), or after it (PROJECTS).
template <bool ATTENDS, bool PROJECTS>
__device__ __forceinline__ void attend_and_project(Consumer& my) {
  const int splits = splits_of(my);
  const bool is_local = splits == 1;
  if (ATTENDS && !is_local) exchange_shares(my, splits);
  if (APART && is_local) {
    if (ATTENDS) attend_apart(my);
    if (PROJECTS) project_output(my);
    return;
  }
#pragma unroll 1
  for (int index = 0; index < (PROJECTS ? items_of(my) : 0); index++) {
    my.begin_phase(abi::Phase::OProj);
    const Item item = item_at(my, index);
    uint4 a[Output::STEPS];
    const int buffer = my.round % 2;
    Newest newest = {{0, 0}, {0, 0}, false};
    // Before a second item: slower warps may still read the first one's sums.
    if (index > 0) my.sync();
    if (is_local) {
      xray::note(my.log, abi::Moment::Attends, my.layer);
      const HeadConstants constants = head_constants(my, my.layer);
      Loaded<LOCAL_HEADS> loaded;
      load_positions<LOCAL_HEADS>(my, my.layer, item.kv_head, {0, 1}, 0, loaded);
      wait_for_buffer(my, buffer);
      newest = attend<LOCAL_HEADS>(my, my.layer, item, {0, 1}, item.rank == 0, constants, loaded);
    } else {
      wait_for_buffer(my, buffer);
      gather_shares(my, my.layer, item, splits);
    }
    // Between arrival and wait, since attention would spill with these 16 registers more.
    arrive_attended(my);
    xray::note(my.log, abi::Moment::Arrived);
    write_newest(my, my.layer, item.kv_head, newest);
    take_output_weights(my, my.layer, a);
    wait_for_attended(my, index, items_of(my));
    xray::note(my.log, abi::Moment::Passed);
    keep_output(my, is_local);
    multiply<1, Output::STEPS, Output::CHAINS>(my, a, buffer);
    end_round(my, buffer);
  }
}

}  // namespace attention
