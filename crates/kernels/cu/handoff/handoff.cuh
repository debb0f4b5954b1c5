// How one phase's output becomes visible to the next phase's blocks: a policy, chosen by the row of the
// variant table. A policy has
//
//   publish(args, slot, place, values)      makes a pair of values visible
//   poll<N>(args, shared, log, slot, used, place, units)
//                                           waits for up to N units; false on abort
#pragma once
#include "lines.cuh"

template <u32 KIND>
struct HandoffOf;
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::FlagInData)> {
  using Type = Lines;
};

using Handoff = HandoffOf<ML_HANDOFF>::Type;
