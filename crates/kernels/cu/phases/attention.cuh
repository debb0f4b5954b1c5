// QK-norm, RoPE, the KV write and attention, split over the KV cache as in flash-decoding
// (split-KV). Chunks of positions go to the splits round-robin. A block takes one split of one KV
// head with all query heads of that KV head, so that keys and values are read once. If several
// splits have positions, one block per query head combines (reduces) their partial results.
#pragma once
#include "../ptx/convert.cuh"
#include "../roles/consumer.cuh"
#include "work.cuh"

namespace attention {

// Positions whose keys and values a warp loads before it uses the first.
constexpr int AHEAD = shape::KV_AHEAD;
// To combine splits, a thread takes a pair of dimensions, and a group of threads takes every
// GROUPS-th split.
constexpr int HEAD_PAIRS = shape::HEAD_DIM / 2;
constexpr int GROUPS = shape::CONSUMERS / HEAD_PAIRS;
static_assert(GROUPS >= 1 && GROUPS <= shape::CONSUMER_WARPS, "a group's results fit");

// Warps that share the positions of one query head.
constexpr int HEAD_WARPS = shape::CONSUMER_WARPS / shape::GROUP_HEADS;
static_assert(HEAD_WARPS >= 1, "a warp a query head");

constexpr float MINUS_INFINITY = -__builtin_huge_valf();

struct Unit {
  int kv_head, split;
};

// The cached keys (0) or values (1) of a KV head.
__device__ __forceinline__ u16* cache_rows(const abi::StepArgs& args, u32 layer, int which,
                                           int kv_head) {
  const u64 head = (u64(layer) * 2 + which) * shape::KV_HEADS + kv_head;
  return args.kv + head * args.context * shape::HEAD_DIM;
}

__device__ __forceinline__ bool owns_newest(const abi::StepArgs& args, int split) {
  return int(shape::split_of(args.position, shape::KV_CHUNK, shape::KV_SPLITS)) == split;
}

// Gathers the group's query heads and, in the split of the newest position, its key and value.
__device__ __forceinline__ void gather_heads(Consumer& my, u32 layer, Unit unit) {
  xray::note(my.log, abi::Moment::AskedHeads, layer);
  inject_delay(my.args, layer, abi::Phase::Qkv);
  const Slot from = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT);
  const int heads = shape::GROUP_HEADS + (owns_newest(my.args, unit.split) ? 2 : 0);
  constexpr int PAIRS_EACH = ceiling(shape::ATTENTION_ROWS * HEAD_PAIRS, shape::CONSUMERS);
  const auto at_of = [&](int pair) { return my.thread() + pair * shape::CONSUMERS; };
  const auto used = [&](int pair) { return at_of(pair) < heads * HEAD_PAIRS; };
  const auto head_of = [&](int pair) { return at_of(pair) / HEAD_PAIRS; };
  const auto place = [&](int pair) {
    const int which = head_of(pair) - shape::GROUP_HEADS;
    const int query = unit.kv_head * shape::GROUP_HEADS + head_of(pair);
    const int head = which < 0 ? query : shape::HEADS + which * shape::KV_HEADS + unit.kv_head;
    return output_place<abi::Phase::Qkv>(head * HEAD_PAIRS + at_of(pair) % HEAD_PAIRS);
  };
  u64 units[PAIRS_EACH];
  if (my.ok && !Handoff::poll(my.args, my.log, from, used, place, units)) my.fail();
#pragma unroll
  for (int pair = 0; pair < PAIRS_EACH; pair++) {
    float* to = &my.shared.heads[0][0] + 2 * at_of(pair);
    if (used(pair)) *reinterpret_cast<float2*>(to) = values_of(units[pair]);
  }
  my.sync();
  xray::note(my.log, abi::Moment::Gathered);
}

constexpr int HALF = shape::HEAD_DIM / 2;

// The constants of a head's norm and rotation, for this lane's four elements.
struct HeadConstants {
  float2 angles[2];
  // For the element in the first half of the head, and for its partner.
  u32 weights[2];
};

