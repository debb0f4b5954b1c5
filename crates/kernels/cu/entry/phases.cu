// One decode step of a dense Qwen3 model as a kernel a phase, all of a step's in a graph: what the megakernel is
// compared with. Products, attention, epilogues and the order of every sum are the megakernel's, and so are the
// bits. What differs:
//
//   hand-off        the end of a kernel: a gather loads its units once (handoff/boundary.cuh)
//   residual        lies in global memory between kernels (phases/product.cuh); block 0 writes it
//   weight stream   begins anew in every kernel, with all stages at once: no gather of another block waits
//                   behind them. The loader lane issues them before anything else is known
//   argmax          the block that publishes its best logit last reduces all, and makes the step's words the
//                   next step's, so that a graph can be launched again without the host
//
// With programmatic dependent launch a kernel's blocks start, and load weights, as soon as there is room for
// them on an SM. They read what other kernels write only behind wait_for_previous.
#include "../phases/attention.cuh"
#include "../phases/product.cuh"
#include "../ptx/grid.cuh"
#include "../roles/epilogue.cuh"
#include "../roles/loader.cuh"

static_assert(BY_PHASE && ML_HANDOFF == static_cast<u32>(abi::Handoff::Boundary), "kernels end between phases");
static_assert(!xray::ON, "nothing ties one kernel's records to the next one's");

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;

constexpr bool IS_DEPENDENT = ML_LAUNCH == static_cast<u32>(abi::Launch::DependentGraph);

__device__ __forceinline__ const u8* layer_of(const abi::StepArgs& args, u32 layer) {
  return args.weights + args.layer_base + u64(layer) * args.layer_stride;
}

// ---- the phases: what each role does of the step. `layer` is LAYERS for the head.

struct QkvKernel {
  using W = Work<Qkv, LayerFormat>;
  __device__ static void find_share(Shared& shared) { find_share_of<W>(shared); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_matrix<W>(load, layer_of(load.args, layer) + load.args.qkv, layer);
  }
  __device__ static void consume(Consumer& my) {
    const bool is_first = my.layer == 0;
    if (is_first) begin_residual(my, my.args.tokens[my.args.position]);
    normed_product<W, DownSums>(my, is_first);
  }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT);
    epilogue<W, QkvSums>(my, layer_of(my.args, layer) + my.args.qkv, to);
  }
};

// What attention hands over: the ranks' results of a long text, or the output where it is a phase of its own.
struct AttentionKernel {
  __device__ static void find_share(Shared& shared) { shared.shares[O_PROJ_SHARE] = share_of(O_PROJ_ITEMS); }
  __device__ static bool load(Loader&, u32) { return true; }
  __device__ static void consume(Consumer& my) { attention::attend_and_project<true, false>(my); }
  __device__ static void conclude(EpilogueWarp&, u32, abi::StepWords*) {}
};

struct OProjKernel {
  __device__ static void find_share(Shared& shared) { AttentionKernel::find_share(shared); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_o_proj(load, layer_of(load.args, layer) + load.args.o_proj, layer);
  }
  __device__ static void consume(Consumer& my) { attention::attend_and_project<false, true>(my); }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::OProj, shape::O_PROJ_SLOT);
    output_epilogue(my, layer_of(my.args, layer) + my.args.o_proj, to);
  }
};

struct GateUpKernel {
  using W = Work<GateUp, LayerFormat>;
  __device__ static void find_share(Shared& shared) { find_share_of<W>(shared); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_matrix<W>(load, layer_of(load.args, layer) + load.args.gate_up, layer);
  }
  __device__ static void consume(Consumer& my) { normed_product<W, OProjSums>(my, false); }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::GateUp, shape::GATE_UP_SLOT);
    epilogue<W, GateUpSums>(my, layer_of(my.args, layer) + my.args.gate_up, to);
  }
};

struct DownKernel {
  using W = Work<Down, LayerFormat>;
  __device__ static void find_share(Shared& shared) { shared.shares[DOWN_SHARE] = share_of(DOWN_ITEMS); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_down(load, layer_of(load.args, layer) + load.args.down, layer);
  }
  __device__ static void consume(Consumer& my) { down_product<W>(my); }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::Down, shape::DOWN_SLOT);
    down_epilogue(my, layer_of(my.args, layer) + my.args.down, to);
  }
};

