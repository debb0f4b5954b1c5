// The loader: one lane that streams this block's weights through the ring, in the order of use, and
// never waits for an activation.
#pragma once
#include "../formats/tiles.cuh"
#include "../phases/share.cuh"
#include "../phases/work.cuh"
#include "../ring.cuh"
#include "consumer.cuh"

// Timeout for copies in flight when the stream ends. A copy takes microseconds: one that has not
// arrived by then was never issued (an injected fault).
constexpr u32 COPY_NS_MOST = 10000000;

// The loader lane's side of the ring. This lane arrives on `full` (with the copy's bytes) and waits
// on `empty`. One lane of each consumer warp arrives on `empty`; all of them wait on `full`.
struct Loader {
  const abi::StepArgs& args;
  Shared& shared;
  RingCursor cursor;
  // Empty in builds without the X-ray.
  ::xray::Stamps stamps;
  // Copies issued so far.
  u32 issued = 0;
  // Where every phase is a kernel: whether only those copies are issued that wait for nothing; and how many were
  // issued so, which the second walk through the same stages leaves out.
  bool is_first = false;
  u32 before = 0;

  // Waits until fewer than `most` copies are in flight: more only lengthen the queue before the
  // exchange (notes/chain.md). Returns false on abort.
  __device__ __forceinline__ bool wait_for_flight(u32 most, u32 layer, abi::Phase phase) {
    if (issued < most) return true;
    const u32 oldest = issued - most, stage = oldest % shape::STAGES;
    const u32 parity = oldest / shape::STAGES % 2, begin = ptx::global_timer_1024ns();
    xray::waits_for_copies(stamps, &shared.full[stage], parity);
    while (!ptx::mbarrier_try_wait(&shared.full[stage], parity)) {
      const Wait wait = {abi::WaitKind::RingFull, layer, phase, stage, parity};
      if (is_over(args, begin, 2, wait, parity ^ 1u)) return false;
    }
    return true;
  }

  // How many copies may be in flight. Keys and values come from L2 when all ranks of a head load the same. And
  // if the consumers are so close behind that they have taken the stage of LOW_WATER copies ago, one more.
  __device__ __forceinline__ u32 most_in_flight(abi::Phase phase) {
    if (phase == abi::Phase::LmHead) return shape::HEAD_FLIGHT;
    if (phase == abi::Phase::Attention) return shape::KV_FLIGHT;
    if (shape::LOW_WATER == 0 || issued < shape::LOW_WATER) return shape::FLIGHT;
    const u32 before = issued - shape::LOW_WATER;
    const bool is_low = ptx::mbarrier_test(&shared.empty[before % shape::STAGES], before / shape::STAGES % 2);
    return shape::FLIGHT + is_low;
  }

  // Loads one stage: `parts` parts of `bytes` bytes each, `stride` bytes apart; none: hands it over as it
  // is. Returns false on abort.
  __device__ __forceinline__ bool operator()(const u8* from, u32 bytes, u32 parts, u32 stride, u32 layer,
                                             abi::Phase phase) {
    const int stage = cursor.stage();
    const u32 most = most_in_flight(phase);
    if constexpr (BY_PHASE) {
      if (is_first && issued == shape::smaller(most, shape::STAGES)) return false;
      if (before > 0) {
        before--;
        return true;
      }
    }
    if (!wait_for_flight(most, layer, phase)) return false;
    if (!is_empty(shared, cursor)) {
      xray::waits_for_stage(stamps);
      if (!wait_empty(args, shared, cursor, layer, phase)) return false;
    }
    ptx::fence_proxy_async();
    xray::issue(stamps, parts * bytes, phase, layer);
    const bool injected = args.injected_kind == abi::INJECTED_NO_LOAD &&
                         args.injected_block == blockIdx.x && args.injected_layer == layer &&
                         args.injected_phase == static_cast<u32>(phase);
    if (parts == 0) {
      ptx::mbarrier_arrive(&shared.full[stage]);
    } else if (!injected) {
      ptx::mbarrier_arrive_expect(&shared.full[stage], parts * bytes);
#pragma unroll 1
      for (u32 part = 0; part < parts; part++) {
        ptx::bulk_copy(shared.ring[stage] + part * bytes, from + u64(part) * stride, bytes, &shared.full[stage]);
      }
    }
    cursor.advance();
    issued++;
    return true;
  }

