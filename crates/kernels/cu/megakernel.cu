// One decode step of a dense Qwen3 model in one launch: one block an SM, all of them resident.
//
//   loader lane       streams this block's tiles through a ring of shared-memory stages, in the
//                     order of use, and never waits for an activation
//   consumer warps    run the phases: gather what the phase needs, multiply, post
//
// Blocks meet only in the exchange (exchange.cuh). Rows, and so the order of every sum, do not
// depend on the number of blocks: 128 and 132 blocks give the same bits.
#include "phases/attention.cuh"
#include "phases/head.cuh"
#include "phases/projections.cuh"

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;
extern "C" __device__ const u64 monolith_slot_units = shape::SLOT_UNITS;

// This block's tiles of one matrix.
template <int COLUMNS>
__device__ __forceinline__ bool stream_matrix(Loader& loader, const u8* matrix, int rows, u32 layer,
                                              abi::Phase phase) {
  const Share share = share_of(shape::tiles(rows));
  const u8* tiles = matrix + u64(share.begin) * shape::tile_bytes(COLUMNS);
  return loader.stream<COLUMNS>(tiles, share.end - share.begin, layer, phase);
}

__device__ __forceinline__ bool load_weights(Loader& loader) {
  using namespace shape;
  const abi::StepArgs& args = loader.args;
  for (u32 layer = 0; layer < LAYERS; layer++) {
    const LayerWeights at = layer_weights(args, layer);
    if (!stream_matrix<HIDDEN>(loader, at.qkv, QKV_DIM, layer, abi::Phase::Qkv) ||
        !stream_matrix<Q_DIM>(loader, at.o_proj, HIDDEN, layer, abi::Phase::OProj) ||
        !stream_matrix<HIDDEN>(loader, at.gate_up, 2 * INTERMEDIATE, layer, abi::Phase::GateUp) ||
        !stream_matrix<INTERMEDIATE>(loader, at.down, HIDDEN, layer, abi::Phase::Down)) {
      return false;
    }
  }
  if (!(args.flags & abi::STEP_HAS_HEAD)) return true;
  return stream_matrix<HIDDEN>(loader, args.weights + args.lm_head, VOCAB, abi::NO_LAYER,
                               abi::Phase::LmHead);
}

__device__ __forceinline__ bool run_layer(Consumer& my, u32 layer, u32 token) {
  const LayerWeights weights = layer_weights(my.args, layer);
  if (layer == 0) {
    if (!embed(my, weights.input_norm, token)) return false;
  } else {
    const Slot from = slot_of(my.args, layer - 1, abi::Phase::Down, shape::DOWN_SLOT);
    if (!gather_normed(my, from, weights.input_norm, my.shared.residual[0])) return false;
  }
  return qkv(my, layer) && attention::run(my, layer, weights) && o_proj(my, layer) &&
         gate_up(my, layer, weights) && down(my, layer);
}

__device__ __forceinline__ void run_step(Consumer& my) {
  const u32 token = my.args.tokens[my.args.position];
  for (u32 layer = 0; layer < shape::LAYERS; layer++) {
    if (!run_layer(my, layer, token)) return;
  }
  if (!(my.args.flags & abi::STEP_HAS_HEAD) || !head::logits(my)) return;
  if (blockIdx.x == 0 && my.warp() == 0) head::argmax(my);
}

extern "C" __global__ void __launch_bounds__(shape::THREADS, 1)
    monolith_step(const __grid_constant__ abi::StepArgs args) {
  extern __shared__ __align__(128) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) ring_init(shared);
  // An earlier launch ended the text, or failed: nothing to do.
  if (__syncthreads_or(args.control->stopped != 0 || args.control->abort != 0)) return;
  if (threadIdx.x < shape::CONSUMERS) {
    Consumer consumer{args, shared};
    run_step(consumer);
  } else if (threadIdx.x == shape::CONSUMERS) {
    Loader loader{args, shared};
    // Left early, there are copies under way to memory that the block is about to give up.
    if (!load_weights(loader)) __nanosleep(1000000);
  }
}
