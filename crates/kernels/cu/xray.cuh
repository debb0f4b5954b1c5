// The X-ray: clock readings of what a block does and waits for, left in global memory and read by
// the host after the step. In builds with ML_XRAY 0 every call is empty, and the machine code is
// that of sources without the calls, which a test shows: hence each call stands on lines of its
// own that begin with `xray::`.
//
// A stamp is the clock, and what the time from there to the next stamp of the same role is spent on.
// Three roles leave stamps:
//
//   thread 0        speaks for the consumers: phases, exchange, its own team's stages, barriers. It
//                   only writes to shared memory, since it is in everybody's way
//   loader lane     a wait for a stage, and the issue of each copy
//   observer lane   in a warp of its own (observer.cuh): the arrival of each copy; anchors; and it
//                   carries thread 0's stamps to global memory
#pragma once
#include "ptx.cuh"
#include "shape.cuh"

namespace xray {

constexpr bool ON = ML_XRAY;

static_assert(shape::LAYERS < int(abi::XRAY_NO_LAYER), "a layer is 8 bits of a stamp");

// ---- where stamps go

// A role's stamps so far; those beyond the buffer are counted and lost.
struct Log {
  u32 count = 0;
};

constexpr u32 CONSUMER_AT = sizeof(abi::XrayHeader);
constexpr u32 LOADER_AT = CONSUMER_AT + 8 * abi::XRAY_CONSUMER;
constexpr u32 ARRIVALS_AT = LOADER_AT + 8 * abi::XRAY_LOADER;
constexpr u32 ANCHORS_AT = ARRIVALS_AT + 8 * abi::XRAY_ARRIVALS;
static_assert(ANCHORS_AT + 16 * abi::XRAY_ANCHORS == abi::XRAY_BLOCK_BYTES, "as on the host");

// Computed anew for each stamp: kept in registers, it would make the kernel spill.
__device__ __forceinline__ u8* buffers(const abi::StepArgs& args) {
  return args.xray + u64(ptx::block()) * abi::XRAY_BLOCK_BYTES;
}

__device__ __forceinline__ abi::XrayHeader* header(const abi::StepArgs& args) {
  return reinterpret_cast<abi::XrayHeader*>(buffers(args));
}

template <u32 AT, u32 ROOM>
__device__ __forceinline__ void put(const abi::StepArgs& args, Log& log, u32 clock, u32 tag) {
  if (args.xray != nullptr && log.count < ROOM) {
    *reinterpret_cast<uint2*>(buffers(args) + AT + 8 * log.count) = {clock, tag};
  }
  log.count++;
}

// In the detail of thread 0's stamps after a gather: the rest of it says which.
constexpr u32 GATHERED = 0x8000;

// What a stamp says besides the clock. The detail depends on the kind: see the callers.
__device__ __forceinline__ u32 tag_of(abi::EventKind kind, abi::Phase phase, u32 layer, u32 detail = 0) {
  return static_cast<u32>(kind) | static_cast<u32>(phase) << 4 |
         min(layer, abi::XRAY_NO_LAYER) << 8 | detail << 16;
}

// ---- the consumers

// Stamps on their way from thread 0 to the observer. An entry that is zero is free. The observer
// looks every few dozen clocks, so that it is a stamp or two behind.
constexpr u32 MAIL = 128;
// A block's gathers by the phase they are of and whether it is of partials.
constexpr int GATHERS = 16;

struct Words {
  // Clock at the beginning of the launch: what keys count from.
  u32 begin;
  u64 mail[MAIL];
  // Of each warp's threads that had to poll, the last one: a key (see saw). Zero where all values
  // were there. The observer clears them; the same gather comes again a layer later.
  u32 latest[GATHERS][shape::CONSUMER_WARPS];
  // Anchors that were taken before the first barrier: one.
  u32 anchors;
  // Stamps that thread 0 has sent, once it has sent its last.
  u32 sent;
};

static __shared__ Words words;

__device__ __forceinline__ int gather_of(abi::Phase phase, bool partials) {
  return 2 * static_cast<int>(phase) + partials;
}

// In `log` is how many stamps were sent.
__device__ __forceinline__ void send(Log& log, u32 clock, u32 tag) {
  ptx::store_shared(&words.mail[log.count % MAIL], u64(tag) << 32 | clock);
  log.count++;
}

__device__ __forceinline__ void stamp(Log& log, abi::EventKind kind, abi::Phase phase, u32 layer) {
  if (!ON || threadIdx.x != 0) return;
  send(log, ptx::clock32(), tag_of(kind, phase, layer));
}

__device__ __forceinline__ void clear_words() {
  if (threadIdx.x == 0) words.sent = 0;
  for (u32 at = threadIdx.x; at < MAIL; at += blockDim.x) words.mail[at] = 0;
  for (u32 at = threadIdx.x; at < GATHERS * shape::CONSUMER_WARPS; at += blockDim.x) {
    words.latest[at / shape::CONSUMER_WARPS][at % shape::CONSUMER_WARPS] = 0;
  }
}

// After the first barrier of the launch: the first stamp is of its beginning (observer.cuh).
__device__ __forceinline__ void begun(Log& log) {
  if (!ON || threadIdx.x != 0) return;
  send(log, words.begin, tag_of(abi::EventKind::Work, abi::Phase::Embed, abi::NO_LAYER));
}

// A tick is 16 clocks, 8 ns on an H200; after 2^19 of them, 4 ms, they begin anew.
constexpr int TICK_BITS = 4;
constexpr int PAIR_BITS = 13;
constexpr u32 PAIR_MOST = (1u << PAIR_BITS) - 1;
static_assert(shape::larger(shape::WIDEST, shape::QKV_DIM) / 2 < PAIR_MOST,
              "a pair of a slot's units has a number");
static_assert(shape::HEADS * shape::KV_SPLITS < PAIR_MOST, "and so has a partial result");

// When a thread saw its last value that was not there at the first look, in ticks, and behind it
// 1 + which pair of the slot's units that was. 0 where all were there.
struct Arrival {
  u32 key = 0;
};

// The clock's bits from a tick up, in the place of a key's ticks: they wrap, and so do differences.
__device__ __forceinline__ u32 ticks_of(u32 clock) {
  return (clock << (PAIR_BITS - TICK_BITS)) & ~PAIR_MOST;
}

// Called by every thread for every value that it had to poll.
__device__ __forceinline__ void saw(Arrival& arrival, int index) {
  if (!ON) return;
  arrival.key = ticks_of(ptx::clock32()) | (1u + u32(index) / 2);
}

// What a block's partial results say instead of a pair, since each split has a slot: which head and
// split they are of, from 1.
__device__ __forceinline__ u32 partial_of(u64 unit) {
  return 1 + u32(unit - shape::PARTIALS_BASE) % shape::LAYER_PARTIALS / shape::PARTIAL_UNITS;
}

// This thread has all its values of the slot that begins at `unit`, counted from the first slot.
// All threads of the warp come here together. Keys are compared as they are: in the gather in which
// the ticks begin anew, the last of a warp may be another.
__device__ __forceinline__ void took(const Arrival& arrival, abi::Phase phase, u64 unit) {
  if (!ON) return;
  u32 latest = __reduce_max_sync(~0u, arrival.key);
  if (threadIdx.x % 32 != 0 || latest == 0) return;
  const bool partials = unit >= shape::PARTIALS_BASE && unit < shape::FINAL_BASE;
  if (partials) latest = (latest & ~PAIR_MOST) | partial_of(unit);
  words.latest[gather_of(phase, unit >= shape::PARTIALS_BASE)][threadIdx.x / 32] = latest;
}

// After the barrier that ends a gather: what followed the last value is `now`'s. The observer finds
// out when that was, and of which pair of units; `of` tells it where to look.
__device__ __forceinline__ void gathered(Log& log, abi::Phase of,
                                         bool partials, abi::Phase now, u32 layer) {
  if (!ON || threadIdx.x != 0) return;
  send(log, ptx::clock32(),
       tag_of(abi::EventKind::Work, now, layer, GATHERED | gather_of(of, partials)));
}

// The last stamp.
__device__ __forceinline__ void end(Log& log) {
  if (!ON || threadIdx.x != 0) return;
  // Before the stamp that tells the observer to look.
  *const_cast<volatile u32*>(&words.sent) = log.count + 1;
  stamp(log, abi::EventKind::Unrecorded, abi::Phase::Argmax, abi::NO_LAYER);
}

// ---- the loader

__device__ __forceinline__ void put_loader(const abi::StepArgs& args, Log& log, u32 tag) {
  put<LOADER_AT, abi::XRAY_LOADER>(args, log, ptx::clock32(), tag);
}

__device__ __forceinline__ void loader_looks(const abi::StepArgs& args, Log& log, u64* empty,
                                             u32 parity, abi::Phase phase, u32 layer) {
  if (!ON || ptx::mbarrier_test(empty, parity)) return;
  put_loader(args, log, tag_of(abi::EventKind::WaitRingEmpty, phase, layer));
}

// A copy is about to be issued. The detail is its size in units of 16 bytes.
__device__ __forceinline__ void issue(const abi::StepArgs& args, Log& log, u32 bytes,
                                      abi::Phase phase, u32 layer) {
  if (!ON) return;
  put_loader(args, log, tag_of(abi::EventKind::Work, phase, layer, bytes / 16));
}

__device__ __forceinline__ void loader_ends(const abi::StepArgs& args, Log& log) {
  if (!ON) return;
  put_loader(args, log, tag_of(abi::EventKind::Unrecorded, abi::Phase::LmHead, abi::NO_LAYER));
  if (args.xray != nullptr) header(args)->loader = log.count;
}

}  // namespace xray
