// One decode step of a dense Qwen3 model as a kernel a phase, all of a step's in a graph: what the megakernel is
// compared with. Products, attention, epilogues and the order of every sum are the megakernel's, and so are the
// bits. What differs:
//
//   hand-off        the end of a kernel: a gather loads its units once (handoff/boundary.cuh)
//   residual        lies in global memory between kernels (phases/product.cuh); block 0 writes it
//   weight stream   begins anew in every kernel, with all stages at once: no gather of another block waits
//                   behind them. The loader lane issues them before anything else is known, and asks for the
//                   next kernel's to be brought into L2
//   values          are gathered before the weights arrive (phases/inputs.cuh)
//   angles          of the position lie in global memory, too, where attention loads them before it knows the
//                   position; the first layer's qkv writes them
//   keys, values    are loaded when the position is known, not ahead of the queries
//   argmax          the block that publishes its best logit last reduces all, and makes the step's words the
//                   next step's, so that a graph can be launched again without the host
//
// With programmatic dependent launch a kernel's blocks start, and load weights, as soon as there is room for
// them on an SM. They read what other kernels write only behind wait_for_previous.
#include "../phases/attention.cuh"
#include "../phases/inputs.cuh"
#include "../ptx/grid.cuh"
#include "../roles/epilogue.cuh"
#include "../roles/loader.cuh"

static_assert(BY_PHASE && ML_HANDOFF == static_cast<u32>(abi::Handoff::Boundary), "kernels end between phases");
static_assert(!xray::ON, "nothing ties one kernel's records to the next one's");

extern "C" __device__ const u32 monolith_shared_bytes = sizeof(Shared);
extern "C" __device__ const u32 monolith_threads = shape::THREADS;

constexpr bool IS_DEPENDENT = ML_LAUNCH != static_cast<u32>(abi::Launch::Graph);

__device__ __forceinline__ const u8* layer_of(const abi::StepArgs& args, u32 layer) {
  return args.weights + args.layer_base + u64(layer) * args.layer_stride;
}

// The position's angles, between kernels.
__device__ __forceinline__ u64* angles_between(const abi::StepArgs& args) {
  return args.slots + shape::ANGLES_BASE;
}

// Leaves them for attention: one block does.
__device__ __forceinline__ void keep_angles(const abi::StepArgs& args) {
  if (blockIdx.x != 0 || threadIdx.x >= shape::HEAD_PAIRS) return;
  const float2 angle = args.rope[u64(args.position) * shape::HEAD_PAIRS + threadIdx.x];
  ptx::store_relaxed(angles_between(args) + threadIdx.x, word_of_pair(angle));
}

// ---- the phases: what each role does of the step. `layer` is LAYERS for the head.

struct QkvKernel {
  static constexpr bool ATTENDS = false;
  using W = Work<Qkv, LayerFormat>;
  __device__ static void find_share(Shared& shared) { find_share_of<W>(shared); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_matrix<W>(load, layer_of(load.args, layer) + load.args.qkv, layer);
  }
  __device__ static void prefetch(const abi::StepArgs& args, u32 layer) {
    prefetch_tiles<LayerFormat>(layer_of(args, layer) + args.o_proj, O_PROJ_ROW.rows, O_PROJ_ROW.columns);
  }
  struct Inputs : NormedInputs<W, DownSums> {
    __device__ void load(Consumer& my) { NormedInputs<W, DownSums>::load(my, my.layer == 0); }
  };
  __device__ static void consume(Consumer& my, Inputs& inputs) {
    const bool is_first = my.layer == 0;
    if (is_first) begin_residual(my, my.args.tokens[my.args.position]);
    if (is_first) keep_angles(my.args);
    inputs.multiply(my, is_first);
  }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::Qkv, shape::QKV_SLOT);
    epilogue<W, QkvSums>(my, layer_of(my.args, layer) + my.args.qkv, to);
  }
};

