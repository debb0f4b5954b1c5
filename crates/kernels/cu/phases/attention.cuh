// Attention and the O projection, in one phase. An item is one KV head and one rank: the blocks of a KV
// head (its ranks) each multiply ITEM_TILES tiles of the O projection by the columns of the head's query
// heads, and publish partial sums, which the next gather adds up over the KV heads.
//
// Up to KV_LOCAL positions every rank attends to all of them: the same sums RANKS times, for one hand-off
// less. Beyond, chunks of positions go to the ranks round-robin as in flash-decoding (split-KV), and
// the ranks exchange their results among themselves.
//
// A lane holds the dimensions 2 l, 2 l + 1, 64 + 2 l and 65 + 2 l of a head (l its number): the pairs that
// RoPE rotates, as the units of the exchange hold them. The KV cache keeps a row in that order.
#pragma once
#include "../ptx/convert.cuh"
#include "product.cuh"

namespace attention {

// Positions whose keys and values a warp loads before the queries arrive, in pairs of one chunk.
constexpr int AHEAD = shape::KV_AHEAD;
static_assert(AHEAD % 2 == 0, "pairs");
constexpr int HEADS = shape::GROUP_HEADS;
constexpr int HEAD_PAIRS = shape::HEAD_DIM / 2;
constexpr int CHUNK_ROUNDS = shape::KV_CHUNK / shape::CONSUMER_WARPS;
static_assert(CHUNK_ROUNDS == 2, "a warp has two positions of a chunk");

constexpr float MINUS_INFINITY = -__builtin_huge_valf();

struct Item {
  int kv_head, rank;
};

__device__ __forceinline__ Item item_of(int at) { return {at % shape::KV_HEADS, at / shape::KV_HEADS}; }

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

// The positions of one of `splits` shares of the KV range, and this warp's among them.
struct Share {
  int split, splits;

  // A warp's `at`-th position.
  __device__ __forceinline__ u32 position(int at, int warp) const {
    return u32((split + splits * (at / 2)) * shape::KV_CHUNK + at % 2 * shape::CONSUMER_WARPS + warp);
  }
};

// Keys and values of a warp's positions.
struct Loaded {
  uint2 keys[AHEAD], values[AHEAD];
};

// Loads a warp's positions from the `first`-th on; the newest is not in the cache yet.
__device__ __forceinline__ void load_positions(const Consumer& my, u32 layer, int kv_head, Share share, int first,
                                               Loaded& loaded) {
  const uint2* keys = cache_rows(my, layer, 0, kv_head);
  const uint2* values = cache_rows(my, layer, 1, kv_head);
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    const u32 position = share.position(first + at, my.warp());
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
__device__ __forceinline__ void norm_and_rotate(float (&x)[4], float squares, uint2 weights, const float4& angles,
                                                float eps, float scale) {
  const float rms = rsqrtf(squares / shape::HEAD_DIM + eps) * scale;
  const float a = x[0] * rms * bf16_low(weights.x), b = x[1] * rms * bf16_high(weights.x);
  const float c = x[2] * rms * bf16_low(weights.y), d = x[3] * rms * bf16_high(weights.y);
  x[0] = a * angles.x - c * angles.y;
  x[1] = b * angles.z - d * angles.w;
  x[2] = c * angles.x + a * angles.y;
  x[3] = d * angles.z + b * angles.w;
}

// The group's query heads, and in the warp that has the newest position its key and value.
struct Heads {
  float query[HEADS][4];
  uint2 key, value;
};

// Gathers the heads, norms and rotates them. Every warp does so for itself: no barrier.
__device__ __forceinline__ void gather_heads(Consumer& my, u32 layer, int kv_head, bool has_newest,
                                             const HeadConstants& constants, Heads& heads) {
  xray::note(my.log, abi::Moment::AskedHeads, layer);
  inject_delay(my.args, layer, abi::Phase::Qkv);
  const Slot from = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT);
  constexpr int N = 2 * HEADS + 4;
  const auto used = [&](int at) { return at < 2 * HEADS || has_newest; };
  const auto place = [&](int at) {
    const int which = at / 2 - HEADS;
    const int head = which < 0 ? kv_head * HEADS + at / 2 : shape::HEADS + which * shape::KV_HEADS + kv_head;
    return QkvSums::place(head * HEAD_PAIRS + at % 2 * 32 + my.lane(), 0);
  };
  u64 units[N];
  if (!Handoff::poll(my.args, my.log, my.ok, from, used, place, units)) my.fail();
  xray::note(my.log, abi::Moment::Gathered);
  float x[HEADS + 1][4], squares[HEADS + 1];
#pragma unroll
  for (int head = 0; head <= HEADS; head++) {
    const float2 low = values_of(units[2 * head]), high = values_of(units[2 * head + 1]);
    x[head][0] = low.x, x[head][1] = low.y, x[head][2] = high.x, x[head][3] = high.y;
    squares[head] = low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
#pragma unroll
    for (int head = 0; head <= HEADS; head++) squares[head] += __shfl_xor_sync(~0u, squares[head], lane);
  }
  // Scores are scaled to base 2, for exp2.
  constexpr float LOG2_E = 1.4426950408889634f;
  const float scale = LOG2_E * rsqrtf(float(shape::HEAD_DIM));
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    norm_and_rotate(x[head], squares[head], constants.query, constants.angles, my.args.norm_eps, scale);
#pragma unroll
    for (int at = 0; at < 4; at++) heads.query[head][at] = x[head][at];
  }
  norm_and_rotate(x[HEADS], squares[HEADS], constants.key, constants.angles, my.args.norm_eps, 1.f);
  heads.key = {ptx::bf16_pair(x[HEADS][0], x[HEADS][1]), ptx::bf16_pair(x[HEADS][2], x[HEADS][3])};
  const float2 low = values_of(units[N - 2]), high = values_of(units[N - 1]);
  heads.value = {ptx::bf16_pair(low.x, low.y), ptx::bf16_pair(high.x, high.y)};
}

