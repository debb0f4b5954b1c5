// One decode step of a dense Qwen3 model in one launch: one block an SM, all of them resident.
//
//   loader lane       streams this block's tiles through a ring of shared-memory stages, in the
//                     order of use, and never waits for an activation
//   consumer warps    run the phases: gather what the phase needs, multiply, post
//
// Blocks meet only in the exchange (exchange.cuh). Rows, and so the order of every sum, do not
// depend on the number of blocks: 128 and 132 blocks give the same bits.
#include "phases/attention.cuh"
#include "phases/products.cuh"

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;
extern "C" __device__ const u64 monolith_slot_units = shape::SLOT_UNITS;

// Products of a step: four a layer, and the LM head where logits are wanted.
__device__ __forceinline__ u32 products(const abi::StepArgs& args) {
  return LAYER_PRODUCTS * shape::LAYERS + ((args.flags & abi::STEP_HAS_HEAD) ? 1 : 0);
}

__device__ __forceinline__ bool load_weights(Loader& loader) {
#pragma unroll 1
  for (u32 product = 0; product < products(loader.args); product++) {
    const PhaseRow row = phase_row(product);
    const Share share = share_of(shape::tiles(row.rows));
    const int bytes = shape::tile_bytes(row.columns);
    const u8* tiles = matrix_of(loader.args, product) + u64(share.begin) * bytes;
    if (!loader.stream(tiles, share.end - share.begin, bytes, layer_of(product), row.phase)) {
      return false;
    }
  }
  return true;
}

// Per layer: qkv, attention, o_proj, gate_up, down; then the LM head and the argmax.
__device__ __forceinline__ void run_step(Consumer& my) {
  const u32 token = my.args.tokens[my.args.position];
  head::forget_logits(my);
#pragma unroll 1
  for (u32 product = 0; product < products(my.args); product++) {
    if (!run_product(my, product, token)) return;
    const bool was_qkv = product % LAYER_PRODUCTS == 0 && product < LAYER_PRODUCTS * shape::LAYERS;
    if (was_qkv && !attention::run(my, product / LAYER_PRODUCTS)) return;
  }
  if (my.args.flags & abi::STEP_HAS_HEAD) head::argmax(my);
}

extern "C" __global__ void __launch_bounds__(shape::THREADS, 1)
    monolith_step(const __grid_constant__ abi::StepArgs args) {
  extern __shared__ __align__(128) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) ring_init(shared);
  clear_zero_row(shared);
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
