// Bounded waits: every spin has an end, and names itself when it gets there.
#pragma once
#include "ptx.cuh"
#include "shape.cuh"

// What a wait is for, if it has to say so.
struct Wait {
  abi::WaitKind kind;
  u32 layer;
  abi::Phase phase;
  // Exchange: index of the unit in the slots. Ring: the stage.
  u32 unit;
  // Epoch, or parity.
  u32 expected;
};

// Spins between two looks at the clock and the abort word.
constexpr u32 SPINS_PER_LOOK = 64;

// Time for the victims of a failed wait to time out too, before the cause is reported.
constexpr u32 GRACE_NS = 1000000;

// What a block's consumers, and its loader, waited for when they gave up: a note in shared memory,
// left by whoever is first, and dealt with once, when the role leaves. Code that stands in every
// wait is code that every phase fetches.
enum Role : int { CONSUMERS = 0, LOADER = 1 };
constexpr u32 TIMED_OUT = abi::FAULT_FILLED + 1;

static __shared__ abi::FaultRecord notes[2];

// Before the first barrier of the launch, one thread.
__device__ __forceinline__ void clear_notes() {
  notes[CONSUMERS].state = notes[LOADER].state = 0;
}

__device__ __forceinline__ abi::FaultRecord& own_note() {
  return notes[threadIdx.x < shape::CONSUMERS ? CONSUMERS : LOADER];
}

__device__ __forceinline__ void leave_note(const Wait& wait, u32 seen, u32 state) {
  abi::FaultRecord& note = own_note();
  if (atomicCAS(&note.state, 0u, state) != 0u) return;
  note.kind = static_cast<u32>(wait.kind);
  note.warp = threadIdx.x / 32;
  note.layer = wait.layer;
  note.phase = static_cast<u32>(wait.phase);
  note.unit = wait.unit;
  note.expected = wait.expected;
  note.seen = seen;
}

// Whether a wait that has lasted since `begin` is over: it took more than `times` the patience, or
// another block gave up, or a wait of this role was over before: on its way out a warp meets more
// of them. `seen` is what the word held. The role is to leave the launch then.
__device__ __forceinline__ bool is_over(const abi::StepArgs& args, u32 begin, u32 times,
                                        const Wait& wait, u32 seen) {
  const bool aborted = ptx::load_relaxed(&args.control->abort) != 0 ||
                       *reinterpret_cast<volatile u32*>(&own_note().state) != 0;
  const u32 lasted = ptx::global_timer_1024ns() - begin;
  if (!aborted && u64(lasted) << 10 <= times * args.patience_ns) return false;
  leave_note(wait, seen, aborted ? abi::FAULT_FILLED : TIMED_OUT);
  return true;
}

// ---- leaving: one thread of a role, after all of them gave up

// Of waits that fail together the cause is to be named, and not its victims: the first in the
// order in which data flows, and of one phase its weights before its values.
__device__ __forceinline__ u32 rank_of(const abi::FaultRecord& note) {
  const u32 is_exchange = note.kind == static_cast<u32>(abi::WaitKind::Exchange);
  return note.layer << 8 | note.phase << 1 | is_exchange;
}

__device__ __forceinline__ void copy_note(abi::FaultRecord* to, const abi::FaultRecord& note, u32 epoch) {
  to->kind = note.kind;
  to->block = blockIdx.x;
  to->warp = note.warp;
  to->layer = note.layer;
  to->phase = note.phase;
  to->unit = note.unit;
  to->expected = note.expected;
  to->seen = note.seen;
  to->epoch = epoch;
}

// Tells the host what the role waited for, and, if that is the cause, every block to leave. A trap
// would take the context, and device memory with it.
__device__ __forceinline__ void leave(const abi::StepArgs& args, Role role) {
  const abi::FaultRecord& note = notes[role];
  if (note.state == 0) return;
  abi::FaultRecord* mine = args.waits + 2 * blockIdx.x + role;
  copy_note(mine, note, args.epoch);
  mine->state = abi::FAULT_FILLED;
  if (note.state != TIMED_OUT) return;
  abi::Control* control = args.control;
  atomicMax(&control->rank_inverted, ~rank_of(note));
  for (u64 begin = ptx::global_timer_ns(); ptx::global_timer_ns() - begin < GRACE_NS;) {}
  if (ptx::load_relaxed(&control->rank_inverted) == ~rank_of(note)) {
    if (atomicCAS(&control->fault_claimed, 0u, 1u) == 0u) {
      copy_note(args.fault, note, args.epoch);
      // Release: whoever sees the state sees the record.
      ptx::store_release_system(&args.fault->state, abi::FAULT_FILLED);
    }
    ptx::store_relaxed(&control->abort, 1u);
  }
}