// A warp's online softmax over its positions, of every query head of the group.
struct Running {
  float largest[HEADS], weights[HEADS], output[HEADS][4];
};

// Adds two positions, the first of which exists.
__device__ __forceinline__ void take_in(Running& running, const Heads& heads, const uint2 (&keys)[2],
                                        const uint2 (&values)[2], bool second) {
  float scores[2][HEADS];
#pragma unroll
  for (int at = 0; at < 2; at++) {
    float key[4];
    unpack(keys[at], key);
#pragma unroll
    for (int head = 0; head < HEADS; head++) {
      const float(&q)[4] = heads.query[head];
      scores[at][head] = q[0] * key[0] + q[1] * key[1] + q[2] * key[2] + q[3] * key[3];
    }
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
#pragma unroll
    for (int at = 0; at < 2 * HEADS; at++) {
      scores[at / HEADS][at % HEADS] += __shfl_xor_sync(~0u, scores[at / HEADS][at % HEADS], lane);
    }
  }
  float value[2][4];
  unpack(values[0], value[0]);
  unpack(values[1], value[1]);
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    if (!second) scores[1][head] = MINUS_INFINITY;
    const float largest = fmaxf(running.largest[head], fmaxf(scores[0][head], scores[1][head]));
    const float rescale = exp2f(running.largest[head] - largest);
    const float first_weight = exp2f(scores[0][head] - largest), second_weight = exp2f(scores[1][head] - largest);
    running.largest[head] = largest;
    running.weights[head] = running.weights[head] * rescale + first_weight + second_weight;
#pragma unroll
    for (int at = 0; at < 4; at++) {
      running.output[head][at] =
          running.output[head][at] * rescale + first_weight * value[0][at] + second_weight * value[1][at];
    }
  }
}

// A warp's sums over its positions, into shared memory.
__device__ __forceinline__ void store_sums(Consumer& my, const Running& running) {
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    float* row = &my.shared.outputs[my.warp()][head * shape::HEAD_DIM + 2 * my.lane()];
    *reinterpret_cast<float2*>(row) = {running.output[head][0], running.output[head][1]};
    *reinterpret_cast<float2*>(row + HEAD_PAIRS) = {running.output[head][2], running.output[head][3]};
    if (my.lane() == 0) {
      my.shared.largest[head][my.warp()] = running.largest[head];
      my.shared.weights[head][my.warp()] = running.weights[head];
    }
  }
}