// Attention and the O projection, or one of them. The shares of a long text are one kernel, and their product
// another one, in every row.
template <bool IS_LOCAL, bool ATTENDS_, bool PROJECTS>
struct ItemsKernel {
  static constexpr bool ATTENDS = ATTENDS_;
  __device__ static void find_share(Shared& shared) { shared.shares[O_PROJ_SHARE] = share_of(O_PROJ_ITEMS); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_attention<ATTENDS, PROJECTS>(load, layer_of(load.args, layer) + load.args.o_proj, layer);
  }
  __device__ static void prefetch(const abi::StepArgs& args, u32 layer) {
    if (ATTENDS) prefetch_tiles<Work<GateUp, LayerFormat>>(layer_of(args, layer) + args.gate_up);
  }
  using Inputs = NoInputs;
  __device__ static void consume(Consumer& my, Inputs&) {
    if constexpr (ATTENDS && PROJECTS) {
      attention::attend_locally(my);
    } else if constexpr (ATTENDS && IS_LOCAL) {
      attention::attend_apart(my);
    } else if constexpr (IS_LOCAL) {
      attention::project_output(my);
    } else if constexpr (ATTENDS) {
      attention::exchange_shares(my, attention::splits_of(my.args));
    } else {
      attention::project_shares(my, attention::splits_of(my.args));
    }
  }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    if (!PROJECTS) return;
    const Slot to = slot_of(my.args, layer, abi::Phase::OProj, shape::O_PROJ_SLOT);
    output_epilogue(my, layer_of(my.args, layer) + my.args.o_proj, to);
  }
};
using AttentionKernel = ItemsKernel<true, true, !attention::APART>;
using OProjKernel = ItemsKernel<true, false, true>;
using SplitAttentionKernel = ItemsKernel<false, true, false>;
using SplitOProjKernel = ItemsKernel<false, false, true>;

struct GateUpKernel {
  static constexpr bool ATTENDS = false;
  using W = Work<GateUp, LayerFormat>;
  __device__ static void find_share(Shared& shared) { find_share_of<W>(shared); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_matrix<W>(load, layer_of(load.args, layer) + load.args.gate_up, layer);
  }
  __device__ static void prefetch(const abi::StepArgs& args, u32 layer) {
    prefetch_tiles<LayerFormat>(layer_of(args, layer) + args.down, DOWN_ROW.rows, DOWN_ROW.columns);
  }
  struct Inputs : NormedInputs<W, OProjSums> {
    __device__ void load(Consumer& my) { NormedInputs<W, OProjSums>::load(my, false); }
  };
  __device__ static void consume(Consumer& my, Inputs& inputs) { inputs.multiply(my, false); }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::GateUp, shape::GATE_UP_SLOT);
    epilogue<W, GateUpSums>(my, layer_of(my.args, layer) + my.args.gate_up, to);
  }
};

struct DownKernel {
  static constexpr bool ATTENDS = false;
  using W = Work<Down, LayerFormat>;
  __device__ static void find_share(Shared& shared) { shared.shares[DOWN_SHARE] = share_of(DOWN_ITEMS); }
  __device__ static bool load(Loader& load, u32 layer) {
    return load_down(load, layer_of(load.args, layer) + load.args.down, layer);
  }
  __device__ static void prefetch(const abi::StepArgs& args, u32 layer) {
    if (layer + 1 < shape::LAYERS) prefetch_tiles<QkvKernel::W>(layer_of(args, layer + 1) + args.qkv);
    if (layer + 1 == shape::LAYERS) prefetch_tiles<Work<Head, HeadFormat>>(args.weights + args.lm_head);
  }
  using Inputs = DownInputs<W>;
  __device__ static void consume(Consumer& my, Inputs& inputs) { inputs.multiply(my); }
  __device__ static void conclude(EpilogueWarp& my, u32 layer, abi::StepWords*) {
    const Slot to = slot_of(my.args, layer, abi::Phase::Down, shape::DOWN_SLOT);
    down_epilogue(my, layer_of(my.args, layer) + my.args.down, to);
  }
};

