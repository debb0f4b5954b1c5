// The end of a kernel as a hand-off: a phase is a kernel, and the values of the phase before are there when it
// begins (or, with programmatic dependent launch, behind griddepcontrol.wait, which comes before any gather).
#pragma once
#include "publish.cuh"

struct Boundary : Publisher {
  static constexpr bool COUNTS_PIECES = false, COUNTS_BLOCKS = false;

  __device__ static __forceinline__ void finish_pieces(const abi::StepArgs&, const Shared&, const Slot&, int,
                                                       int) {}
  __device__ static __forceinline__ void finish_phase(const abi::StepArgs&, const Shared&, const Slot&) {}

  // Loads up to `N` units of a slot: those for which `used(at)` holds, at `place(at)`.
  template <int N, class Used, class Place>
  __device__ static __forceinline__ void look(const abi::StepArgs&, const Slot& slot, Used used, Place place,
                                              u64 (&units)[N]) {
#pragma unroll
    for (int at = 0; at < N; at++) units[at] = used(at) ? ptx::load_relaxed(slot.units + place(at)) : 0;
  }

  // They need no check.
  template <int N, class Used, class Place>
  __device__ static __forceinline__ bool poll(const abi::StepArgs&, const Shared&, ::xray::Notes&, const Slot&,
                                              Used, Place, u64 (&)[N]) {
    return true;
  }
};
