// One decode step of a dense Qwen3 model in one launch: one block per SM, all of them resident.
// Blocks are warp-specialized: a producer lane loads, consumer warps compute.
//
//   loader lane       streams this block's tiles through a ring of shared-memory stages, in the
//                     order of use, and never waits for an activation
//   consumer warps    run the phases: gather the phase's inputs, multiply, publish
//   observer lane     in X-ray builds only: records when tiles arrive
//   watcher lane      in X-ray builds only: records where the consumers are
//
// Blocks communicate only through the exchange (handoff/). The order of every sum does not
// depend on the number of blocks: 128 and 132 blocks give the same bits.
#include "../phases/attention.cuh"
#include "../phases/products.cuh"
#include "../roles/loader.cuh"
#include "../roles/observer.cuh"
#include "../roles/watcher.cuh"

static_assert(ML_LAUNCH == static_cast<u32>(abi::Launch::Cooperative),
              "all blocks of a step are resident at once");

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;

// Per layer, in order (h is the residual stream, a column of `hidden` values):
//
//   qkv         q, k, v = W_qkv (g h)              the RMS divides in the epilogue
//   attention   a = softmax(q K) V                 after QK-norm, RoPE and the KV write
//   o_proj      h = h + W_o a
//   gate_up     m = silu(W_gate (g h)) W_up (g h)  likewise
//   down        h = h + W_down m
//
// then lm_head, logits = W_head (g h), and the argmax. The matvecs are numbered, so that one piece of
// code runs them all (phases/table.cuh).
__device__ __forceinline__ void run_step(Consumer& my) {
  const u32 token = my.args.tokens[my.args.position];
  head::forget_logits(my);
#pragma unroll 1
  for (u32 matvec = 0; matvec < matvecs(my.args); matvec++) {
    if (!run_matvec(my, matvec, token)) return;
    Handoff::phase_end();
    const bool was_qkv = matvec % LAYER_MATVECS == 0 && matvec < LAYER_MATVECS * shape::LAYERS;
    if (was_qkv && !attention::run(my, matvec / LAYER_MATVECS)) return;
    if (was_qkv) Handoff::phase_end();
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
