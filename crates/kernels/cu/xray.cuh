// The X-ray: clock readings of a block's work and waits, written to global memory and read by the
// host after the step. In builds with ML_XRAY 0 every call is empty, and the machine code equals
// that of sources without the calls. A test checks this by removing the calls, so each call is on
// separate lines that begin with `xray::`.
//
// Four roles of a block are recorded:
//
//   consumers       thread 0 represents them: it notes each moment, and the watcher, a lane in a
//                   separate warp, reads the clock when it sees the note (roles/watcher.cuh)
//   epilogue warp   records when the last consumer warp had handed over a round's sums, and when it
//                   had published them
//   loader lane     records when it looked for a free stage, and when it issued the copy
//   weight stream   the observer, a lane in another warp, records when every copy arrives, and
//                   takes anchors
//
// The consumer warps do not wait for one another between a gather and its product, so thread 0's
// notes alone would say when the first warp is done, not the last. Two things are of all warps: the
// epilogue's begin, and the last units that any thread of the block had to wait for. The host takes
// a gather to last until the latter, and a product until the former.
//
// The consumers are the critical path: there, a note is one store to shared memory that waits for
// nothing. Reading and storing the clock at every note cost 2% of a token on an H200 (notes/xray.md).
// Only a thread that had to wait reads the clock, once a wait. The host decodes the notes.
#pragma once
#include "ptx/clock.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/note.cuh"
#include "shape.cuh"

namespace xray {

constexpr bool ON = shape::XRAY;

static_assert(shape::LAYERS < int(abi::XRAY_NO_LAYER), "a layer is 8 bits of a copy's record");
static_assert(shape::SLOT_UNITS < 1ull << (32 - abi::XRAY_MOMENT_BITS),
              "a unit's number is the rest of a note");

// ---- where the records are written

constexpr u32 BLOCK_BYTES = sizeof(abi::XrayBlock);
constexpr u32 NOTES_AT = __builtin_offsetof(abi::XrayBlock, notes);
constexpr u32 ROUNDS_AT = __builtin_offsetof(abi::XrayBlock, rounds);
constexpr u32 COPIES_AT = __builtin_offsetof(abi::XrayBlock, copies);
constexpr u32 ARRIVALS_AT = __builtin_offsetof(abi::XrayBlock, arrivals);
constexpr u32 ANCHORS_AT = __builtin_offsetof(abi::XrayBlock, anchors);

// A role's records so far. Records beyond the buffer's end are counted but not stored.
template <u32 AT, u32 ROOM, class Record>
struct Log {
  // The block's buffers; null if the step is not recorded.
  u8* to;
  u32 count = 0;

  __device__ __forceinline__ explicit Log(const abi::StepArgs& args)
      : to(args.xray == nullptr ? nullptr : args.xray + u64(ptx::block()) * BLOCK_BYTES) {}

  __device__ __forceinline__ void put(const Record& record) {
    if (to != nullptr && count < ROOM) reinterpret_cast<Record*>(to + AT)[count] = record;
    count++;
  }

  __device__ __forceinline__ abi::XrayHeader* header() const {
    return reinterpret_cast<abi::XrayHeader*>(to);
  }
};

// ---- the consumers

// Capacity for notes that the watcher has not read yet. It looks every few dozen clocks.
constexpr u32 NOTES = 128;

struct alignas(4 * NOTES) Words {
  // From thread 0 to the watcher: a moment, and `which` in the bits above. Zero: not written yet.
  u32 notes[NOTES];
  // The unit that any thread of the block waited for last: the low half of its address, and the clock
  // when the thread had seen it. The thread that saw its units last wrote last.
  uint2 last;
  // Clock at the beginning of the launch.
  u32 begin;
  // 1 + copies issued, once the loader has issued its last.
  u32 issued;
  // Not 0: the watcher has seen the last note.
  u32 ended;
  // Clock when the block had published the best of its logits.
  u32 posted;
};

static __shared__ Words words;

// An address among the notes less this is how far it is from the first.
constexpr u32 WITHIN = sizeof(words.notes) - 1;
static_assert(alignof(Words) == WITHIN + 1, "the first note lies at a multiple of the notes' size");

// Where thread 0's next note goes: an address in shared memory, kept in a register, since computing one
// takes longer than the store.
struct Notes {
  u32 at = 0;