struct HeadKernel {
  using W = Work<Head, HeadFormat>;
  __device__ static void find_share(Shared& shared) { find_share_of<W>(shared); }
  __device__ static bool load(Loader& load, u32) {
    return load_matrix<W>(load, load.args.weights + load.args.lm_head, abi::NO_LAYER);
  }
  __device__ static void consume(Consumer& my) { normed_product<W, DownSums>(my, false); }
  __device__ static void conclude(EpilogueWarp& my, u32, abi::StepWords* words) {
    epilogue<W, QkvSums>(my, my.args.weights + my.args.lm_head, head::final_slot(my.args));
    head::argmax_of_last(my.args, words, my.best, my.failed);
  }
};

// ---- a kernel

// The parameters of the running step. (head::argmax_of_last reads the tokens that end a text where they are.)
__device__ __forceinline__ abi::StepArgs of_step(const abi::StepArgs& args, const abi::StepWords& words) {
  abi::StepArgs now = args;
  now.logits = words.logits;
  now.epoch = words.epoch;
  now.position = words.position;
  now.flags = words.flags;
  now.eos_count = words.eos_count;
  return now;
}

// What does not depend on other kernels: the barriers, the zeros, and the first weights.
template <class Kernel>
__device__ __forceinline__ void begin(Shared& shared, Loader& load, u32 layer) {
  if (threadIdx.x == shape::LOADER) {
    ring_init(shared);
    Kernel::find_share(shared);
    load.is_first = true;
    Kernel::load(load, layer);
    load.is_first = false;
  }
  if (threadIdx.x < sizeof(shared.zeros) / sizeof(u32)) reinterpret_cast<u32*>(shared.zeros)[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    clear_failed_waits();
    shared.failed[0] = 0;
  }
}

template <class Kernel>
__device__ __forceinline__ void run(const abi::StepArgs& args, const abi::PhaseArgs& of) {
  extern __shared__ __align__(128) u8 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const u32 layer = of.layer;
  Loader loader{args, shared, {}, ::xray::Stamps(args)};
  begin<Kernel>(shared, loader, layer);
  if (IS_DEPENDENT) {
    ptx::launch_dependents();
    ptx::wait_for_previous();
  }
  // Loaded together with what the vote is on.
  const abi::StepArgs now = of_step(args, *of.step);
  // As in the megakernel: behind the end of a text, and after a failure, nothing is done.
  if (__syncthreads_or(args.control->stopped != 0 || args.control->abort != 0)) {
    if (threadIdx.x == shape::LOADER) loader.wait_for_copies();
    if (layer == shape::LAYERS && blockIdx.x == 0 && threadIdx.x == 0) head::advance(of.step);
    return;
  }
  if (threadIdx.x < shape::CONSUMERS + 32) {
    if (threadIdx.x < shape::CONSUMERS) {
      Consumer consumer{now, shared};
      consumer.layer = layer;
      Kernel::consume(consumer);
    } else {
      EpilogueWarp mine{now, shared};
      Kernel::conclude(mine, layer, of.step);
    }
    ptx::step_sync<shape::EPILOGUE_THREADS>();
    if (threadIdx.x == 0) report_failed_wait(now, CONSUMERS);
  } else if (threadIdx.x == shape::LOADER) {
    loader.before = loader.issued;
    if (!Kernel::load(loader, layer)) report_failed_wait(now, LOADER);
    loader.wait_for_copies();
  }
}

// Attention needs the registers of a whole SM: its blocks overlap with no other kernel's.
#define MONOLITH_KERNEL(NAME, KERNEL, RESIDENTS)                                                            \
  extern "C" __global__ void __launch_bounds__(shape::THREADS, RESIDENTS)                                   \
      NAME(const __grid_constant__ abi::StepArgs args, const __grid_constant__ abi::PhaseArgs of) {         \
    run<KERNEL>(args, of);                                                                                  \
  }

MONOLITH_KERNEL(monolith_qkv, QkvKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_attention, AttentionKernel, 1)
MONOLITH_KERNEL(monolith_o_proj, OProjKernel, attention::APART ? shape::RESIDENTS : 1)
MONOLITH_KERNEL(monolith_gate_up, GateUpKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_down, DownKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_head, HeadKernel, shape::RESIDENTS)