struct HeadKernel {
  static constexpr bool ATTENDS = false;
  using W = Work<Head, HeadFormat>;
  __device__ static void find_share(Shared& shared) { find_share_of<W>(shared); }
  __device__ static bool load(Loader& load, u32) {
    return load_matrix<W>(load, load.args.weights + load.args.lm_head, abi::NO_LAYER);
  }
  // The next step's first.
  __device__ static void prefetch(const abi::StepArgs& args, u32) {
    prefetch_tiles<QkvKernel::W>(layer_of(args, 0) + args.qkv);
  }
  struct Inputs : NormedInputs<W, DownSums> {
    __device__ void load(Consumer& my) { NormedInputs<W, DownSums>::load(my, false); }
  };
  __device__ static void consume(Consumer& my, Inputs& inputs) { inputs.multiply(my, false); }
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
  Loader first{args, shared, {}, ::xray::Stamps(args)};
  begin<Kernel>(shared, first, layer);
  if (IS_DEPENDENT) {
    ptx::launch_dependents();
    ptx::wait_for_previous();
  }
  // Loaded together with what the vote is on.
  const abi::StepArgs now = of_step(args, *of.step);
  if (Kernel::ATTENDS && threadIdx.x < shape::HEAD_PAIRS) {
    shared.angles[threadIdx.x] = pair_of_word(ptx::load_relaxed(angles_between(args) + threadIdx.x));
  }
  Consumer consumer{now, shared};
  consumer.layer = layer;
  typename Kernel::Inputs inputs;
  if (threadIdx.x < shape::CONSUMERS) inputs.load(consumer);
  // As in the megakernel: behind the end of a text, and after a failure, nothing is done; nor by the head in a
  // prompt's inner steps. Only the step's words become the next step's. A block that loads them later does
  // nothing either, since their flags stay.
  const bool is_idle = layer == shape::LAYERS && !(now.flags & abi::STEP_HAS_HEAD);
  if (__syncthreads_or(is_idle || args.control->stopped != 0 || args.control->abort != 0)) {
    if (threadIdx.x == shape::LOADER) first.wait_for_copies();
    if (layer == shape::LAYERS && blockIdx.x == 0 && threadIdx.x == 0) head::advance(of.step);
    return;
  }
  if (threadIdx.x < shape::CONSUMERS + 32) {
    if (threadIdx.x < shape::CONSUMERS) {
      Kernel::consume(consumer, inputs);
    } else {
      EpilogueWarp mine{now, shared};
      Kernel::conclude(mine, layer, of.step);
    }
    ptx::step_sync<shape::EPILOGUE_THREADS>();
    if (threadIdx.x == 0) report_failed_wait(now, CONSUMERS);
  } else if (threadIdx.x == shape::LOADER) {
    Loader loader{now, shared, first.cursor, first.stamps, first.issued, false, first.issued};
    if (!Kernel::load(loader, layer)) report_failed_wait(now, LOADER);
    if (shape::PREFETCH) Kernel::prefetch(now, layer);
    loader.wait_for_copies();
  }
}

#define MONOLITH_KERNEL(NAME, KERNEL, RESIDENTS)                                                            \
  extern "C" __global__ void __launch_bounds__(shape::THREADS, RESIDENTS)                                   \
      NAME(const __grid_constant__ abi::StepArgs args, const __grid_constant__ abi::PhaseArgs of) {         \
    run<KERNEL>(args, of);                                                                                  \
  }

MONOLITH_KERNEL(monolith_qkv, QkvKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_attention, AttentionKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_o_proj, OProjKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_attention_split, SplitAttentionKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_o_proj_split, SplitOProjKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_gate_up, GateUpKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_down, DownKernel, shape::RESIDENTS)
MONOLITH_KERNEL(monolith_head, HeadKernel, shape::RESIDENTS)
