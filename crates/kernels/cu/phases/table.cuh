// The phases that are matrix-vector products (matvecs), as a table: what each one gathers,
// multiplies and publishes. One piece of code runs them all (products.cuh): 57 KB of machine code
// instead of 147 KB with one copy per phase. On an H200 it is not faster (notes/megakernel.md),
// only smaller.
#pragma once
#include "../exchange.cuh"
#include "../shape.cuh"

// The epilogue: what is done with a matvec's sums.
enum class Epilogue : u32 {
  Scale,     // times the reciprocal RMS of the gathered activation
  Residual,  // plus the residual stream
  Gate,      // silu(gate) * up, both times the reciprocal RMS
  Logits,    // scaled, and kept if it is the largest
};

struct PhaseRow {
  abi::Phase phase;
  // The gathered activation: its phase, its slot, its width, and whether it is normed.
  abi::Phase from;
  int from_slot;
  int columns;
  bool normed;
  // The copy of the residual stream that keeps a normed activation, or that is added.
  int residual;
  // The matvec's rows, and the slot of its output.
  int rows;
  int to_slot;
  Epilogue epilogue;
};

__device__ constexpr PhaseRow QKV_ROW = {
    abi::Phase::Qkv, abi::Phase::Down, shape::DOWN_SLOT, shape::HIDDEN,   true,
    0,               shape::QKV_DIM,   shape::QKV_SLOT,  Epilogue::Scale};
__device__ constexpr PhaseRow O_PROJ_ROW = {
    abi::Phase::OProj, abi::Phase::Attention, shape::ATTENTION_SLOT, shape::Q_DIM,      false,
    0,                 shape::HIDDEN,         shape::O_PROJ_SLOT,    Epilogue::Residual};
__device__ constexpr PhaseRow GATE_UP_ROW = {
    abi::Phase::GateUp, abi::Phase::OProj,        shape::O_PROJ_SLOT,  shape::HIDDEN,  true,
    1,                  2 * shape::INTERMEDIATE,  shape::GATE_UP_SLOT, Epilogue::Gate};
__device__ constexpr PhaseRow DOWN_ROW = {
    abi::Phase::Down, abi::Phase::GateUp, shape::GATE_UP_SLOT, shape::INTERMEDIATE, false,
    1,                shape::HIDDEN,      shape::DOWN_SLOT,    Epilogue::Residual};
__device__ constexpr PhaseRow HEAD_ROW = {
    abi::Phase::LmHead, abi::Phase::Down, shape::DOWN_SLOT, shape::HIDDEN, true,
    0,                  shape::VOCAB,     0,                Epilogue::Logits};

// Matvecs per layer; the LM head counts as the first matvec of one more layer.
constexpr u32 LAYER_MATVECS = 4;

// The table's row for a matvec index, which counts from the first layer's qkv. Selects choose it: a
// table that is indexed at run time would be in local memory.
__device__ __forceinline__ PhaseRow phase_row(u32 matvec) {
  if (matvec == LAYER_MATVECS * shape::LAYERS) return HEAD_ROW;
  switch (matvec % LAYER_MATVECS) {
    case 0: return QKV_ROW;
    case 1: return O_PROJ_ROW;
    case 2: return GATE_UP_ROW;
    default: return DOWN_ROW;
  }
}

// The layer that waits and fault records name.
__device__ __forceinline__ u32 layer_of(u32 matvec) {
  return matvec == LAYER_MATVECS * shape::LAYERS ? u32(abi::NO_LAYER) : matvec / LAYER_MATVECS;
}

// The matrix of a matvec in the pack's payload.
__device__ __forceinline__ const u8* matrix_of(const abi::StepArgs& args, u32 matvec) {
  if (matvec == LAYER_MATVECS * shape::LAYERS) return args.weights + args.lm_head;
  const u8* layer = args.weights + args.layer_base + u64(matvec / LAYER_MATVECS) * args.layer_stride;
  switch (matvec % LAYER_MATVECS) {
    case 0: return layer + args.qkv;
    case 1: return layer + args.o_proj;
    case 2: return layer + args.gate_up;
    default: return layer + args.down;
  }
}

// The norm's weight of a matvec whose activation is normed.
__device__ __forceinline__ const u8* norm_of(const abi::StepArgs& args, u32 matvec) {
  if (matvec == LAYER_MATVECS * shape::LAYERS) return args.weights + args.final_norm;
  const u8* norms = args.weights + args.layer_base +
                    u64(matvec / LAYER_MATVECS) * args.layer_stride + args.norms;
  return matvec % LAYER_MATVECS == 0 ? norms : norms + 2 * shape::HIDDEN;
}
