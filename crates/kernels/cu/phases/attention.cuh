// QK-norm, RoPE, the KV write and attention. Positions are dealt to splits in chunks; a block
// takes one KV head and one split, all its query heads at once, so that keys and values are read
// once. Where several splits have positions, a block a query head combines them.
#pragma once
#include "../gather.cuh"
#include "projections.cuh"

namespace attention {

// Positions whose keys and values a warp loads before it uses the first.
constexpr int AHEAD = ML_KV_AHEAD;
// Splits that one group of 128 threads combines.
constexpr int GROUPS = shape::CONSUMERS / shape::HEAD_DIM;
constexpr int SPLITS_EACH = (shape::KV_SPLITS + GROUPS - 1) / GROUPS;
static_assert(GROUPS >= 1 && GROUPS <= shape::CONSUMER_WARPS, "a group's results fit");

constexpr float MINUS_INFINITY = -__builtin_huge_valf();

// Splits that have any of the first `positions` positions: they are the first ones.
__device__ __forceinline__ int active_splits(u32 positions) {
  const u32 chunks = (positions + shape::KV_CHUNK - 1) / shape::KV_CHUNK;
  return int(chunks < shape::KV_SPLITS ? chunks : shape::KV_SPLITS);
}

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
  return int(args.position / shape::KV_CHUNK % shape::KV_SPLITS) == split;
}

// Gathers the group's query heads and, for the newest position's split, its key and value.
__device__ __forceinline__ bool gather_heads(Consumer& my, u32 layer, Unit unit) {
  maybe_delay(my.args, layer, abi::Phase::Qkv);
  const Slot from = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT);
  const int heads = shape::GROUP_HEADS + (owns_newest(my.args, unit.split) ? 2 : 0);
  constexpr int PAIRS = shape::HEAD_DIM / 2;
  for (int at = my.thread(); at < heads * PAIRS; at += shape::CONSUMERS) {
    const int head = at / PAIRS, column = at % PAIRS * 2;
    int row = (unit.kv_head * shape::GROUP_HEADS + head) * shape::HEAD_DIM;
    if (head >= shape::GROUP_HEADS) {
      const int which = head - shape::GROUP_HEADS;
      row = shape::Q_DIM + which * shape::KV_DIM + unit.kv_head * shape::HEAD_DIM;
    }
    float2 values;
    my.fine = take_pair(my.args, from, row + column, values) && my.fine;
    *reinterpret_cast<float2*>(&my.shared.heads[head][column]) = values;
  }
  return my.sync();
}

constexpr int HALF = shape::HEAD_DIM / 2;

// What a head's norm and rotation take besides the head, for this lane's four elements.
struct HeadConstants {
  float2 angles[2];
  float first_weights[2], second_weights[2];
};

// Loaded before the head is there: a trip to memory that nothing need wait for.
__device__ __forceinline__ HeadConstants head_constants(const Consumer& my,
                                                        const LayerWeights& weights) {
  const bool is_query = my.warp() < shape::GROUP_HEADS;
  const u16* weight = reinterpret_cast<const u16*>(is_query ? weights.q_norm : weights.k_norm);
  HeadConstants constants;
#pragma unroll
  for (int at = 0; at < 2; at++) {
    const int pair = my.lane() + 32 * at;
    constants.angles[at] = my.args.rope[u64(my.args.position) * HALF + pair];
    constants.first_weights[at] = bf16_low(weight[pair]);
    constants.second_weights[at] = bf16_low(weight[pair + HALF]);
  }
  return constants;
}

// RMSNorm of one head by one warp, then RoPE, then `scale`: elements lane, lane + 32, and their
// partners half a head further on.
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
    const float a = first[at] * rms * constants.first_weights[at];
    const float b = second[at] * rms * constants.second_weights[at];
    head[pair] = (a * angle.x - b * angle.y) * scale;
    head[pair + HALF] = (b * angle.x + a * angle.y) * scale;
  }
}

// Writes one head to the newest position of the cache, rounded to bf16, and keeps it here.
__device__ __forceinline__ void store_head(Consumer& my, const float* head, u16* rows, uint2* keep) {
  __syncwarp();
  const int column = 4 * my.lane();
  uint2 words = {ptx::bf16_pair(head[column], head[column + 1]),
                 ptx::bf16_pair(head[column + 2], head[column + 3])};
  *reinterpret_cast<uint2*>(rows + u64(my.args.position) * shape::HEAD_DIM + column) = words;
  keep[my.lane()] = words;
}

__device__ __forceinline__ bool prepare_heads(Consumer& my, u32 layer,
                                              const HeadConstants& constants, Unit unit) {
  // Scores are in powers of two, so that exp2 serves.
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
  return my.sync();
}

// What a warp knows of its positions, by query head: a lane holds 4 dimensions of the output.
struct Running {
  float largest[shape::GROUP_HEADS];
  float weights[shape::GROUP_HEADS];
  float output[shape::GROUP_HEADS][4];
};

