// The consumer warps: what each of their threads knows of itself, and the block's part of a matrix.
#pragma once
#include "../ptx/barrier.cuh"
#include "../ring.cuh"

// The consumer warps' place: which stage comes next. Same for every warp.
struct Consumer {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // False once a wait has failed; all consumers of the block leave together at the next barrier.
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
// suffice for a vocabulary's tiles times 256 blocks, and a 64-bit division is 150 instructions.
struct TileRange {
  int begin, end;
};

__device__ __forceinline__ TileRange tiles_of_block(int count) {
  const u32 block = blockIdx.x, blocks = gridDim.x, pieces = count;
  return {int(shape::first_piece(block, blocks, pieces)),
          int(shape::first_piece(block + 1, blocks, pieces))};
}
