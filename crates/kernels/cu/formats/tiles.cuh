// Tiles: 16 rows and all columns, in fragments, followed by one scale per row in formats that have
// scales.
#pragma once
#include "bf16.cuh"
#include "fp8.cuh"

template <u32 FORMAT>
struct FormatOf;
template <>
struct FormatOf<static_cast<u32>(abi::WeightFormat::Bf16)> {
  using Type = Bf16;
};
template <>
struct FormatOf<static_cast<u32>(abi::WeightFormat::Fp8)> {
  using Type = Fp8;
};

using LayerFormat = FormatOf<ML_FORMAT>::Type;
// The format of the LM head and the embedding.
using HeadFormat = FormatOf<ML_HEAD_FORMAT>::Type;

template <class Format>
struct Tiles {
  __device__ static constexpr int fragments(int columns) { return columns / Format::COLS; }

  // Streamed bytes of a tile: its fragments, without the scales.
  __device__ static constexpr int stream_bytes(int columns) { return fragments(columns) * Format::BYTES; }

  // Stride from one tile to the next.
  __device__ static constexpr int bytes(int columns) {
    return stream_bytes(columns) + Format::SCALE_BYTES;
  }

  // A row's scale times the constant factor of the format's arithmetic.
  __device__ static __forceinline__ float row_scale(const u8* tiles, int columns, int row) {
    if constexpr (Format::SCALE_BYTES == 0) {
      return 1.f;
    } else {
      return scales(tiles, columns, row)[row % shape::TILE_ROWS] * Format::SUM_SCALE;
    }
  }

  // Two neighbouring elements (the column is even) of a row.
  __device__ static __forceinline__ float2 element_pair(const u8* tiles, int columns, int row,
                                                        int column) {
    const u8* tile = tiles + u64(row / shape::TILE_ROWS) * bytes(columns);
    float2 pair = Format::element_pair(tile, row % shape::TILE_ROWS, column);
    if constexpr (Format::SCALE_BYTES != 0) {
      const float scale = scales(tiles, columns, row)[row % shape::TILE_ROWS];
      pair = {pair.x * scale, pair.y * scale};
    }
    return pair;
  }

 private:
  __device__ static __forceinline__ const float* scales(const u8* tiles, int columns, int row) {
    const u8* tile = tiles + u64(row / shape::TILE_ROWS) * bytes(columns);
    return reinterpret_cast<const float*>(tile + stream_bytes(columns));
  }
};

// Sizes of a tile: its streamed bytes, and the stride to the next tile.
struct TileBytes {
  int streamed, all;
};

template <class Format>
__device__ constexpr TileBytes tile_bytes(int columns) {
  return {Tiles<Format>::stream_bytes(columns), Tiles<Format>::bytes(columns)};
}
