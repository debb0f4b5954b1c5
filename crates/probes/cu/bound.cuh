// Bounded waits, as in the megakernel's fault.cuh: every spin has a timeout and reports what it
// waited for.
#pragma once
#include "ops.cuh"

// Words of device memory: zero before a launch, read by the host after it.
struct Control {
  u32 abort, claimed, block, what, index, expected, seen, reserved;
};

// What a wait was for; the host has names for these, in the same order.
enum class What : u32 { Unit, Barrier, Mail, StageFull, StageEmpty, Count };
static_assert(static_cast<u32>(What::Count) == PROBE_WAITS, "the host's names");

struct Bound {
  Control* control;
  u64 timeout_ns;
};

constexpr u32 SPINS_PER_LOOK = 64;
// Ends the wait even if the timer itself stands still.
constexpr u32 LOOKS_MAX = 1u << 18;

// Inlined, since a call would spill registers around the measured loops.
__device__ __forceinline__ void give_up(Control* control, What what, u32 index, u32 expected,
                                        u32 seen) {
  if (atomicCAS(&control->claimed, 0u, 1u) == 0u) {
    control->block = blockIdx.x;
    control->what = static_cast<u32>(what);
    control->index = index;
    control->expected = expected;
    control->seen = seen;
  }
  ptx::store_relaxed(&control->abort, 1u);
}

// Spins until `arrived(seen)`. Returns false if the wait timed out, here or in another block.
template <class Arrived>
__device__ __forceinline__ bool wait_until(const Bound& bound, What what, u32 index, u32 expected,
                                           Arrived arrived) {
  u32 seen = 0;
  if (arrived(seen)) return true;
  const u64 begin = ptx::global_timer_ns();
  for (u32 looks = 0;; looks++) {
#pragma unroll 1
    for (u32 spins = 0; spins < SPINS_PER_LOOK; spins++) {
      if (arrived(seen)) return true;
    }
    if (ptx::load_relaxed(&bound.control->abort) != 0) return false;
    if (ptx::global_timer_ns() - begin > bound.timeout_ns || looks == LOOKS_MAX) {
      give_up(bound.control, what, index, expected, seen);
      return false;
    }
  }
}
