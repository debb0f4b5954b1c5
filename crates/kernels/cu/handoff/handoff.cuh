// How one phase's output becomes visible to the next phase's blocks: a policy, chosen by the row of the
// variant table. A policy has
//
//   publish(args, slot, index, value)       makes a value visible
//   poll<N>(args, log, slot, used, index, each)   waits for up to N pairs; false on abort
//   phase_end()                             after a block's last value of a phase
#pragma once
#include "lines.cuh"

template <u32 KIND>
struct HandoffOf;
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::FlagInData)> {
  using Type = Lines;
};

using Handoff = HandoffOf<ML_HANDOFF>::Type;