// Loaded before the head arrives, since these loads depend on nothing.
__device__ __forceinline__ HeadConstants head_constants(const Consumer& my, u32 layer) {
  // The layer's norms: before attention, before the MLP, of queries, of keys.
  const u8* norms =
      my.args.weights + my.args.layer_base + u64(layer) * my.args.layer_stride + my.args.norms;
  const bool is_query = my.warp() < shape::GROUP_HEADS;
  const int skip = 2 * shape::HIDDEN + (is_query ? 0 : shape::HEAD_DIM);
  const u16* weight = reinterpret_cast<const u16*>(norms) + skip;
  HeadConstants constants;
#pragma unroll
  for (int at = 0; at < 2; at++) {
    const int pair = my.lane() + 32 * at;
    constants.angles[at] = my.args.rope[u64(my.args.position) * HALF + pair];
    constants.weights[at] = weight[pair] | u32(weight[pair + HALF]) << 16;
  }
  return constants;
}

// One warp computes the RMSNorm of one head, then RoPE, then `scale`: elements lane, lane + 32, and
// their partners half a head later.
__device__ __forceinline__ void norm_and_rotate(Consumer& my, float* head,
                                                const HeadConstants& constants, float scale) {
  float first[2], second[2], squares = 0.f;
#pragma unroll
  for (int at = 0; at < 2; at++) {
    first[at] = head[my.lane() + 32 * at];
    second[at] = head[my.lane() + 32 * at + HALF];
    squares += first[at] * first[at] + second[at] * second[at];
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) squares += __shfl_xor_sync(~0u, squares, lane);
  const float rms = 1.f / sqrtf(squares / shape::HEAD_DIM + my.args.norm_eps);
#pragma unroll
  for (int at = 0; at < 2; at++) {
    const int pair = my.lane() + 32 * at;
    const float2 angle = constants.angles[at];
    const float a = first[at] * rms * bf16_low(constants.weights[at]);
    const float b = second[at] * rms * bf16_high(constants.weights[at]);
    head[pair] = (a * angle.x - b * angle.y) * scale;
    head[pair + HALF] = (b * angle.x + a * angle.y) * scale;
  }
}

// Writes one head, rounded to bf16, to the newest position of the cache and to shared memory.
__device__ __forceinline__ void store_head(Consumer& my, const float* head, u16* rows, uint2* keep) {
  __syncwarp();
  const int column = 4 * my.lane();
  uint2 words = {ptx::bf16_pair(head[column], head[column + 1]),
                 ptx::bf16_pair(head[column + 2], head[column + 3])};
  *reinterpret_cast<uint2*>(rows + u64(my.args.position) * shape::HEAD_DIM + column) = words;
  keep[my.lane()] = words;
}

__device__ __forceinline__ void prepare_heads(Consumer& my, u32 layer,
                                              const HeadConstants& constants, Unit unit) {
  // Scores are scaled to base 2, for exp2.
  constexpr float LOG2_E = 1.4426950408889634f;
  const float scale = LOG2_E / sqrtf(float(shape::HEAD_DIM));
  const int warp = my.warp();
  if (warp < shape::GROUP_HEADS) {
    norm_and_rotate(my, my.shared.heads[warp], constants, scale);
  } else if (owns_newest(my.args, unit.split) && warp == shape::GROUP_HEADS) {
    norm_and_rotate(my, my.shared.heads[warp], constants, 1.f);
    store_head(my, my.shared.heads[warp], cache_rows(my.args, layer, 0, unit.kv_head),
               my.shared.newest[0]);
  } else if (owns_newest(my.args, unit.split) && warp == shape::GROUP_HEADS + 1) {
    store_head(my, my.shared.heads[warp], cache_rows(my.args, layer, 1, unit.kv_head),
               my.shared.newest[1]);
  }
  my.sync();
}

// A warp's online softmax over its positions, for its query head: a lane holds 4 dimensions.
struct Running {
  float largest = MINUS_INFINITY, weights = 0.f;
  float output[4] = {0.f, 0.f, 0.f, 0.f};
};

