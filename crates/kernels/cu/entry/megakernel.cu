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
#include "../phases/product.cuh"
#include "../roles/epilogue.cuh"
#include "../roles/loader.cuh"
#include "../roles/observer.cuh"
#include "../roles/watcher.cuh"

static_assert(ML_LAUNCH == static_cast<u32>(abi::Launch::Cooperative),
              "all blocks of a step are resident at once");

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;

// The consumer warps. Per layer, in order (h is the residual stream, a column of `hidden` values):
//
//   qkv         q, k, v = W_qkv (g h)              the RMS divides in the epilogue
//   attention   a = softmax(q K) V                 after QK-norm, RoPE and the KV write
//   o_proj      h = h + W_o a
//   gate_up     m = silu(W_gate (g h)) W_up (g h)  likewise
//   down        h = h + W_down m
//
// then lm_head, logits = W_head (g h), and the argmax.
__device__ __forceinline__ void consume(Consumer& my, u32 token) {
  const abi::StepArgs& args = my.args;
  const auto slot = [&](u32 layer, abi::Phase phase, int at) { return slot_of(args, layer, phase, at); };
  begin_embedding(my, token);
#pragma unroll 1
  for (u32 layer = 0; layer < shape::LAYERS; layer++) {
    const u32* norms = reinterpret_cast<const u32*>(args.weights + args.layer_base + u64(layer) * args.layer_stride + args.norms);
    const Slot before = slot(layer - 1, abi::Phase::Down, shape::DOWN_SLOT);
    product<Work<Qkv, LayerFormat>>(my, layer, {before, norms, layer == 0});
    attention::run(my, layer);
    product<Work<OProj, LayerFormat>>(my, layer, {slot(layer, abi::Phase::Attention, shape::ATTENTION_SLOT), nullptr, false});
    product<Work<GateUp, LayerFormat>>(my, layer, {slot(layer, abi::Phase::OProj, shape::O_PROJ_SLOT), norms + shape::HIDDEN / 2, false});
    product<Work<Down, LayerFormat>>(my, layer, {slot(layer, abi::Phase::GateUp, shape::GATE_UP_SLOT), nullptr, false});
  }
  if (args.flags & abi::STEP_HAS_HEAD) {
    const u32* norm = reinterpret_cast<const u32*>(args.weights + args.final_norm);
    product<Work<Head, HeadFormat>>(my, abi::NO_LAYER, {slot(shape::LAYERS - 1, abi::Phase::Down, shape::DOWN_SLOT), norm, false});
  }
  xray::note(my.log, abi::Moment::Ended);
}

// The epilogue warp: the same matvecs.
__device__ __forceinline__ void conclude(Epilogue_& my, u32 token) {
  const abi::StepArgs& args = my.args;
  begin_residual(my, token);
#pragma unroll 1
  for (u32 layer = 0; layer < shape::LAYERS; layer++) {
    const u8* base = args.weights + args.layer_base + u64(layer) * args.layer_stride;
    epilogue<Work<Qkv, LayerFormat>>(my, base + args.qkv, slot_of(args, layer, abi::Phase::Qkv, shape::QKV_SLOT));
    epilogue<Work<OProj, LayerFormat>>(my, base + args.o_proj, slot_of(args, layer, abi::Phase::OProj, shape::O_PROJ_SLOT));
    epilogue<Work<GateUp, LayerFormat>>(my, base + args.gate_up, slot_of(args, layer, abi::Phase::GateUp, shape::GATE_UP_SLOT));
    epilogue<Work<Down, LayerFormat>>(my, base + args.down, slot_of(args, layer, abi::Phase::Down, shape::DOWN_SLOT));
  }
  if (args.flags & abi::STEP_HAS_HEAD) {
    epilogue<Work<Head, HeadFormat>>(my, args.weights + args.lm_head, head::final_slot(args));
    head::argmax(args, my.best, my.failed);
  }
}

extern "C" __global__ void __launch_bounds__(shape::THREADS, 1)
    monolith_step(const __grid_constant__ abi::StepArgs args) {
  extern __shared__ __align__(128) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  xray::begin();
  if (threadIdx.x == 0) {
    ring_init(shared);
    clear_failed_waits();
    shared.failed[0] = 0;
  }
  // An earlier launch ended the text or failed: this one does nothing. The host queues launches without
  // waiting for their tokens, so launches behind the end of a text are normal.
  if (__syncthreads_or(args.control->stopped != 0 || args.control->abort != 0)) return;
  if (threadIdx.x < shape::CONSUMERS + 32) {
    const u32 token = args.tokens[args.position];
    if (threadIdx.x < shape::CONSUMERS) {
      Consumer consumer{args, shared};
      xray::begun(consumer.log);
      consume(consumer, token);
    } else {
      Epilogue_ mine{args, shared};
      conclude(mine, token);
    }
    ptx::step_sync<shape::EPILOGUE_THREADS>();
    if (threadIdx.x == 0) report_failed_wait(args, CONSUMERS);
  } else if (threadIdx.x == shape::LOADER) {
    Loader loader{args, shared, {}, ::xray::Stamps(args)};
    if (!weight_stream(args, loader)) report_failed_wait(args, LOADER);
    xray::loader_ends(loader.stamps);
    loader.wait_for_copies();
  } else if (threadIdx.x == shape::OBSERVER) {
    xray::observe(args, shared);
  } else if (threadIdx.x == shape::WATCHER) {
    xray::watch(args);
  }
}
