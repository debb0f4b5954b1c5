// Converts every e4m3 pair and every e2m1 pair to f16: with the instruction, if there is one, and
// by shifting the code into f16's exponent. The host compares both with the formats' definitions.
#include "ops.cuh"

constexpr u32 E4M3_PAIRS = 1 << 16;
constexpr u32 E2M1_PAIRS = 1 << 8;

// Seven bits shifted left by 7: the value times 2^-8, subnormals included. NaN reads as 480.
__device__ __forceinline__ u32 f16_by_shift_e4m3(u32 codes) {
  const u32 spread = (codes & 0xff) | (codes & 0xff00) << 8;
  return (spread << 7 & 0x3f803f80u) | (spread << 8 & 0x80008000u);
}

// Three bits shifted left by 9: the value times 2^-14, subnormals included.
__device__ __forceinline__ u32 f16_by_shift_e2m1(u32 codes) {
  const u32 spread = (codes & 0xf) | (codes & 0xf0) << 12;
  return (spread << 9 & 0x0e000e00u) | (spread << 12 & 0x80008000u);
}

extern "C" __global__ void __launch_bounds__(256)
    probe_convert(u32* e4m3_cvt, u32* e4m3_shift, u32* e2m1_cvt, u32* e2m1_shift) {
  const u32 codes = blockIdx.x * blockDim.x + threadIdx.x;
  if (codes < E4M3_PAIRS) {
    e4m3_cvt[codes] = ops::f16_from_e4m3(static_cast<u16>(codes));
    e4m3_shift[codes] = f16_by_shift_e4m3(codes);
  }
  if (codes < E2M1_PAIRS) {
#if PROBE_HAS_E2M1
    e2m1_cvt[codes] = ops::f16_from_e2m1(static_cast<u16>(codes));
#endif
    e2m1_shift[codes] = f16_by_shift_e2m1(codes);
  }
}