__device__ __forceinline__ void unpack(uint2 words, float (&values)[4]) {
  values[0] = bf16_low(words.x);
  values[1] = bf16_high(words.x);
  values[2] = bf16_low(words.y);
  values[3] = bf16_high(words.y);
}

// Keys and values of a warp's next positions, every 16th one.
struct Loaded {
  uint2 keys[AHEAD], values[AHEAD];
  int valid;
};

// Loads positions from `first` on, as far as they lie before `end`. The newest is not in the
// cache yet when this is called ahead of its phase: see take_newest.
__device__ __forceinline__ Loaded load_positions(const Consumer& my, const u16* key_rows,
                                                 const u16* value_rows, u32 first, u32 end) {
  Loaded loaded;
  loaded.valid = 0;
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    const u32 position = first + at * shape::CONSUMER_WARPS;
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

// The newest position's key and value, from where the block itself has put them.
__device__ __forceinline__ void take_newest(const Consumer& my, Loaded& loaded, u32 first) {
#pragma unroll
  for (int at = 0; at < AHEAD; at++) {
    if (first + at * shape::CONSUMER_WARPS != my.args.position) continue;
    loaded.keys[at] = my.shared.newest[0][my.lane()];
    loaded.values[at] = my.shared.newest[1][my.lane()];
  }
}

// Takes `AHEAD` positions in: one rescaling for all of them.
__device__ __forceinline__ void take_in(Running& running, const float (&q)[shape::GROUP_HEADS][4],
                                        const Loaded& loaded) {
#pragma unroll
  for (int head = 0; head < shape::GROUP_HEADS; head++) {
    float scores[AHEAD], largest = running.largest[head];
#pragma unroll
    for (int at = 0; at < AHEAD; at++) {
      float key[4];
      unpack(loaded.keys[at], key);
      float score = q[head][0] * key[0] + q[head][1] * key[1] + q[head][2] * key[2] +
                    q[head][3] * key[3];
#pragma unroll
      for (int lane = 16; lane > 0; lane /= 2) score += __shfl_xor_sync(~0u, score, lane);
      scores[at] = at < loaded.valid ? score : MINUS_INFINITY;
      largest = fmaxf(largest, scores[at]);
    }
    const float rescale = exp2f(running.largest[head] - largest);
    running.largest[head] = largest;
    running.weights[head] *= rescale;
#pragma unroll
    for (int dim = 0; dim < 4; dim++) running.output[head][dim] *= rescale;
#pragma unroll
    for (int at = 0; at < AHEAD; at++) {
      const float weight = exp2f(scores[at] - largest);
      float value[4];
      unpack(loaded.values[at], value);
      running.weights[head] += weight;
#pragma unroll
      for (int dim = 0; dim < 4; dim++) running.output[head][dim] += weight * value[dim];
    }
  }
}

// A warp's walk through the positions of a split: every 16th of each of its chunks.
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
    first = chunk + my.warp();
    end = min(positions, chunk + shape::KV_CHUNK);
  }

  __device__ __forceinline__ void advance(const Consumer& my) {
    first += AHEAD * shape::CONSUMER_WARPS;
    if (first < end) return;
    chunk += shape::KV_SPLITS * shape::KV_CHUNK;
    enter_chunk(my);
  }

  __device__ __forceinline__ bool done() const { return chunk >= positions; }

  __device__ __forceinline__ Loaded load(const Consumer& my) const {
    return load_positions(my, key_rows, value_rows, first, end);
  }
};

