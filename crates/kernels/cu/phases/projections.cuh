// The phases that are products: qkv, o_proj, gate_up, down.
#pragma once
#include "../gather.cuh"

// Where a layer's sections are.
struct LayerWeights {
  const u8 *input_norm, *post_norm, *q_norm, *k_norm, *qkv, *o_proj, *gate_up, *down;
};

__device__ __forceinline__ LayerWeights layer_weights(const abi::StepArgs& args, u32 layer) {
  const u8* base = args.weights + args.layer_base + u64(layer) * args.layer_stride;
  const u8* norms = base + args.norms;
  return {norms,
          norms + 2 * shape::HIDDEN,
          norms + 4 * shape::HIDDEN,
          norms + 4 * shape::HIDDEN + 2 * shape::HEAD_DIM,
          base + args.qkv,
          base + args.o_proj,
          base + args.gate_up,
          base + args.down};
}

// Layer 0: the residual stream is the token's row of the embedding, which every block reads.
__device__ __forceinline__ bool embed(Consumer& my, const u8* norm_weight, u32 token) {
  return normed_activation(my, norm_weight, my.shared.residual[0],
                           [&](int first, int stride, auto& values) {
#pragma unroll
    for (int at = 0; at < pairs_each(shape::HIDDEN); at++) {
      const int column = first + at * stride;
      if (column < shape::HIDDEN) {
        values[at] = bf16::element_pair(my.args.weights + my.args.embedding, shape::HIDDEN,
                                        int(token), column);
      }
    }
    return true;
  });
}

__device__ __forceinline__ bool qkv(Consumer& my, u32 layer) {
  const Slot slot = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT);
  return product<shape::HIDDEN>(my, share_of(shape::tiles(shape::QKV_DIM)), layer, slot.phase,
                                [&](int row, float value) {
    if (row < shape::QKV_DIM) post(my.args, slot, row, value * norm_scale(my));
  });
}

// residual + W x, for o_proj and down.
template <int COLUMNS>
__device__ __forceinline__ bool add_to_residual(Consumer& my, const Slot& slot,
                                                const float* residual) {
  return product<COLUMNS>(my, share_of(shape::tiles(shape::HIDDEN)), slot.layer, slot.phase,
                          [&](int row, float value) {
    if (row < shape::HIDDEN) post(my.args, slot, row, residual[row] + value);
  });
}

__device__ __forceinline__ bool o_proj(Consumer& my, u32 layer) {
  const Slot from = slot_of(my.args, layer, abi::Phase::Attention, shape::ATTENTION_SLOT);
  if (!gather_activation<shape::Q_DIM>(my, from)) return false;
  const Slot to = slot_of(my.args, layer, abi::Phase::OProj, shape::O_PROJ_SLOT);
  return add_to_residual<shape::Q_DIM>(my, to, my.shared.residual[0]);
}

__device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }

__device__ __forceinline__ bool gate_up(Consumer& my, u32 layer, const LayerWeights& weights) {
  const Slot from = slot_of(my.args, layer, abi::Phase::OProj, shape::O_PROJ_SLOT);
  if (!gather_normed(my, from, weights.post_norm, my.shared.residual[1])) return false;
  const Slot to = slot_of(my.args, layer, abi::Phase::GateUp, shape::GATE_UP_SLOT);
  constexpr int ROWS = 2 * shape::INTERMEDIATE;
  return product<shape::HIDDEN>(my, share_of(shape::tiles(ROWS)), layer, to.phase,
                                [&](int row, float value) {
    // Gate row i and up row i lie eight rows apart in a tile, and so eight lanes in a warp. A
    // batch is whole tiles: a half-warp is here as a whole or not at all.
    value *= norm_scale(my);
    const u32 half_warp = 0xffffu << (threadIdx.x & 16);
    const float other = __shfl_xor_sync(half_warp, value, 8);
    if (row % shape::TILE_ROWS < 8) {
      const int out = row / shape::TILE_ROWS * 8 + row % 8;
      post(my.args, to, out, silu(value) * other);
    }
  });
}

__device__ __forceinline__ bool down(Consumer& my, u32 layer) {
  const Slot from = slot_of(my.args, layer, abi::Phase::GateUp, shape::GATE_UP_SLOT);
  if (!gather_activation<shape::INTERMEDIATE>(my, from)) return false;
  const Slot to = slot_of(my.args, layer, abi::Phase::Down, shape::DOWN_SLOT);
  return add_to_residual<shape::INTERMEDIATE>(my, to, my.shared.residual[1]);
}
