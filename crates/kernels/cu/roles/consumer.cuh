// The consumer warps: the state of each of their threads, and the block's part of a matrix.
#pragma once
#include "../ptx/barrier.cuh"
#include "../ptx/mma.cuh"
#include "../ring.cuh"

// A consumer thread's state. The cursor, which names the next stage, and the round are the same in every
// warp of a block.
struct Consumer {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // Rounds of partial sums so far.
  u32 round = 0;
  // False once a wait of this thread has failed. It then runs on to the step's end without waiting, so
  // that every barrier of the block is met, and the block publishes nothing more.
  bool ok = true;
  // This lane's pairs of the residual stream; every block has all of it, added up in the same order.
  float2 residual[shape::RESIDUAL_PAIRS] = {};
  // Empty in builds without the X-ray.
  ::xray::Notes log;

  // The running layer.
  u32 layer = 0;
  // threadIdx.x, as far as the compiler knows another number after every call of `begin_phase`.
  u32 thread = threadIdx.x;

  __device__ __forceinline__ int warp() const { return int(thread / 32); }
  __device__ __forceinline__ int lane() const { return int(thread % 32); }

  // Called at the begin of every phase. Without it the compiler computes the addresses of all phases before
  // the first layer and keeps them: 90 registers, which are then missing for the weights.
  __device__ __forceinline__ void begin_phase() {
    ptx::pin(thread);
    ptx::pin(layer);
  }

  // The layer's weights.
  __device__ __forceinline__ const u8* layer_base() const {
    return args.weights + args.layer_base + u64(layer) * args.layer_stride;
  }

  __device__ __forceinline__ void sync() { ptx::consumers_sync<shape::CONSUMERS>(); }

  __device__ __forceinline__ void fail() {
    ok = false;
    *static_cast<volatile u32*>(&shared.failed[0]) = 1;
  }
};

// Waits until the epilogue has read what the buffer held two rounds ago. The epilogue warp waits for
// nothing but consumers that never leave, so this wait ends.
__device__ __forceinline__ void wait_for_buffer(Consumer& my, int buffer) {
  const u32 parity = my.round / 2 % 2 ^ 1;
  while (!ptx::mbarrier_try_wait(&my.shared.read[buffer], parity)) {}
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}