// A warp attends to its positions of a share, and stores its sums; the block's barrier follows. The first
// positions were loaded before.
__device__ __forceinline__ void attend(Consumer& my, u32 layer, Item item, Share share, bool writes,
                                       const HeadConstants& constants, Loaded& loaded) {
  const u32 newest = my.args.position;
  const bool has_newest = newest % shape::CONSUMER_WARPS == u32(my.warp()) &&
                          newest / shape::KV_CHUNK % share.splits == u32(share.split);
  Heads heads;
  gather_heads(my, layer, item.kv_head, has_newest, constants, heads);
  if (has_newest && writes) {
    cache_rows(my, layer, 0, item.kv_head)[newest * (shape::HEAD_DIM / 4)] = heads.key;
    cache_rows(my, layer, 1, item.kv_head)[newest * (shape::HEAD_DIM / 4)] = heads.value;
  }
  Running running;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
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
    for (int at = 0; at < AHEAD; at += 2) {
      const u32 position = share.position(first + at, my.warp()), next = position + shape::CONSUMER_WARPS;
      done = done || position > newest;
      if (done) continue;
      uint2 keys[2] = {loaded.keys[at], loaded.keys[at + 1]}, values[2] = {loaded.values[at], loaded.values[at + 1]};
      if (position == newest) keys[0] = heads.key, values[0] = heads.value;
      if (next == newest) keys[1] = heads.key, values[1] = heads.value;
      take_in(running, heads, keys, values, next <= newest);
    }
    first += AHEAD;
    if (done || share.position(first, my.warp()) > newest) break;
    load_positions(my, layer, item.kv_head, share, first, loaded);
  }
  store_sums(my, running);
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
  if (my.lane() < COUNT) factors[my.lane()] = exp2f(scores[my.lane()] - all.largest);
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

using Output = OutputWork;

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
    const Combined all = combine<shape::CONSUMER_WARPS>(my, &my.shared.outputs[0][2 * pair], my.shared.largest[head],
                                                        my.shared.weights[head], true);
    if (*static_cast<volatile u32*>(&my.shared.failed[0]) != 0) continue;
    const Slot to = partials_of(my.args, layer, item.kv_head * HEADS + head, item.rank);
    Handoff::publish(my.args, to, pair % HEAD_PAIRS, all.output);
    if (pair % HEAD_PAIRS == 0) Handoff::publish(my.args, to, HEAD_PAIRS, {all.largest, all.weights});
  }
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
    const Slot from = partials_of(my.args, layer, item.kv_head * HEADS + head, 0);
    const auto rank = [&](int of) { return group + of / 2 * shape::ITEM_TILES; };
    const auto used = [&](int of) { return rank(of) < splits; };
    const auto place = [&](int of) {
      return rank(of) * shape::PARTIAL_LINE + (of % 2 == 0 ? pair % HEAD_PAIRS : HEAD_PAIRS);
    };
    u64 units[2 * RANKS];
    if (!Handoff::poll(my.args, my.log, my.ok, from, used, place, units)) my.fail();
    Combined all = {MINUS_INFINITY, 0.f, {0.f, 0.f}};
#pragma unroll
    for (int of = 0; of < RANKS; of++) {
      if (used(2 * of)) all.largest = fmaxf(all.largest, values_of(units[2 * of + 1]).x);
    }
#pragma unroll
    for (int of = 0; of < RANKS; of++) {
      if (!used(2 * of)) continue;
      const float2 output = values_of(units[2 * of]), scale = values_of(units[2 * of + 1]);
      const float factor = exp2f(scale.x - all.largest);
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

// The warp's slice of the attention's output, as its activation.
__device__ __forceinline__ void keep_output(Consumer& my, bool is_local) {
  float2 values[Output::LANE_PAIRS];
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int pair = pair_of(my, at), head = pair / HEAD_PAIRS;
    const Combined all =
        is_local ? combine<shape::CONSUMER_WARPS>(my, &my.shared.outputs[0][2 * pair], my.shared.largest[head],
                                                  my.shared.weights[head], false)
                 : combine<shape::ITEM_TILES>(my, &my.shared.merged[0][2 * pair], my.shared.merged_largest[head],
                                              my.shared.merged_weights[head], false);
    const float factor = __fdividef(Output::Format::X_SCALE, all.weights);
    values[at] = {all.output.x * factor, all.output.y * factor};
  }
#pragma unroll
  for (int at = 0; at < Output::LANE_PAIRS; at++) {
    const int mine = at * 32 + my.lane();
    if (mine < Output::SLICE_COLUMNS / 2) activation::set(my.x_pair + at * 32 * 4, values[at]);
  }
  __syncwarp();
}

