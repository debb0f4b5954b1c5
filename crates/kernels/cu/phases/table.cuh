// The phases that are products, as a table: what each gathers, multiplies and posts. One piece of
// code runs them all (products.cuh): 57 KB of machine code where a copy a phase had 147 KB. It is
// no faster for that on an H200 (notes/megakernel.md), only half as long.
#pragma once
#include "../exchange.cuh"
#include "../shape.cuh"

// What becomes of a product's sums.
enum class Epilogue : u32 {
  Scale,     // times the reciprocal RMS of what was gathered
  Residual,  // plus the residual stream
  Gate,      // silu(gate) * up, both times the reciprocal RMS
  Logits,    // scaled, and kept if it is the largest
};

struct PhaseRow {
  abi::Phase phase;
  // The gathered activation: from which phase, where its slot is, how wide, normed or as it is.
  abi::Phase from;
  int from_slot;
  int columns;
  bool normed;
  // Which copy of the residual stream a normed activation is kept in, and which one is added.
  int residual;
  // The product, and where it is posted.
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

// Products of a layer; the LM head counts as the first of the layer after the last.
constexpr u32 LAYER_PRODUCTS = 4;

// The row of a product, counted from the first layer's qkv. Chosen by selects, not by an index:
// an indexed table would lie in local memory.
__device__ __forceinline__ PhaseRow phase_row(u32 product) {
  if (product == LAYER_PRODUCTS * shape::LAYERS) return HEAD_ROW;
  switch (product % LAYER_PRODUCTS) {
    case 0: return QKV_ROW;
    case 1: return O_PROJ_ROW;
    case 2: return GATE_UP_ROW;
    default: return DOWN_ROW;
  }
}

// For the words of waits and faults.
__device__ __forceinline__ u32 layer_of(u32 product) {
  return product == LAYER_PRODUCTS * shape::LAYERS ? u32(abi::NO_LAYER) : product / LAYER_PRODUCTS;
}

// The matrix of a product in the pack's payload.
__device__ __forceinline__ const u8* matrix_of(const abi::StepArgs& args, u32 product) {
  if (product == LAYER_PRODUCTS * shape::LAYERS) return args.weights + args.lm_head;
  const u8* layer = args.weights + args.layer_base + u64(product / LAYER_PRODUCTS) * args.layer_stride;
  switch (product % LAYER_PRODUCTS) {
    case 0: return layer + args.qkv;
    case 1: return layer + args.o_proj;
    case 2: return layer + args.gate_up;
    default: return layer + args.down;
  }
}

// The norm's weight of a product whose activation is normed.
__device__ __forceinline__ const u8* norm_of(const abi::StepArgs& args, u32 product) {
  if (product == LAYER_PRODUCTS * shape::LAYERS) return args.weights + args.final_norm;
  const u8* norms = args.weights + args.layer_base +
                    u64(product / LAYER_PRODUCTS) * args.layer_stride + args.norms;
  return product % LAYER_PRODUCTS == 0 ? norms : norms + 2 * shape::HIDDEN;
}
