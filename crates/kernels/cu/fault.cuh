// Bounded waits: every spin has a timeout, and reports what it waited for when it times out.
#pragma once
#include "ptx/clock.cuh"
#include "ptx/memory.cuh"
#include "shape.cuh"

// What a wait is for, as the fault record reports it.
struct Wait {
  abi::WaitKind kind;
  u32 layer;
  abi::Phase phase;
  // Exchange: index of the unit in the slots. Ring: the stage.
  u32 unit;
  // Epoch, or parity.
  u32 expected;
};

// Number of spins between two checks of the clock and the abort word.
constexpr u32 SPINS_PER_LOOK = 64;

// Time for other waits to time out too, before the cause is chosen among them.
constexpr u32 GRACE_NS = 1000000;

// The waits that a block's consumers and its loader gave up. Each is written once, by the first
// thread of the role that times out or sees the abort, and handled when the role exits, so that the
// wait loops stay small.
enum Role : int { CONSUMERS = 0, LOADER = 1 };
constexpr u32 TIMED_OUT = abi::FAULT_FILLED + 1;

static __shared__ abi::FaultRecord failed_waits[2];

// Called by one thread, before the first barrier of the launch.
__device__ __forceinline__ void clear_failed_waits() {
  failed_waits[CONSUMERS].state = failed_waits[LOADER].state = 0;
}

__device__ __forceinline__ abi::FaultRecord& own_failed_wait() {
  return failed_waits[threadIdx.x < shape::LOADER ? CONSUMERS : LOADER];
}

__device__ __forceinline__ void record_failed_wait(const Wait& wait, u32 seen, u32 state) {
  abi::FaultRecord& failed = own_failed_wait();
  if (atomicCAS(&failed.state, 0u, state) != 0u) return;
  failed.kind = static_cast<u32>(wait.kind);
  failed.warp = threadIdx.x / 32;
  failed.layer = wait.layer;
  failed.phase = static_cast<u32>(wait.phase);
  failed.unit = wait.unit;
  failed.expected = wait.expected;
  failed.seen = seen;
}

// Whether a wait of this block has failed: it waits and publishes no more.
__device__ __forceinline__ bool has_failed(const Shared& shared) {
  return *static_cast<const volatile u32*>(&shared.failed[0]) != 0;
}

// Returns whether to give up a wait that began at `begin`: it took longer than `times` the timeout,
// another block has aborted, or this role has already given up a wait (a warp meets more waits on
// its way out). `seen` is the word's last value. The role then exits.
__device__ __forceinline__ bool is_over(const abi::StepArgs& args, u32 begin, u32 times,
                                        const Wait& wait, u32 seen) {
  const bool aborted = ptx::load_relaxed(&args.control->abort) != 0 ||
                       *reinterpret_cast<volatile u32*>(&own_failed_wait().state) != 0;
  const u32 lasted = ptx::global_timer_1024ns() - begin;
  if (!aborted && u64(lasted) << 10 <= times * args.timeout_ns) return false;
  record_failed_wait(wait, seen, aborted ? abi::FAULT_FILLED : TIMED_OUT);
  return true;
}

// ---- reporting: called by one thread of a role, after all threads of the role gave up

// Ranks failed waits. When several waits time out together, the lowest rank is reported, as the
// probable cause: the first wait in data-flow order, and within a phase weights before values.
__device__ __forceinline__ u32 rank_of(const abi::FaultRecord& failed) {
  const u32 is_exchange = failed.kind == static_cast<u32>(abi::WaitKind::Exchange);
  return failed.layer << 8 | failed.phase << 1 | is_exchange;
}

__device__ __forceinline__ void copy_wait(abi::FaultRecord* to, const abi::FaultRecord& failed, u32 epoch) {
  to->kind = failed.kind;
  to->block = blockIdx.x;
  to->warp = failed.warp;
  to->layer = failed.layer;
  to->phase = failed.phase;
  to->unit = failed.unit;
  to->expected = failed.expected;
  to->seen = failed.seen;
  to->epoch = epoch;
}

// Tells the host what the role waited for; if that wait is the cause, tells every block to abort. A
// trap would destroy the context and its device memory.
__device__ __forceinline__ void report_failed_wait(const abi::StepArgs& args, Role role) {
  const abi::FaultRecord& failed = failed_waits[role];
  if (failed.state == 0) return;
  abi::FaultRecord* mine = args.waits + 2 * blockIdx.x + role;
  copy_wait(mine, failed, args.epoch);
  mine->state = abi::FAULT_FILLED;
  if (failed.state != TIMED_OUT) return;
  abi::Control* control = args.control;
  atomicMax(&control->rank_inverted, ~rank_of(failed));
  for (u64 begin = ptx::global_timer_ns(); ptx::global_timer_ns() - begin < GRACE_NS;) {}
  if (ptx::load_relaxed(&control->rank_inverted) == ~rank_of(failed)) {
    if (atomicCAS(&control->fault_claimed, 0u, 1u) == 0u) {
      copy_wait(args.fault, failed, args.epoch);
      // Release: a reader that sees the state sees the record.
      ptx::store_release_system(&args.fault->state, abi::FAULT_FILLED);
    }
    ptx::store_relaxed(&control->abort, 1u);
  }
}