// Attends to a walk's positions, the first of which were loaded before the queries were there.
__device__ __forceinline__ void attend(Consumer& my, Walk walk, Loaded loaded, Running& running) {
  float q[shape::GROUP_HEADS][4];
#pragma unroll
  for (int head = 0; head < shape::GROUP_HEADS; head++) {
    running.largest[head] = MINUS_INFINITY;
    running.weights[head] = 0.f;
#pragma unroll
    for (int dim = 0; dim < 4; dim++) {
      q[head][dim] = my.shared.heads[head][4 * my.lane() + dim];
      running.output[head][dim] = 0.f;
    }
  }
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

__device__ __forceinline__ Slot partials_of(const abi::StepArgs& args, u32 layer, int head,
                                            int split) {
  u64* units = args.slots + shape::PARTIALS_BASE + u64(layer) * shape::LAYER_PARTIALS +
               u64(head * shape::KV_SPLITS + split) * shape::PARTIAL_UNITS;
  return {units, layer, abi::Phase::Attention};
}

// Adds the warps up, in order, and posts: the output itself where there is but one split.
__device__ __forceinline__ bool post_unit(Consumer& my, u32 layer, Unit unit, int splits,
                                          const Running& running) {
#pragma unroll
  for (int head = 0; head < shape::GROUP_HEADS; head++) {
    auto& sums = my.shared.sums[head % 2];
    *reinterpret_cast<float4*>(&sums[my.warp()][4 * my.lane()]) =
        make_float4(running.output[head][0], running.output[head][1], running.output[head][2],
                    running.output[head][3]);
    if (my.lane() == 0) {
      my.shared.warp_largest[head][my.warp()] = running.largest[head];
      my.shared.warp_weights[head][my.warp()] = running.weights[head];
    }
    if (!my.sync()) return false;
    const int dim = my.thread();
    if (dim >= shape::HEAD_DIM) continue;
    float largest = MINUS_INFINITY, weights = 0.f, output = 0.f;
    for (int warp = 0; warp < shape::CONSUMER_WARPS; warp++) {
      largest = fmaxf(largest, my.shared.warp_largest[head][warp]);
    }
    for (int warp = 0; warp < shape::CONSUMER_WARPS; warp++) {
      const float factor = exp2f(my.shared.warp_largest[head][warp] - largest);
      weights += my.shared.warp_weights[head][warp] * factor;
      output += sums[warp][dim] * factor;
    }
    const int query = unit.kv_head * shape::GROUP_HEADS + head;
    if (splits == 1) {
      const Slot to = slot_of(my.args, layer, abi::Phase::Attention, shape::ATTENTION_SLOT);
      post(my.args, to, query * shape::HEAD_DIM + dim, output / weights);
    } else {
      const Slot to = partials_of(my.args, layer, query, unit.split);
      post(my.args, to, dim, output);
      if (dim == 0) post(my.args, to, shape::HEAD_DIM, largest);
      if (dim == 1) post(my.args, to, shape::HEAD_DIM + 1, weights);
    }
  }
  return true;
}

// (largest score, sum of weights, output) of some positions, for one dimension.
struct Partial {
  float largest = MINUS_INFINITY, weights = 0.f, output = 0.f;

  __device__ __forceinline__ void add(float other_largest, float other_weights, float other_output) {
    const float both = fmaxf(largest, other_largest);
    // Nothing yet on either side: minus infinity minus itself is no number.
    const float mine = largest == both ? 1.f : exp2f(largest - both);
    const float theirs = other_largest == both ? 1.f : exp2f(other_largest - both);
    largest = both;
    weights = weights * mine + other_weights * theirs;
    output = output * mine + other_output * theirs;
  }
};

// Combines the splits of one query head: groups of 128 threads take every fourth split, and the
// first group adds the groups up, in order.
__device__ __forceinline__ bool combine(Consumer& my, u32 layer, int head, int splits) {
  maybe_delay(my.args, layer, abi::Phase::Attention);
  // A block that had positions of its own: their sums may still be read.
  if (!my.sync()) return false;
  const int group = my.thread() / shape::HEAD_DIM, dim = my.thread() % shape::HEAD_DIM;
  Partial mine;
  if (group < GROUPS) {
#pragma unroll
    for (int at = 0; at < SPLITS_EACH; at++) {
      const int split = group + at * GROUPS;
      if (split >= splits) continue;
      const Slot from = partials_of(my.args, layer, head, split);
      float output;
      float2 scale;
      my.fine = take(my.args, from, dim, output) && my.fine;
      my.fine = take_pair(my.args, from, shape::HEAD_DIM, scale) && my.fine;
      mine.add(scale.x, scale.y, output);
    }
    my.shared.sums[0][group][dim] = mine.output;
    if (dim == 0) {
      my.shared.warp_largest[0][group] = mine.largest;
      my.shared.warp_weights[0][group] = mine.weights;
    }
  }
  if (!my.sync()) return false;
  if (group == 0) {
    for (int other = 1; other < GROUPS; other++) {
      mine.add(my.shared.warp_largest[0][other], my.shared.warp_weights[0][other],
               my.shared.sums[0][other][dim]);
    }
    const Slot to = slot_of(my.args, layer, abi::Phase::Attention, shape::ATTENTION_SLOT);
    post(my.args, to, head * shape::HEAD_DIM + dim, mine.output / mine.weights);
  }
  return true;
}

__device__ __forceinline__ bool run(Consumer& my, u32 layer, const LayerWeights& weights) {
  const int splits = active_splits(my.args.position + 1);
  for (int at = blockIdx.x; at < shape::KV_HEADS * splits; at += gridDim.x) {
    const Unit unit = {at % shape::KV_HEADS, at / shape::KV_HEADS};
    // A block with a second unit: the first one's sums may still be read.
    if (at != int(blockIdx.x) && !my.sync()) return false;
    const HeadConstants constants = head_constants(my, weights);
    const Walk walk(my, layer, unit);
    const Loaded loaded = walk.load(my);
    if (!gather_heads(my, layer, unit)) return false;
    if (!prepare_heads(my, layer, constants, unit)) return false;
    Running running;
    attend(my, walk, loaded, running);
    if (!post_unit(my, layer, unit, splits, running)) return false;
  }
  if (splits == 1) return true;
  // From the last block backwards: the blocks that have no positions until the context is long.
  for (int head = gridDim.x - 1 - blockIdx.x; head < shape::HEADS; head += gridDim.x) {
    if (!combine(my, layer, head, splits)) return false;
  }
  return true;
}

}  // namespace attention
