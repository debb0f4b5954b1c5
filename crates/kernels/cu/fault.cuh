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

// Time for the victims of a failed wait to time out too, before the earliest of all is reported.
constexpr u32 GRACE_NS = 500000;

// A loader is always waiting where its consumers are: it waits longer than they do, so that it is
// only heard of when nobody else complains.
__device__ __forceinline__ u64 patience_of(const abi::StepArgs& args, abi::WaitKind kind) {
  return kind == abi::WaitKind::RingEmpty ? 2 * args.patience_ns : args.patience_ns;
}

// One wait that fails makes others fail, here and in other blocks; the one that began first is
// the cause. False if this wait was not it.
__device__ __noinline__ bool is_earliest(abi::Control* control, u64 begin) {
  atomicMax(&control->earliest_inverted, ~begin);
  for (u64 now = ptx::global_timer_ns(); ptx::global_timer_ns() - now < GRACE_NS;) {}
  return ptx::load_relaxed(&control->earliest_inverted) == ~begin;
}

// Writes the first fault of the launch where the host can read it, and tells every block to
// leave. A trap would take the context, and device memory with it. Everything by value: an
// argument whose address is taken would live in local memory.
__device__ __noinline__ void report_fault(abi::FaultRecord* record, abi::Control* control, u32 epoch,
                                          Wait wait, u32 seen) {
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

// Spins until `arrived()`; false if it timed out or another block gave up. `describe()` gives the
// wait to report, and what its word held.
template <class Arrived, class Describe>
__device__ __forceinline__ bool wait_until(const abi::StepArgs& args, abi::WaitKind kind,
                                           Arrived arrived, Describe describe) {
  if (arrived()) return true;
  const u64 begin = ptx::global_timer_ns();
  for (u32 spins = 1;; spins++) {
    if (arrived()) return true;
    if (spins % SPINS_PER_LOOK != 0) continue;
    if (ptx::load_relaxed(&args.control->abort) != 0) return false;
    if (ptx::global_timer_ns() - begin > patience_of(args, kind)) {
      if (!is_earliest(args.control, begin)) continue;
      u32 seen;
      const Wait wait = describe(seen);
      report_fault(args.fault, args.control, args.epoch, wait, seen);
      return false;
    }
  }
}
