// Measures read bandwidth: with plain 16-byte loads, and with bulk copies through a ring in shared
// memory. Every word read goes into an exclusive or that the host checks, so that no read is
// skipped.
#include "bound.cuh"

constexpr int WARPS_MAX = 32;

__device__ __forceinline__ u32 word_at(u32 index) {
  u32 word = index * 0x9e3779b9u;
  word = (word ^ word >> 16) * 0x85ebca6bu;
  word = (word ^ word >> 13) * 0xc2b2ae35u;
  return word ^ word >> 16;
}

__device__ __forceinline__ u32 folded(const uint4& words) {
  return words.x ^ words.y ^ words.z ^ words.w;
}

// Writes the block's exclusive or to the block's word. Every thread of the block calls it.
__device__ __forceinline__ void post_xor(u32 value, u32* out) {
  __shared__ u32 parts[WARPS_MAX];
  for (int apart = 16; apart > 0; apart /= 2) value ^= __shfl_xor_sync(~0u, value, apart);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (u32 warp = 1; warp < blockDim.x / 32; warp++) value ^= parts[warp];
  out[blockIdx.x] = value;
}

extern "C" __global__ void __launch_bounds__(512) probe_fill(uint4* to, u64 units) {
  const u64 stride = u64(gridDim.x) * blockDim.x;
  for (u64 unit = u64(blockIdx.x) * blockDim.x + threadIdx.x; unit < units; unit += stride) {
    const u32 word = static_cast<u32>(unit) * 4;
    to[unit] = make_uint4(word_at(word), word_at(word + 1), word_at(word + 2), word_at(word + 3));
  }
}

// Computes the expected exclusive or without reading memory.
extern "C" __global__ void __launch_bounds__(512)
    probe_expect(u64 first_unit, u64 units, u32* out) {
  const u64 stride = u64(gridDim.x) * blockDim.x;
  u32 all = 0;
  for (u64 unit = u64(blockIdx.x) * blockDim.x + threadIdx.x; unit < units; unit += stride) {
    const u32 word = static_cast<u32>(first_unit + unit) * 4;
    all ^= word_at(word) ^ word_at(word + 1) ^ word_at(word + 2) ^ word_at(word + 3);
  }
  post_xor(all, out);
}

extern "C" __global__ void __launch_bounds__(512)
    probe_read_plain(const uint4* from, u64 first_unit, u64 units, u32* out) {
  constexpr int AHEAD = 8;
  const uint4* source = from + first_unit;
  const u64 stride = u64(gridDim.x) * blockDim.x;
  u64 unit = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  u32 all = 0;
  for (; unit + (AHEAD - 1) * stride < units; unit += AHEAD * stride) {
    uint4 words[AHEAD];
#pragma unroll
    for (int at = 0; at < AHEAD; at++) words[at] = ops::load_stream(source + unit + at * stride);
#pragma unroll
    for (int at = 0; at < AHEAD; at++) all ^= folded(words[at]);
  }
  for (; unit < units; unit += stride) all ^= folded(ops::load_stream(source + unit));
  post_xor(all, out);
}

constexpr int CONSUMER_WARPS = PROBE_CONSUMER_WARPS;
constexpr int STAGES_MAX = PROBE_STAGES_MAX;

struct Ring {
  unsigned char* bytes;
  u64* full;
  u64* empty;
  u32 stage_bytes, stages;
};

// The loader, one thread: waits for an empty stage, sets the expected bytes, starts the copy.
__device__ __forceinline__ void load_all(const Bound& bound, const Ring& ring,
                                         const unsigned char* from, u32 chunks) {
  for (u32 chunk = 0; chunk < chunks; chunk++) {
    const u32 stage = chunk % ring.stages, turn = chunk / ring.stages;
    if (turn > 0) {
      const u32 parity = (turn - 1) & 1;
      if (!wait_until(bound, What::StageEmpty, stage, parity, [&](u32&) {
            return ptx::mbarrier_try_wait(&ring.empty[stage], parity);
          })) {
        return;
      }
    }
    ptx::mbarrier_arrive_expect(&ring.full[stage], ring.stage_bytes);
    ptx::bulk_copy(ring.bytes + u64(stage) * ring.stage_bytes, from + u64(chunk) * ring.stage_bytes,
                   ring.stage_bytes, &ring.full[stage]);
  }
}

// The consumers: wait for a full stage, read all of it, release it.
__device__ __forceinline__ u32 read_all(const Bound& bound, const Ring& ring, u32 chunks) {
  u32 all = 0;
  for (u32 chunk = 0; chunk < chunks; chunk++) {
    const u32 stage = chunk % ring.stages, parity = chunk / ring.stages & 1;
    const bool ok = wait_until(bound, What::StageFull, stage, parity, [&](u32&) {
      return ptx::mbarrier_try_wait(&ring.full[stage], parity);
    });
    if (!__all_sync(~0u, ok)) return all;
    const auto* words = reinterpret_cast<const uint4*>(ring.bytes + u64(stage) * ring.stage_bytes);
#pragma unroll 4
    for (u32 at = threadIdx.x; at < ring.stage_bytes / 16; at += CONSUMER_WARPS * 32) {
      all ^= folded(words[at]);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.empty[stage]);
  }
  return all;
}

// Every block reads a contiguous range of `chunks` stages.
extern "C" __global__ void __launch_bounds__((CONSUMER_WARPS + 1) * 32)
    probe_read_bulk(Control* control, u64 timeout_ns, const uint4* from, u64 first_unit,
                    u32 chunks, u32 stage_bytes, u32 stages, u32* out) {
  extern __shared__ __align__(128) unsigned char bytes[];
  __shared__ u64 full[STAGES_MAX], empty[STAGES_MAX];
  const Bound bound = {control, timeout_ns};
  const Ring ring = {bytes, full, empty, stage_bytes, stages};
  if (threadIdx.x == 0) {
    for (u32 stage = 0; stage < stages; stage++) {
      ptx::mbarrier_init(&full[stage], 1);
      ptx::mbarrier_init(&empty[stage], CONSUMER_WARPS);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  u32 all = 0;
  if (threadIdx.x < CONSUMER_WARPS * 32) {
    all = read_all(bound, ring, chunks);
  } else if (threadIdx.x == CONSUMER_WARPS * 32) {
    const auto* mine = reinterpret_cast<const unsigned char*>(from + first_unit);
    load_all(bound, ring, mine + u64(blockIdx.x) * chunks * stage_bytes, chunks);
  }
  __syncthreads();
  post_xor(all, out);
}
