// One decode step of a dense Qwen3 model in one launch: at most one block per SM, all of them resident.
// Blocks are warp-specialized: a producer lane loads, consumer warps compute, an epilogue warp publishes.
//
//   loader lane       streams this block's tiles through a ring of shared-memory stages, in the
//                     order of use, and never waits for an activation
//   consumer warps    run the phases: take weights into registers, gather the inputs, multiply
//   epilogue warp     adds up the consumers' partial sums and publishes, while they take the next weights
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
//   qkv          q, k, v = W_qkv (g h)              the RMS divides in the epilogue
//   attend_and_project
//                a = softmax(q K) V                 after QK-norm, RoPE and the KV write
//                h = h + W_o a                      in partial sums over the KV heads
//   gate_up      m = silu(W_gate (g h)) W_up (g h)  likewise
//   down         h = h + W_down m                   in partial sums over splits of its columns
//
// then lm_head, logits = W_head (g h), and the argmax. Four hand-offs a layer. The matrices of Qwen3-0.6B,
// rows by columns, and their bytes in bf16: qkv 4,096 x 1,024, 8.4 MB; o_proj 1,024 x 2,048, 4.2 MB;
// gate and up 6,144 x 1,024, 12.6 MB; down 1,024 x 3,072, 6.3 MB; the head 151,936 x 1,024, 311 MB.
template <bool IS_LOCAL>
__device__ __forceinline__ void consume(Consumer& my, u32 token) {
  begin_residual(my, token);
#pragma unroll 1
  for (; my.layer < shape::LAYERS; my.layer++) {
    normed_product<Work<Qkv, LayerFormat>, DownSums>(my, my.layer == 0);
    attention::attend_and_project<IS_LOCAL>(my);
    normed_product<Work<GateUp, LayerFormat>, OProjSums>(my, false);
    down_product<Work<Down, LayerFormat>>(my);
  }
  if (my.args.flags & abi::STEP_HAS_HEAD) normed_product<Work<Head, HeadFormat>, DownSums>(my, false);
  xray::note(my.log, abi::Moment::Ended);
}

// The epilogue warp: the same matvecs.
__device__ __forceinline__ void conclude(EpilogueWarp& my) {
  using abi::Phase;
  const abi::StepArgs& args = my.args;
#pragma unroll 1
  for (u32 layer = 0; layer < shape::LAYERS; layer++) {
    const u8* base = args.weights + args.layer_base + u64(layer) * args.layer_stride;
    const auto slot = [&](Phase phase, int at) { return slot_of(args, layer, phase, at); };
    epilogue<Work<Qkv, LayerFormat>, QkvSums>(my, base + args.qkv, slot(Phase::Qkv, shape::QKV_SLOT));
    output_epilogue(my, base + args.o_proj, slot(Phase::OProj, shape::O_PROJ_SLOT));
    epilogue<Work<GateUp, LayerFormat>, GateUpSums>(my, base + args.gate_up,
                                                    slot(Phase::GateUp, shape::GATE_UP_SLOT));
    down_epilogue(my, base + args.down, slot(Phase::Down, shape::DOWN_SLOT));
  }
  if (args.flags & abi::STEP_HAS_HEAD) {
    epilogue<Work<Head, HeadFormat>, QkvSums>(my, args.weights + args.lm_head, head::final_slot(args));
    head::argmax(args, my.best, my.failed);
  }
  xray::concluded(args, my.round);
}

template <bool IS_LOCAL>
__device__ __forceinline__ void step(const abi::StepArgs& args) {
  extern __shared__ __align__(128) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  Handoff::begin(args);
  xray::begin();
  if (threadIdx.x < sizeof(shared.zeros) / sizeof(u32)) reinterpret_cast<u32*>(shared.zeros)[threadIdx.x] = 0;
  if (threadIdx.x < shape::HEAD_PAIRS) {
    shared.angles[threadIdx.x] = args.rope[u64(args.position) * shape::HEAD_PAIRS + threadIdx.x];
  }
  if (threadIdx.x == 0) {
    ring_init(shared);
    clear_failed_waits();
    find_shares(shared);
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
      consume<IS_LOCAL>(consumer, token);
    } else {
      EpilogueWarp mine{args, shared};
      conclude(mine);
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

// Two kernels, for short texts and for long ones: what only one of them needs takes no registers of the other.
extern "C" __global__ void __launch_bounds__(shape::THREADS, 1)
    monolith_step(const __grid_constant__ abi::StepArgs args) {
  step<true>(args);
}

extern "C" __global__ void __launch_bounds__(shape::THREADS, 1)
    monolith_step_split(const __grid_constant__ abi::StepArgs args) {
  step<false>(args);
}
