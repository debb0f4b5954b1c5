// The consumer warps: the state of each of their threads, and the block's part of a matrix.
#pragma once
#include "../ptx/barrier.cuh"
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
  // Empty in builds without the X-ray.
  ::xray::Notes log;

  __device__ __forceinline__ int warp() const { return threadIdx.x / 32; }
  __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
  __device__ __forceinline__ int thread() const { return threadIdx.x; }

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

// This block's part of `count` tiles: a contiguous range, by the same rule as on the host. 32 bits
// suffice for a vocabulary's tiles times 256 blocks; a 64-bit division would take 150 instructions.
struct TileRange {
  int begin, end;
};

__device__ __forceinline__ TileRange tiles_of_block(int count) {
  const u32 block = blockIdx.x, blocks = gridDim.x, pieces = count;
  return {int(shape::first_piece(block, blocks, pieces)),
          int(shape::first_piece(block + 1, blocks, pieces))};
}