  // Waits until every issued copy has arrived, with a timeout. Stages before the cursor were last
  // filled in the cursor's round, the others in the round before. A stage that was never filled
  // counts as complete, as in wait_empty.
  __device__ __forceinline__ void wait_for_copies() {
    const u32 begin = ptx::global_timer_1024ns();
#pragma unroll 1
    for (int stage = 0; stage < shape::STAGES; stage++) {
      const u32 parity = stage < cursor.stage() ? cursor.parity() : cursor.parity() ^ 1u;
      while (!ptx::mbarrier_try_wait(&shared.full[stage], parity)) {
        if (ptx::global_timer_1024ns() - begin > COPY_NS_MOST >> 10) return;
      }
    }
  }
};

// A matrix's tiles `begin` to `end`, `streamed` bytes of each, in pieces of at most one stage. Returns false
// on abort.
template <class Format>
__device__ __forceinline__ bool load_tiles(Loader& load, const u8* matrix, int begin, int end, int columns,
                                           int skip, int streamed, u32 layer, abi::Phase phase) {
#pragma unroll 1
  for (int tile = begin; tile < end; tile++) {
    const u8* from = matrix + u64(tile) * Tiles<Format>::bytes(columns) + skip;
#pragma unroll 1
    for (int at = 0; at < streamed; at += shape::STAGE_BYTES) {
      if (!load(from + at, min(streamed - at, shape::STAGE_BYTES), 1, 0, layer, phase)) return false;
    }
  }
  return true;
}

// This block's whole tiles of a matrix.
template <class W>
__device__ __forceinline__ bool load_matrix(Loader& load, const u8* matrix, u32 layer) {
  const int2 share = load.shared.shares[W::SHARE_AT];
  using Format = typename W::Format;
  if (!load_tiles<Format>(load, matrix, share.x, share.y, W::COLUMNS, 0,
                          Tiles<Format>::stream_bytes(W::COLUMNS), layer, W::ROW.phase)) {
    return false;
  }
  // Rounds are of W::TILES tiles.
  const int empty = (rounds_of<W>(load.shared) * W::TILES - (share.y - share.x)) * W::PIECES;
#pragma unroll 1
  for (int stage = 0; stage < empty; stage++) {
    if (!load(matrix, 0, 0, 0, layer, W::ROW.phase)) return false;
  }
  return true;
}

// One round of a share's keys (0) or values (1): whole groups if there is one share, whole chunks otherwise.
__device__ __forceinline__ bool load_round(Loader& load, const attention::Share& share, int kv_head, int which,
                                           int round, u32 layer) {
  using attention::POSITION_BYTES;
  const u32 cached = load.args.position, begin = share.chunk_begin(round, 0);
  const u8* from = attention::cache_of(load.args, layer, which, kv_head) + u64(begin) * POSITION_BYTES;
  constexpr u32 CHUNK_BYTES = shape::KV_CHUNK * POSITION_BYTES;
  if (share.splits == 1) {
    const u32 groups = min((cached - begin + attention::GROUP - 1) / attention::GROUP, attention::GROUPS);
    return load(from, groups * attention::GROUP_BYTES, 1, 0, layer, abi::Phase::Attention);
  }
  const u32 parts = share.chunk_begin(round, 1) < cached ? 2 : 1;
  return load(from, CHUNK_BYTES, parts, share.splits * CHUNK_BYTES, layer, abi::Phase::Attention);
}

// The keys and values of a share of the cache: of each batch first the keys, then the values, a stage a round.
__device__ __forceinline__ bool load_positions(Loader& load, const attention::Share& share, int kv_head,
                                               u32 layer) {
  // Another kernel may be about to write them, and their number may not be known.
  if (BY_PHASE && load.is_first) return false;
  const int rounds = share.rounds(load.args.position);
#pragma unroll 1
  for (int first = 0; first < rounds; first += attention::ROUNDS) {
    const int count = min(attention::ROUNDS, rounds - first);
#pragma unroll 1
    for (int at = 0; at < 2 * count; at++) {
      if (!load_round(load, share, kv_head, at / count, first + at % count, layer)) return false;
    }
  }
  return true;
}

