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

// Of waits that fail together the cause is to be named, and not its victims: the first in the
// order in which data flows, and of one phase its weights before its values.
__device__ __forceinline__ u32 rank_of(const Wait& wait) {
  const u32 is_exchange = wait.kind == abi::WaitKind::Exchange;
  return wait.layer << 8 | static_cast<u32>(wait.phase) << 1 | is_exchange;
}

// Writes the first fault of the launch where the host can read it, and tells every block to
// leave. A trap would take the context, and device memory with it. Everything by value: an
// argument whose address is taken would live in local memory.
__device__ __forceinline__ void report_fault(abi::Control* control, abi::FaultRecord* record, u32 epoch,
                                          Wait wait, u32 seen) {
  atomicMax(&control->rank_inverted, ~rank_of(wait));
  for (u64 begin = ptx::global_timer_ns(); ptx::global_timer_ns() - begin < GRACE_NS;) {}
  if (ptx::load_relaxed(&control->rank_inverted) != ~rank_of(wait)) return;
  if (atomicCAS(&control->fault_claimed, 0u, 1u) == 0u) {
    record->kind = static_cast<u32>(wait.kind);
    record->block = blockIdx.x;
    record->warp = threadIdx.x / 32;
    record->layer = wait.layer;
    record->phase = static_cast<u32>(wait.phase);
    record->unit = wait.unit;
    record->expected = wait.expected;
    record->seen = seen;
    record->epoch = epoch;
    // Release: whoever sees the state sees the record.
    ptx::store_release_system(&record->state, abi::FAULT_FILLED);
  }
  ptx::store_relaxed(&control->abort, 1u);
}

// Whether a wait that has lasted since `begin` is over: it took more than `times` the patience, or
// another block gave up. `seen` is what the word held, to be reported.
__device__ __forceinline__ bool is_over(const abi::StepArgs& args, u32 begin, u32 times,
                                        const Wait& wait, u32 seen) {
  if (ptx::load_relaxed(&args.control->abort) != 0) return true;
  const u32 lasted = ptx::global_timer_1024ns() - begin;
  if (u64(lasted) << 10 <= times * args.patience_ns) return false;
  report_fault(args.control, args.fault, args.epoch, wait, seen);
  // Whoever is not the cause waits for the cause to say so.
  return ptx::load_relaxed(&args.control->abort) != 0;
}
