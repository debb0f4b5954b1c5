// One decode step of a dense Qwen3 model in one launch: one block per SM, all of them resident.
// Blocks are warp-specialized: a producer lane loads, consumer warps compute.
//
//   loader lane       streams this block's tiles through a ring of shared-memory stages, in the
//                     order of use, and never waits for an activation
//   consumer warps    run the phases: gather the phase's inputs, multiply, publish
//   observer lane     in X-ray builds only: records when tiles arrive
//   watcher lane      in X-ray builds only: records where the consumers are
//
// Blocks communicate only through the exchange (exchange.cuh). The order of every sum does not
// depend on the number of blocks: 128 and 132 blocks give the same bits.
#include "observer.cuh"
#include "phases/attention.cuh"
#include "phases/products.cuh"

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;
extern "C" __device__ const u64 monolith_slot_units = shape::SLOT_UNITS;

// Matrix-vector products (matvecs) of a step: four per layer, and the LM head if logits are needed.
__device__ __forceinline__ u32 matvecs(const abi::StepArgs& args) {
  return LAYER_MATVECS * shape::LAYERS + ((args.flags & abi::STEP_HAS_HEAD) ? 1 : 0);
}

// Calls `each` for every piece of this block's weight stream. Returns false on abort.
template <class Each>
__device__ __forceinline__ bool weight_stream(const abi::StepArgs& args, Each& each) {
#pragma unroll 1
  for (u32 matvec = 0; matvec < matvecs(args); matvec++) {
    const PhaseRow row = phase_row(matvec);
    const TileRange share = tiles_of_block(shape::tiles(row.rows));
    const bool is_head = row.phase == abi::Phase::LmHead;
    const TileBytes bytes = is_head ? tile_bytes<HeadFormat>(row.columns) : tile_bytes<LayerFormat>(row.columns);
    const u8* tiles = matrix_of(args, matvec) + u64(share.begin) * bytes.all;
    const int count = share.end - share.begin;
    if (!each_piece(tiles, count, bytes, layer_of(matvec), row.phase, each)) return false;
  }
  return true;
}

// Per layer: qkv, attention, o_proj, gate_up, down; then the LM head and the argmax.
__device__ __forceinline__ void run_step(Consumer& my) {
  const u32 token = my.args.tokens[my.args.position];
  head::forget_logits(my);
#pragma unroll 1
  for (u32 matvec = 0; matvec < matvecs(my.args); matvec++) {
    if (!run_matvec(my, matvec, token)) return;
    const bool was_qkv = matvec % LAYER_MATVECS == 0 && matvec < LAYER_MATVECS * shape::LAYERS;
    if (was_qkv && !attention::run(my, matvec / LAYER_MATVECS)) return;
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
    clear_failed_waits();
  }
  clear_zero_row(shared);
  // If an earlier launch ended the text or failed, this one does nothing. The host queues launches
  // without waiting for their tokens, so some launches after the end of a text are normal.
  if (__syncthreads_or(args.control->stopped != 0 || args.control->abort != 0)) return;
  if (threadIdx.x < shape::CONSUMERS) {
    Consumer consumer{args, shared};
    xray::begun(consumer.log);
    run_step(consumer);
    if (!consumer.ok && threadIdx.x == 0) report_failed_wait(args, CONSUMERS);
  } else if (threadIdx.x == shape::LOADER) {
    Loader loader{args, shared, {}, ::xray::Stamps(args)};
    if (!weight_stream(args, loader)) report_failed_wait(args, LOADER);
    xray::loader_ends(loader.stamps);
    // On abort the consumers exit although bulk copies into this block's shared memory may still be
    // in flight, even after this lane has issued its last copy. The block keeps its shared memory
    // while one of its threads runs, so this lane waits.
    loader.wait_for_copies();
  } else if (threadIdx.x == shape::OBSERVER) {
    xray::observe(args, shared);
  } else if (threadIdx.x == shape::WATCHER) {
    xray::watch(args);
  }
}