__device__ __forceinline__ void unpack(uint2 words, float (&values)[4]) {
  values[0] = bf16_low(words.x);
  values[1] = bf16_high(words.x);
  values[2] = bf16_low(words.y);
  values[3] = bf16_high(words.y);
}

// Keys and values of a warp's next positions.
struct Loaded {
  uint2 keys[AHEAD], values[AHEAD];
  int valid;
};

// Loads positions from `first` on that are before `end`; the other slots are zero. When this is
// called ahead of its phase, the newest position is not in the cache yet: see take_newest.
__device__ __forceinline__ Loaded load_positions(const Consumer& my, const u16* key_rows,
                                                 const u16* value_rows, u32 first, u32 end) {
  Loaded loaded;
  loaded.valid = 0;
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    const u32 position = first + at * HEAD_WARPS;
    loaded.keys[at] = loaded.values[at] = {0, 0};
    if (position >= end) continue;
    loaded.valid++;
    if (position == my.args.position) continue;
    const u64 row = u64(position) * shape::HEAD_DIM;
    loaded.keys[at] = *reinterpret_cast<const uint2*>(key_rows + row);
    loaded.values[at] = *reinterpret_cast<const uint2*>(value_rows + row);
  }
  return loaded;
}

// Takes the newest position's key and value from this block's shared memory, but only into a slot
// that holds one of the walk's positions. Only the block that owns the newest position writes
// `newest`; in another block a slot after the walk's last position can have the same number. The
// unwritten memory there may hold a NaN of an earlier launch, and a weight of zero does not remove
// a NaN (take_in).
__device__ __forceinline__ void take_newest(const Consumer& my, Loaded& loaded, u32 first) {
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    if (at >= loaded.valid || first + at * HEAD_WARPS != my.args.position) continue;
    loaded.keys[at] = my.shared.newest[0][my.lane()];
    loaded.values[at] = my.shared.newest[1][my.lane()];
  }
}

// Adds `AHEAD` positions to the online softmax, with one rescaling for all of them. A slot without
// a position has the score minus infinity and so the weight zero, and its value is zero.
__device__ __forceinline__ void take_in(Running& running, const float4& q, const Loaded& loaded) {
  float scores[AHEAD], largest = running.largest;
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    float key[4];
    unpack(loaded.keys[at], key);
    scores[at] = q.x * key[0] + q.y * key[1] + q.z * key[2] + q.w * key[3];
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
#pragma unroll
    for (int at = 0; at < AHEAD; at++) scores[at] += __shfl_xor_sync(~0u, scores[at], lane);
  }
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    if (at >= loaded.valid) scores[at] = MINUS_INFINITY;
    largest = fmaxf(largest, scores[at]);
  }
  const float rescale = exp2f(running.largest - largest);
  running.largest = largest;
  running.weights *= rescale;
#pragma unroll
  for (int dim = 0; dim < 4; dim++) running.output[dim] *= rescale;
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    const float weight = exp2f(scores[at] - largest);
    float value[4];
    unpack(loaded.values[at], value);
    running.weights += weight;
#pragma unroll
    for (int dim = 0; dim < 4; dim++) running.output[dim] += weight * value[dim];
  }
}

// A warp's walk through every HEAD_WARPS-th position of each chunk of a split. Warps are assigned
// to the group's query heads round-robin.
struct Walk {
  const u16 *key_rows, *value_rows;
  u32 chunk, first, end, positions;

  __device__ __forceinline__ Walk(const Consumer& my, u32 layer, Unit unit)
      : key_rows(cache_rows(my.args, layer, 0, unit.kv_head) + 4 * my.lane()),
        value_rows(cache_rows(my.args, layer, 1, unit.kv_head) + 4 * my.lane()),
        chunk(unit.split * shape::KV_CHUNK),
        positions(my.args.position + 1) {
    enter_chunk(my);
  }

  __device__ __forceinline__ void enter_chunk(const Consumer& my) {
    first = chunk + my.warp() / shape::GROUP_HEADS;
    end = min(positions, chunk + shape::KV_CHUNK);
  }

  __device__ __forceinline__ void advance(const Consumer& my) {
    first += AHEAD * HEAD_WARPS;
    if (first < end) return;
    chunk += shape::KV_SPLITS * shape::KV_CHUNK;
    enter_chunk(my);
  }

