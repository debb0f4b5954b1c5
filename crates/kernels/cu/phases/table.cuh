// The phases that are matrix-vector products (matvecs): their rows (step.cuh) and matrices by index.
// One piece of code runs them all (products.cuh): 57 KB of machine code instead of 147 KB with one
// copy per phase. On an H200 it is not faster (notes/megakernel.md), only smaller.
#pragma once
#include "../shape.cuh"

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

// Matrix-vector products (matvecs) of a step: four per layer, and the LM head if logits are needed.
__device__ __forceinline__ u32 matvecs(const abi::StepArgs& args) {
  return LAYER_MATVECS * shape::LAYERS + ((args.flags & abi::STEP_HAS_HEAD) ? 1 : 0);
}