  // The address of the first note, and of `words`.
  __device__ __forceinline__ u32 base() const { return at & ~WITHIN; }
};

// The number of a layer's matvec: LAYER_MATVECS a layer. The LM head is the first one of a layer more.
__device__ __forceinline__ u32 matvec(u32 layer, const PhaseRow& row) {
  return layer * LAYER_MATVECS + row.index;
}

__device__ __forceinline__ void note(Notes& log, abi::Moment moment, u32 which = 0) {
  if (!ON) return;
  ptx::store_shared_if(threadIdx.x == 0, log.at,
                       static_cast<u32>(moment) | which << abi::XRAY_MOMENT_BITS);
  log.at = log.base() | ((log.at + 4) & WITHIN);
}

// Called after the first barrier of the launch.
__device__ __forceinline__ void begun(Notes& log) {
  if (!ON) return;
  log.at = ptx::shared_address(words.notes);
  note(log, abi::Moment::Began);
}

// Which of its units a waiting thread missed at its last look: the last of those.
struct Missed {
  int at = 0;
};

// Called by every thread that waits, before every look at each of its units: whether it is missing.
__device__ __forceinline__ void misses(Missed& missed, bool is_missing, int at) {
  if (!ON) return;
  if (is_missing) missed.at = at;
}

// Called by every thread that waits, after every look: whether it has seen all of its units, and the one
// that it missed before this look, which is its last.
__device__ __forceinline__ void saw(const Notes& log, bool all, const u64* unit) {
  if (!ON) return;
  if (!all) return;
  constexpr u32 LAST = __builtin_offsetof(Words, last);
  ptx::store_shared_pair(log.base() + LAST, u32(reinterpret_cast<u64>(unit)), ptx::clock32());
}

// Called before the first barrier of the launch.
__device__ __forceinline__ void begin() {
  if constexpr (ON) {
    for (u32 at = threadIdx.x; at < NOTES; at += blockDim.x) words.notes[at] = 0;
    if (threadIdx.x == 0) {
      words.last = {0, 0};
      words.issued = words.ended = words.posted = 0;
      words.begin = ptx::clock32();
    }
  }
}

// The unit that was waited for last, and the clock then: as it is in a record, 1 + the unit's number.
__device__ __forceinline__ uint2 last_unit(const abi::StepArgs& args) {
  const uint2 last = ptx::load_shared_pair(ptx::shared_address(&words.last));
  if (last.x == 0) return {0, last.y};
  return {1 + (last.x - u32(reinterpret_cast<u64>(args.slots))) / u32(sizeof(u64)), last.y};
}

// ---- the epilogue

// When a round's sums were complete, and when they were published.
struct Rounds {
  u32 begin, end;
};

// Called by every lane when all warps' sums of a round are there.
__device__ __forceinline__ void sums_begin(Rounds& rounds) {
  if (!ON) return;
  rounds.begin = ptx::clock32();
}

// Called after the round's values are published.
__device__ __forceinline__ void sums_end(Rounds& rounds) {
  if (!ON) return;
  rounds.end = ptx::clock32();
}

// Called when nobody waits for the epilogue any more: writes the record of its `at`-th round. It also says
// which unit any thread of the block has waited for last, and when that was seen. (The unit may be of the
// next gather, if some warp was faster there than the epilogue here: each phase and layer has units of its
// own, so the host knows.)
__device__ __forceinline__ void keep(const Rounds& rounds, const abi::StepArgs& args, u32 at) {
  if (!ON) return;
  if (threadIdx.x % 32 != 0) return;
  Log<ROUNDS_AT, abi::XRAY_ROUNDS, uint4> log(args);
  const uint2 last = last_unit(args);
  log.count = at;
  log.put({rounds.begin, rounds.end, last.y, last.x});
  if (log.to != nullptr) log.header()->rounds = log.count;
}

// Called by every lane when the best of this block's logits is published.
__device__ __forceinline__ void best_published() {
  if (!ON) return;
  if (threadIdx.x % 32 != 0) return;
  words.last = {0, 0};
  ptx::store_shared(&words.posted, ptx::clock32());
}

// Called by every lane that has seen a block's best logit.
__device__ __forceinline__ void saw_best(const u64* unit, u32 looks) {
  if (!ON) return;
  if (looks > 1) words.last = {u32(reinterpret_cast<u64>(unit)), ptx::clock32()};
}

// Called at the epilogue's end. The last record is of no round but of the argmax: from the publication of
// this block's best logit to the end of all.
__device__ __forceinline__ void concluded(const abi::StepArgs& args, u32 rounds) {
  if (!ON) return;
  __syncwarp();
  keep({ptx::load_shared(&words.posted), ptx::clock32()}, args, rounds);
}

// ---- the loader

// A copy's record: when the loader first found no free stage (0: one was free), when it issued the copy;
// kind, phase, layer, and the size in units of 16 bytes (0: it handed a stage over unfilled); and when it
// began to wait for its own copies (0: it did not). The last record stands for no copy.
using Copy = uint4;
using Copies = Log<COPIES_AT, abi::XRAY_COPIES, Copy>;

struct Stamps {
  Copies log;
  u32 looked = 0, held = 0;

  __device__ __forceinline__ explicit Stamps(const abi::StepArgs& args) : log(args) {}

  __device__ __forceinline__ void put(abi::EventKind kind, abi::Phase phase, u32 layer, u32 detail) {
    log.put({looked, ptx::clock32(),
             abi::copy_tag(static_cast<u32>(kind), static_cast<u32>(phase),
                           min(layer, abi::XRAY_NO_LAYER), detail),
             held});
    looked = held = 0;
  }
};

// Called if as many copies are in flight as may be, before the wait for the oldest.
__device__ __forceinline__ void waits_for_copies(Stamps& stamps, u64* full, u32 parity) {
  if (!ON) return;
  if (!ptx::mbarrier_test(full, parity)) stamps.held = ptx::clock32() | 1u;
}

// Called if the next stage is not released yet.
__device__ __forceinline__ void waits_for_stage(Stamps& stamps) {
  if (!ON) return;
  stamps.looked = ptx::clock32() | 1u;
}

// Called before a copy is issued.
__device__ __forceinline__ void issue(Stamps& stamps, u32 bytes, abi::Phase phase, u32 layer) {
  if (!ON) return;
  stamps.put(abi::EventKind::Work, phase, layer, bytes / 16);
}

// Called after the last copy is issued.
__device__ __forceinline__ void loader_ends(Stamps& stamps) {
  if (!ON) return;
  const u32 copies = stamps.log.count;
  stamps.put(abi::EventKind::Unrecorded, abi::Phase::LmHead, abi::NO_LAYER, 0);
  if (stamps.log.to != nullptr) stamps.log.header()->copies = stamps.log.count;
  ptx::store_shared(&words.issued, 1 + copies);
}

}  // namespace xray
