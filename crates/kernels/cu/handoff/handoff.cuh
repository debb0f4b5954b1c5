// How one phase's output becomes visible to the next phase's blocks: a policy, chosen by the row of the
// variant table. A policy has
//
//   publish(args, slot, place, values)      makes a pair of values visible
//   look<N>(args, slot, used, place, units)
//                                           begins to load up to N units
//   poll<N>(args, shared, log, slot, place, units)
//                                           waits for those; false on abort
#pragma once
#include "lines.cuh"

template <u32 KIND>
struct HandoffOf;
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::FlagInData)> {
  using Type = Lines;
};

using Handoff = HandoffOf<ML_HANDOFF>::Type;
