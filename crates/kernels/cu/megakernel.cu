// One decode step of a dense Qwen3 model in one launch: one block an SM, all of them resident.
//
//   loader lane       streams this block's tiles through a ring of shared-memory stages, in the
//                     order of use, and never waits for an activation
//   consumer warps    run the phases: gather what the phase needs, multiply, post
//   observer lane     in X-ray builds only: sees the tiles arrive
//   watcher lane      in X-ray builds only: sees where the consumers are
//
// Blocks meet only in the exchange (exchange.cuh). Rows, and so the order of every sum, do not
// depend on the number of blocks: 128 and 132 blocks give the same bits.
#include "observer.cuh"
#include "phases/attention.cuh"
#include "phases/products.cuh"

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;
extern "C" __device__ const u64 monolith_slot_units = shape::SLOT_UNITS;

// Products of a step: four a layer, and the LM head where logits are wanted.
__device__ __forceinline__ u32 products(const abi::StepArgs& args) {
  return LAYER_PRODUCTS * shape::LAYERS + ((args.flags & abi::STEP_HAS_HEAD) ? 1 : 0);
}

// This block's weight stream, piece by piece, to whoever loads it. False if the launch is to be
// left.
template <class Each>
__device__ __forceinline__ bool weight_stream(const abi::StepArgs& args, Each& each) {
#pragma unroll 1
  for (u32 product = 0; product < products(args); product++) {
    const PhaseRow row = phase_row(product);
    const Share share = share_of(shape::tiles(row.rows));
    const bool is_head = row.phase == abi::Phase::LmHead;
    const TileBytes bytes = is_head ? tile_bytes<HeadFormat>(row.columns) : tile_bytes<LayerFormat>(row.columns);
    const u8* tiles = matrix_of(args, product) + u64(share.begin) * bytes.all;
    const int count = share.end - share.begin;
    if (!each_piece(tiles, count, bytes, layer_of(product), row.phase, each)) return false;
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
  xray::note(my.log, abi::Moment::Ended);
}

extern "C" __global__ void __launch_bounds__(shape::THREADS, 1)
    monolith_step(const __grid_constant__ abi::StepArgs args) {
  extern __shared__ __align__(128) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  xray::begin();
  if (threadIdx.x == 0) {
    ring_init(shared);
    clear_notes();
  }
  clear_zero_row(shared);
  // An earlier launch ended the text, or failed: nothing to do.
  if (__syncthreads_or(args.control->stopped != 0 || args.control->abort != 0)) return;
  if (threadIdx.x < shape::CONSUMERS) {
    Consumer consumer{args, shared};
    xray::begun(consumer.log);
    run_step(consumer);
    if (!consumer.fine && threadIdx.x == 0) leave(args, CONSUMERS);
  } else if (threadIdx.x == shape::LOADER) {
    Loader loader{args, shared, {}, ::xray::Stamps(args)};
    if (!weight_stream(args, loader)) {
      leave(args, LOADER);
      // There are copies under way to memory that the block is about to give up.
      __nanosleep(1000000);
    }
    xray::loader_ends(loader.stamps);
  } else if (threadIdx.x == shape::OBSERVER) {
    xray::observe(args, shared);
  } else if (threadIdx.x == shape::WATCHER) {
    xray::watch(args);
  }
}
