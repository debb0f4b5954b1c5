// The consumer warps: the state of each of their threads.
#pragma once
#include "../ptx/barrier.cuh"
#include "../ptx/mma.cuh"
#include "../mma/activation.cuh"
#include "../ring.cuh"

// A consumer thread's state. The cursor, which names the next stage, and the round are the same in every
// warp of a block.
struct Consumer {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // Rounds of partial sums so far.
  u32 round = 0;
  // Empty in builds without the X-ray.
  ::xray::Notes log;

  // The running layer.
  u32 layer = 0;
  // threadIdx.x, as far as the compiler knows another number after every call of `begin_phase`.
  u32 thread = threadIdx.x;
  // Where the block's shared memory begins: in a register, since the compiler would ask which block of a
  // cluster this is at every use.
  u32 base = ptx::pinned(ptx::shared_address(&shared));
  // Where this lane's B operand begins in shared memory: kept in a register, since it lies between an arrival
  // and its product.
  u32 x_operand = ptx::pinned(activation::operand_address(shared.x[threadIdx.x / 32], shared.zeros));
  // Whether the warp releases stages: always, unless a fault is injected.
  bool releases = false;

  __device__ __forceinline__ int warp() const { return int(thread / 32); }
  __device__ __forceinline__ int lane() const { return int(thread % 32); }

  // Where this lane stores its first pair of the activation.
  __device__ __forceinline__ u32 x_pair() const { return activation::pair_address(shared.x[warp()], lane()); }

  // Called at the begin of every phase. If `thread` and `layer` were not pinned, the compiler would compute
  // the addresses of all phases before the first layer and keep them: 60 registers, which are then missing
  // for the weights.
  __device__ __forceinline__ void begin_phase(abi::Phase phase) {
    ptx::pin(thread);
    if (phase != abi::Phase::OProj) ptx::pin(layer);
    releases = true;
    if (args.injected_kind == abi::INJECTED_NO_RELEASE) {
      const u32 named = phase == abi::Phase::LmHead ? u32(abi::NO_LAYER) : layer;
      releases = !(args.injected_block == blockIdx.x && args.injected_layer == named &&
                   args.injected_phase == static_cast<u32>(phase));
    }
  }

  // The layer's weights.
  __device__ __forceinline__ const u8* layer_base() const {
    return args.weights + args.layer_base + u64(layer) * args.layer_stride;
  }

  __device__ __forceinline__ void sync() { ptx::consumers_sync<shape::CONSUMERS>(); }

  // Once a wait of the block has failed, its warps run on to the step's end without waiting, so that every
  // barrier is met, and the block publishes nothing more.
  __device__ __forceinline__ void fail() { *static_cast<volatile u32*>(&shared.failed[0]) = 1; }
};

// Waits until the epilogue has read what the buffer held two rounds ago. The epilogue warp waits for
// nothing but consumers that never leave, so this wait ends.
__device__ __forceinline__ void wait_for_buffer(Consumer& my, int buffer) {
  const u32 parity = my.round / 2 % 2 ^ 1;
  while (!ptx::mbarrier_try_wait(&my.shared.read[buffer], parity)) {}
}