// Takes an item's weights: this warp's tile and slice.
__device__ __forceinline__ void take_output_weights(Consumer& my, u32 layer, uint4 (&a)[Output::STEPS]) {
  const int tile = my.warp() / Output::SLICES;
  xray::note(my.log, abi::Moment::Entered, xray::matvec(layer, abi::Phase::OProj));
  wait_for_stages<Output::PIECES>(my, layer, abi::Phase::OProj);
  const u8* part = stage_at(my, tile / Output::STAGE_PARTS) + tile % Output::STAGE_PARTS * Output::PART_BYTES;
#pragma unroll
  for (int at = 0; at < Output::SLICE_FRAGMENTS; at++) {
    const int fragment = slice_of(my) * Output::SLICE_FRAGMENTS + at;
    Output::Format::widen(part + fragment * Output::Format::BYTES, a + at * (Output::STEPS / Output::SLICE_FRAGMENTS));
  }
  release_stages<Output::PIECES>(my);
#pragma unroll
  for (int at = 0; at < Output::STEPS; at++) ptx::pin(a[at]);
}

// The ranks' shares of a long text, published to the ranks of their KV head.
__device__ __forceinline__ void exchange_shares(Consumer& my, const int2& items, int splits) {
#pragma unroll 1
  for (int at = items.x; at < items.y; at++) {
    my.begin_phase(abi::Phase::OProj);
    const u32 layer = my.layer;
    const Item item = item_of(at);
    if (item.rank >= splits) continue;
    xray::note(my.log, abi::Moment::Attends, layer);
    const HeadConstants constants = head_constants(my, layer);
    Loaded loaded;
    load_positions(my, layer, item.kv_head, {item.rank, splits}, 0, loaded);
    // Here, since a warp that is behind may still read the sums of the layer before.
    wait_for_buffer(my, my.round % 2);
    if (at > items.x) my.sync();
    attend(my, layer, item, {item.rank, splits}, true, constants, loaded);
    xray::note(my.log, abi::Moment::Arrived);
    my.sync();
    xray::note(my.log, abi::Moment::Passed);
    publish_share(my, layer, item);
  }
}

__device__ __forceinline__ void attend_and_project(Consumer& my) {
  const int2 items = my.shared.shares[O_PROJ_SHARE];
  const int splits = shape::active_splits(my.args.position + 1, shape::KV_CHUNK, shape::SPLITS, shape::KV_LOCAL);
  const bool is_local = splits == 1;
  if (!is_local) exchange_shares(my, items, splits);
#pragma unroll 1
  for (int at = items.x; at < items.y; at++) {
    my.begin_phase(abi::Phase::OProj);
    const u32 layer = my.layer;
    const Item item = item_of(at);
    uint4 a[Output::STEPS];
    const int buffer = my.round % 2;
    if (is_local) {
      xray::note(my.log, abi::Moment::Attends, layer);
      const HeadConstants constants = head_constants(my, layer);
      Loaded loaded;
      load_positions(my, layer, item.kv_head, {0, 1}, 0, loaded);
      wait_for_buffer(my, buffer);
      // Before a second item: slower warps may still read the first one's sums.
      if (at > items.x) my.sync();
      attend(my, layer, item, {0, 1}, item.rank == 0, constants, loaded);
      // Not before: with these 16 registers more, attention spills.
      take_output_weights(my, layer, a);
    } else {
      take_output_weights(my, layer, a);
      wait_for_buffer(my, buffer);
      if (at > items.x) my.sync();
      gather_shares(my, layer, item, splits);
    }
    xray::note(my.log, abi::Moment::Arrived);
    my.sync();
    xray::note(my.log, abi::Moment::Passed);
    keep_output(my, is_local);
    multiply<1, Output::STEPS>(my, a, buffer);
    end_round(my, buffer);
  }
}

}  // namespace attention
