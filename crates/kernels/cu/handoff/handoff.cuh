// How one phase's output becomes visible to the next phase's blocks: a policy, chosen by the row of the
// variant table. A policy has
//
//   begin(args)                             once a launch, before anything else (where blocks wait)
//   publish(args, slot, place, values)      makes a pair of values visible, rounded to 24 bits each
//   publish_word(args, slot, place, word)   makes a word visible, all of it
//   finish_pieces(args, shared, slot, first, end)
//                                           a warp has published these pieces, or its block has
//   finish_phase(args, shared, slot)        likewise all of the block's pieces
//   look<N>(args, slot, used, place, units)
//                                           begins to load up to N units, if it can
//   poll<N>(args, shared, log, slot, used, place, units)
//                                           waits for those; false on abort
#pragma once
#include "boundary.cuh"
#include "counters.cuh"
#include "lines.cuh"

template <u32 KIND>
struct HandoffOf;
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::FlagInData)> {
  using Type = Lines;
};
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::Counter)> {
  using Type = Counters<false>;
};
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::Barrier)> {
  using Type = Counters<true>;
};
template <>
struct HandoffOf<static_cast<u32>(abi::Handoff::Boundary)> {
  using Type = Boundary;
};

using Handoff = HandoffOf<ML_HANDOFF>::Type;
