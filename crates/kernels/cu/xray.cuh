// The X-ray: clock readings of a block's work and waits, written to global memory and read by the
// host after the step. In builds with ML_XRAY 0 every call is empty, and the machine code equals
// that of sources without the calls. A test checks this by removing the calls, so each call is on
// separate lines that begin with `xray::`.
//
// Three roles of a block are recorded:
//
//   consumers       thread 0 represents them: it notes each moment, and the watcher, a lane in a
//                   separate warp, reads the clock when it sees the note (roles/watcher.cuh)
//   loader lane     records when it looked for a free stage, and when it issued the copy
//   weight stream   the observer, a lane in another warp, records when every copy arrives, and
//                   takes anchors
//
// The consumers are the critical path: there, a note is one store to shared memory that waits for
// nothing. Reading and storing the clock there cost 2% of a token on an H200 (notes/xray.md). The
// host decodes the notes.
#pragma once
#include "ptx/clock.cuh"
#include "ptx/memory.cuh"
#include "shape.cuh"

namespace xray {

constexpr bool ON = shape::XRAY;

static_assert(shape::LAYERS < int(abi::XRAY_NO_LAYER), "a layer is 8 bits of a copy's record");
static_assert(shape::SLOT_UNITS < 1ull << (32 - abi::XRAY_MOMENT_BITS),
              "a unit's number is the rest of a note");

// ---- where the records are written

constexpr u32 BLOCK_BYTES = sizeof(abi::XrayBlock);
constexpr u32 NOTES_AT = __builtin_offsetof(abi::XrayBlock, notes);
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
  // The low half of the address of the last units that any thread had to poll. The thread that saw
  // the last units wrote last.
  u32 last;
  // Clock at the beginning of the launch.
  u32 begin;
  // 1 + copies issued, once the loader has issued its last.
  u32 issued;
  // Not 0: the watcher has seen the last note.
  u32 ended;
};

static __shared__ Words words;

// Addresses in shared memory, kept in registers, since computing one takes longer than the store:
// where thread 0's next note goes, and `last`.
struct Notes {
  u32 at = 0, last = 0;
  // Whether this thread has waited for a pair in the running poll.
  bool has_waited = false;
};

__device__ __forceinline__ void note(Notes& log, abi::Moment moment, u32 which = 0) {
  if (!ON) return;
  ptx::store_shared_if(threadIdx.x == 0, log.at,
                       static_cast<u32>(moment) | which << abi::XRAY_MOMENT_BITS);
  constexpr u32 WITHIN = sizeof(words.notes) - 1;
  log.at = (log.at & ~WITHIN) | ((log.at + 4) & WITHIN);
}

// Called after the first barrier of the launch.
__device__ __forceinline__ void begun(Notes& log) {
  if (!ON) return;
  log.at = ptx::shared_address(words.notes);
  log.last = ptx::shared_address(&words.last);
  note(log, abi::Moment::Began);
}

// Called by every thread before it polls a set of pairs.
__device__ __forceinline__ void begin_polls(Notes& log) {
  if (!ON) return;
  log.has_waited = false;
}

// Called by every thread for every pair of units that it had to poll. A thread waits for its pairs
// one after another: a later pair that is there at its first poll arrived during the wait for an
// earlier one, so it is not the last.
__device__ __forceinline__ void saw(Notes& log, const u64* units, u32 polls) {
  if (!ON) return;
  const bool is_last = polls > 1 || !log.has_waited;
  log.has_waited = true;
  ptx::store_shared_if(is_last, log.last, u32(reinterpret_cast<u64>(units)));
}

// Called before the first barrier of the launch.
__device__ __forceinline__ void begin() {
  if constexpr (ON) {
    for (u32 at = threadIdx.x; at < NOTES; at += blockDim.x) words.notes[at] = 0;
    if (threadIdx.x == 0) {
      words.last = words.issued = words.ended = 0;
      words.begin = ptx::clock32();
    }
  }
}

// ---- the loader

// A copy's record: when the loader first found no free stage (0: one was free), when it issued the
// copy; kind, phase, layer, and the size in units of 16 bytes. The last record stands for no copy.
using Copy = uint4;
using Copies = Log<COPIES_AT, abi::XRAY_COPIES, Copy>;

struct Stamps {
  Copies log;
  u32 looked = 0;

  __device__ __forceinline__ explicit Stamps(const abi::StepArgs& args) : log(args) {}

  __device__ __forceinline__ void put(abi::EventKind kind, abi::Phase phase, u32 layer, u32 detail) {
    log.put({looked, ptx::clock32(),
             abi::copy_tag(static_cast<u32>(kind), static_cast<u32>(phase),
                           min(layer, abi::XRAY_NO_LAYER), detail),
             0});
    looked = 0;
  }
};

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