// An item's tiles of the O projection: the parts of a stage are of neighbouring tiles.
__device__ __forceinline__ bool load_output_tiles(Loader& load, const attention::Item& item, const u8* matrix,
                                                  u32 layer) {
  using W = OutputWork;
  constexpr int STRIDE = Tiles<W::Format>::bytes(shape::Q_DIM);
  const u8* from = matrix + u64(item.rank) * shape::ITEM_TILES * STRIDE + item.kv_head * W::PART_BYTES;
#pragma unroll 1
  for (int piece = 0; piece < W::PIECES; piece++) {
    if (!load(from + u64(piece) * W::STAGE_PARTS * STRIDE, W::PART_BYTES, W::STAGE_PARTS, STRIDE, layer,
              abi::Phase::OProj)) {
      return false;
    }
  }
  return true;
}

// This block's items of attention and the O projection, in the consumers' order: item by item if every rank
// attends to all positions, else first all shares, then all tiles. Or what a kernel needs of it that only
// attends, or only projects.
template <bool ATTENDS, bool PROJECTS>
__device__ __forceinline__ bool load_attention(Loader& load, const u8* matrix, u32 layer) {
  const int2 items = load.shared.shares[O_PROJ_SHARE];
  const int splits = attention::splits_of(load.args);
#pragma unroll 1
  for (int at = items.x; ATTENDS && (attention::APART || splits > 1) && at < items.y; at++) {
    const attention::Item item = attention::item_of(at);
    if (item.rank < splits && !load_positions(load, {item.rank, splits}, item.kv_head, layer)) return false;
  }
#pragma unroll 1
  for (int at = items.x; PROJECTS && at < items.y; at++) {
    const attention::Item item = attention::item_of(at);
    if (!load_output_tiles(load, item, matrix, layer)) return false;
    if (ATTENDS && !attention::APART && splits == 1 && !load_positions(load, {0, 1}, item.kv_head, layer)) {
      return false;
    }
  }
  return true;
}

// This block's items of the down projection.
__device__ __forceinline__ bool load_down(Loader& load, const u8* matrix, u32 layer) {
  using W = Work<Down, LayerFormat>;
  const int2 items = load.shared.shares[DOWN_SHARE];
  constexpr int BYTES = Tiles<W::Format>::stream_bytes(W::COLUMNS);
#pragma unroll 1
  for (int item = items.x; item < items.y; item++) {
    const int tile = item / shape::DOWN_SPLITS, split = item % shape::DOWN_SPLITS;
    if (!load_tiles<W::Format>(load, matrix, tile, tile + 1, shape::INTERMEDIATE, split * BYTES, BYTES, layer,
                               abi::Phase::Down)) {
      return false;
    }
  }
  return true;
}

// Where every phase is a kernel: asks for this block's tiles of a later kernel's matrix to be brought into L2,
// so that memory has work between two kernels. As much of each block as a ring could hold.
template <class Format>
__device__ __forceinline__ void prefetch_tiles(const u8* matrix, int rows, int columns) {
  constexpr u32 BYTES_MOST = 1u << 17;
  const u32 tile_bytes = Tiles<Format>::bytes(columns);
  const int2 tiles = share_of(shape::tiles(rows, shape::TILE_ROWS));
  const u32 bytes = shape::smaller(u32(tiles.y - tiles.x) * tile_bytes, BYTES_MOST);
  const u8* from = matrix + u64(tiles.x) * tile_bytes;
#pragma unroll 1
  for (u32 at = 0; at < bytes; at += shape::STAGE_BYTES) {
    ptx::bulk_prefetch(from + at, shape::smaller(bytes - at, shape::STAGE_BYTES));
  }
}

template <class W>
__device__ __forceinline__ void prefetch_tiles(const u8* matrix) {
  prefetch_tiles<typename W::Format>(matrix, W::ROW.rows, W::ROW.columns);
}

// Loads this block's weights of the whole step, in the order of use. Returns false on abort.
__device__ __forceinline__ bool weight_stream(const abi::StepArgs& args, Loader& load) {
#pragma unroll 1
  for (u32 layer = 0; layer < shape::LAYERS; layer++) {
    const u8* base = args.weights + args.layer_base + u64(layer) * args.layer_stride;
    if (!load_matrix<Work<Qkv, LayerFormat>>(load, base + args.qkv, layer)) return false;
    if (!load_attention<true, true>(load, base + args.o_proj, layer)) return false;
    if (!load_matrix<Work<GateUp, LayerFormat>>(load, base + args.gate_up, layer)) return false;
    if (!load_down(load, base + args.down, layer)) return false;
  }
  if (!(args.flags & abi::STEP_HAS_HEAD)) return true;
  return load_matrix<Work<Head, HeadFormat>>(load, args.weights + args.lm_head, abi::NO_LAYER);
}
