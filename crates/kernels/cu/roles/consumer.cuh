// The consumer warps: the state of each of their threads, and the block's part of a matrix.
#pragma once
#include "../ptx/barrier.cuh"
#include "../ring.cuh"

// A consumer thread's state. The cursor, which names the next stage, is the same in every warp.
struct Consumer {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // False once a wait has failed; all consumers of the block exit together at the next barrier.
  bool ok = true;
  // Empty in builds without the X-ray.
  ::xray::Notes log;

  __device__ __forceinline__ int warp() const { return threadIdx.x / 32; }
  __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
  __device__ __forceinline__ int thread() const { return threadIdx.x; }

  __device__ __forceinline__ bool sync() {
    ok = ptx::consumers_sync_all<shape::CONSUMERS>(ok);
    return ok;
  }
};

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