  __device__ __forceinline__ bool done() const { return chunk >= positions; }

  __device__ __forceinline__ Loaded load(const Consumer& my) const {
    return load_positions(my, key_rows, value_rows, first, end);
  }
};

// Attends to a walk's positions. The first ones were loaded before the queries arrived.
__device__ __forceinline__ void attend(Consumer& my, Walk walk, Loaded loaded, Running& running) {
  if (my.warp() >= HEAD_WARPS * shape::GROUP_HEADS) return;
  const float* head = my.shared.heads[my.warp() % shape::GROUP_HEADS];
  const float4 q = *reinterpret_cast<const float4*>(&head[4 * my.lane()]);
#pragma unroll 1
  while (true) {
    if (loaded.valid > 0) {
      take_newest(my, loaded, walk.first);
      take_in(running, q, loaded);
    }
    walk.advance(my);
    if (walk.done()) return;
    loaded = walk.load(my);
  }
}

// The partial result of one query head and split: the head's pairs, then the largest score and the sum
// of weights.
__device__ __forceinline__ Slot partials_of(const abi::StepArgs& args, u32 layer, int head, int split) {
  u64* units = args.slots + shape::PARTIALS_BASE + u64(layer) * shape::LAYER_PARTIALS +
               u64(head * shape::KV_SPLITS + split) * shape::PARTIAL_LINE;
  return {units, layer, abi::Phase::Attention};
}

// Adds up each head's warps, in order, and publishes the sum: the output itself where there is only one
// split, a partial result elsewhere. A thread has a pair of dimensions.
__device__ __forceinline__ void publish_unit(Consumer& my, u32 layer, Unit unit, int splits,
                                             const Running& running) {
  auto& sums = my.shared.outputs;
  *reinterpret_cast<float4*>(&sums[my.warp()][4 * my.lane()]) = make_float4(
      running.output[0], running.output[1], running.output[2], running.output[3]);
  if (my.lane() == 0) {
    my.shared.warp_largest[my.warp()] = running.largest;
    my.shared.warp_weights[my.warp()] = running.weights;
  }
  my.sync();
  const bool failed = *static_cast<volatile u32*>(&my.shared.failed[0]) != 0;
#pragma unroll 1
  for (int at = my.thread(); at < shape::GROUP_HEADS * HEAD_PAIRS; at += shape::CONSUMERS) {
    const int head = at / HEAD_PAIRS, pair = at % HEAD_PAIRS;
    float largest = MINUS_INFINITY, weights = 0.f;
    float2 output = {0.f, 0.f};
#pragma unroll
    for (int warp = 0; warp < HEAD_WARPS; warp++) {
      largest = fmaxf(largest, my.shared.warp_largest[warp * shape::GROUP_HEADS + head]);
    }
    // As it is published, so that the weights are relative to the score that the reader sees.
    if (splits > 1) largest = __uint_as_float(rounded24(largest) & 0xffffff00u);
#pragma unroll
    for (int warp = 0; warp < HEAD_WARPS; warp++) {
      const int from = warp * shape::GROUP_HEADS + head;
      const float factor = exp2f(my.shared.warp_largest[from] - largest);
      const float2 mine = *reinterpret_cast<const float2*>(&sums[from][2 * pair]);
      weights += my.shared.warp_weights[from] * factor;
      output.x += mine.x * factor;
      output.y += mine.y * factor;
    }
    if (failed) continue;
    const int query = unit.kv_head * shape::GROUP_HEADS + head;
    if (splits == 1) {
      const Slot to = slot_of(my.args, layer, abi::Phase::Attention, shape::ATTENTION_SLOT);
      Handoff::publish(my.args, to, query * HEAD_PAIRS + pair, {output.x / weights, output.y / weights});
    } else {
      const Slot to = partials_of(my.args, layer, query, unit.split);
      Handoff::publish(my.args, to, pair, output);
      if (pair == 0) Handoff::publish(my.args, to, HEAD_PAIRS, {largest, weights});
    }
  }
}

