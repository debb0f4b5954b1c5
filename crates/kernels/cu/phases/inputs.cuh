// Where every phase is a kernel, all values of the phase before are there when a kernel may read them, long
// before its own weights. So they are loaded first, together with the words that say whether the step runs at
// all, and are the activation by the time that the weights arrive. The arithmetic is product.cuh's.
#pragma once
#include "product.cuh"

// Of a matvec of the normed residual stream.
template <class W, class From>
struct NormedInputs {
  u32 weights[W::LANE_PAIRS];
  PartialSums<W, From> sums;

  // `is_first`: nothing is added to the residual stream yet.
  __device__ __forceinline__ void load(Consumer& my, bool is_first) {
    load_norm<W>(my, weights);
    if (is_first) sums = {};
    if (!is_first) sums.look(my, input_of<W>(my));
  }

  __device__ __forceinline__ void multiply(Consumer& my, bool is_first) {
    my.begin_phase(W::ROW.phase);
    if (!is_first) sums.add(my, input_of<W>(my));
    carry<W>(my);
    const float squares = keep_normed<W>(my, weights);
    uint4 a[W::TILES * W::STEPS];
    take_weights<W>(my, layer_of<W>(my), a, [] {});
    const int buffer = my.round % 2;
    wait_for_buffer(my, buffer);
    multiply_normed<W>(my, a, buffer, squares);
    next_rounds<W>(my);
  }
};

// Of the down projection: of a block's first item. On the grid of the row it has no other.
template <class W>
struct DownInputs {
  SplitInputs<W> first;

  __device__ static __forceinline__ void load(Consumer& my, int item, SplitInputs<W>& inputs) {
    const int split = item % shape::DOWN_SPLITS;
    inputs.load(my, input_of_split(my, split), split * (W::COLUMNS / 2));
  }

  __device__ __forceinline__ void load(Consumer& my) { load(my, share_of(DOWN_ITEMS).x, first); }

  __device__ __forceinline__ void multiply(Consumer& my) {
    const int2 items = my.shared.shares[DOWN_SHARE];
#pragma unroll 1
    for (int item = items.x; item < items.y; item++) {
      my.begin_phase(W::ROW.phase);
      if (item > items.x) load(my, item, first);
      first.keep_all(my);
      uint4 a[W::STEPS];
      take_weights<W>(my, my.layer, a, [] {});
      const int buffer = my.round % 2;
      wait_for_buffer(my, buffer);
      ::multiply<W::TILES, W::STEPS, W::CHAINS>(my, my.x_operand, a, buffer);
      end_round(my, buffer);
    }
  }
};

// Of a phase whose inputs come when the position is known.
struct NoInputs {
  __device__ __forceinline__ void load(Consumer&) {}
};