// (largest score, sum of weights, output) of some positions, for two dimensions.
struct Partial {
  float largest = MINUS_INFINITY, weights = 0.f;
  float2 output = {0.f, 0.f};

  __device__ __forceinline__ void add(float other_largest, float other_weights,
                                      float2 other_output) {
    const float both = fmaxf(largest, other_largest);
    // Both sides are empty: minus infinity minus itself would be NaN.
    const float mine = largest == both ? 1.f : exp2f(largest - both);
    const float theirs = other_largest == both ? 1.f : exp2f(other_largest - both);
    largest = both;
    weights = weights * mine + other_weights * theirs;
    output.x = output.x * mine + other_output.x * theirs;
    output.y = output.y * mine + other_output.y * theirs;
  }
};

// Combines the splits of one query head: each group of threads reduces its own splits, and the first
// group then reduces the groups, in order.
__device__ __forceinline__ void combine(Consumer& my, u32 layer, int head, int splits) {
  xray::note(my.log, abi::Moment::AskedPartials, layer);
  inject_delay(my.args, layer, abi::Phase::Attention);
  // Where this block had positions of its own, slower warps may still read their sums.
  my.sync();
  const int group = my.thread() / HEAD_PAIRS, pair = my.thread() % HEAD_PAIRS;
  Partial mine;
#pragma unroll 1
  for (int split = group; split < splits; split += GROUPS) {
    const Slot from = partials_of(my.args, layer, head, split);
    u64 units[2] = {0, 0};
    const auto used = [](int) { return true; };
    const auto place = [&](int at) { return at == 0 ? pair : HEAD_PAIRS; };
    if (my.ok && !Handoff::poll(my.args, my.log, from, used, place, units)) my.fail();
    const float2 output = values_of(units[0]), scale = values_of(units[1]);
    mine.add(scale.x, scale.y, output);
  }
  *reinterpret_cast<float2*>(&my.shared.outputs[group][2 * pair]) = mine.output;
  if (pair == 0) {
    my.shared.warp_largest[group] = mine.largest;
    my.shared.warp_weights[group] = mine.weights;
  }
  my.sync();
  xray::note(my.log, abi::Moment::Gathered);
  if (group == 0) {
#pragma unroll 1
    for (int other = 1; other < GROUPS; other++) {
      mine.add(my.shared.warp_largest[other], my.shared.warp_weights[other],
               *reinterpret_cast<const float2*>(&my.shared.outputs[other][2 * pair]));
    }
    if (*static_cast<volatile u32*>(&my.shared.failed[0]) != 0) return;
    const Slot to = slot_of(my.args, layer, abi::Phase::Attention, shape::ATTENTION_SLOT);
    Handoff::publish(my.args, to, head * HEAD_PAIRS + pair,
                     {mine.output.x / mine.weights, mine.output.y / mine.weights});
  }
}

__device__ __forceinline__ void run(Consumer& my, u32 layer) {
  const int splits =
      shape::active_splits(my.args.position + 1, shape::KV_CHUNK, shape::KV_SPLITS);
#pragma unroll 1
  for (int at = blockIdx.x; at < shape::KV_HEADS * splits; at += gridDim.x) {
    const Unit unit = {shape::kv_head_of(at, shape::KV_HEADS),
                       shape::split_of_unit(at, shape::KV_HEADS)};
    // Before a second unit: slower warps may still read the first one's sums.
    if (at != int(blockIdx.x)) my.sync();
    xray::note(my.log, abi::Moment::Entered, layer);
    const HeadConstants constants = head_constants(my, layer);
    const Walk walk(my, layer, unit);
    const Loaded loaded = walk.load(my);
    gather_heads(my, layer, unit);
    prepare_heads(my, layer, constants, unit);
    Running running;
    attend(my, walk, loaded, running);
    publish_unit(my, layer, unit, splits, running);
  }
  if (splits == 1) return;
#pragma unroll 1
  for (int head = shape::first_combined(blockIdx.x, gridDim.x); head < shape::HEADS; head += gridDim.x) {
    combine(my, layer, head, splits);
  }
}

}  // namespace attention
