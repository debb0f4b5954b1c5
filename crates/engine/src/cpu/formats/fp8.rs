//! FP8: E4M3 codes become f32, exactly, by 17 instructions for a whole register of codes. The scale
//! of a row multiplies its sum.
//!
//! Every E4M3 value is a bf16 value. A table lookup in 128-bit lanes (`pshufb`) gives the high
//! bytes of a register's codes, and a shift gives the low bytes. A second lookup corrects the
//! subnormals, whose mantissa has no leading 1. The interleaved bytes are the bf16 bits of even and
//! odd codes. No intermediate f32 is subnormal, because arithmetic on subnormals is slow.

use super::{GROUPS, Group, Lanes, Level};
use crate::cpu::matvec::{MatVec, rows};
use crate::cpu::simd::{LANES, Registers};
use monolith_abi::formats::fp8::{FRAGMENT_BYTES, FRAGMENT_COLS, SCALE_BYTES, fragment_index};
use monolith_model::e4m3;
use pulp::Scalar;
#[cfg(target_arch = "x86_64")]
use {
    pulp::bytemuck::cast,
    pulp::x86::{V3, V4},
    pulp::{f32x8, f32x16},
    std::arch::x86_64::{__m256i, __m512i},
};

/// Codes of a lane group in one lane.
pub(crate) const QUAD: usize = 4;

/// The codes of a lane group.
type Codes = Group;

/// How a set of instructions widens codes.
pub(crate) trait Widen: Registers {
    /// The values of the codes in one register of a lane group's lanes: the `t`-th value of a lane
    /// is the value of the code [`code_of`]`(lane, t)`, where lanes are counted over all registers.
    fn widen(self, codes: &Codes, at: usize) -> [Self::f32s; QUAD];
}

/// The index, in its lane group, of the code that a lane holds as its `t`-th value. 16 successive
/// codes are spread over four successive lanes, because the bytes of 128 bits are interleaved.
const fn code_of(lane: usize, t: usize) -> usize {
    16 * (lane / 4) + 8 * (t / 2) + 2 * (lane % 4) + t % 2
}

/// The column, in its fragment, of each weight of each lane: from the order of the pack's elements.
pub(super) const COLUMNS: [[u8; LANES]; QUAD] = {
    let mut of_code = [0; QUAD * LANES];
    let mut col = 0;
    while col < FRAGMENT_COLS {
        of_code[fragment_index(0, col)] = col as u8;
        of_code[fragment_index(GROUPS, col)] = col as u8;
        col += 1;
    }
    let mut columns = [[0; LANES]; QUAD];
    let mut at = 0;
    while at < QUAD * LANES {
        let (lane, weight) = (at / QUAD, at % QUAD);
        columns[weight][lane] = of_code[code_of(lane, weight)];
        at += 1;
    }
    columns
};

/// A word is half of two lanes.
struct Fp8Lanes;

impl Lanes<QUAD> for Fp8Lanes {
    /// Widening needs registers too: with more than four sums the compiler spills some.
    const SUMS: usize = 4;

    #[inline(always)]
    fn add<S: Level, const M: usize>(
        simd: S,
        sums: &mut [S::f32s; M],
        group: &Group,
        first: usize,
        x: &[[S::f32s; M]; QUAD],
    ) {
        for (at, sum) in sums.iter_mut().enumerate() {
            for (values, x) in simd.widen(group, first + at).into_iter().zip(x) {
                *sum = simd.mul_add_e_f32s(values, x[at], *sum);
            }
        }
    }

    #[inline(always)]
    fn rows(lanes: [f32; 4]) -> [f32; 2] {
        [lanes[0] + lanes[1], lanes[2] + lanes[3]]
    }
}

/// Multiplies tiles, and each row's sum by its scale.
#[inline(always)]
pub(super) fn product<S: Level, const R: usize>(simd: S, product: MatVec<'_>) {
    let x = product.x.fragments::<QUAD>(FRAGMENT_COLS);
    let codes = x.len() * FRAGMENT_BYTES;
    for (tile, out) in product.tiles.chunks_exact(codes + SCALE_BYTES).zip(product.out) {
        let (codes, scales) = tile.split_at(codes);
        let (fragments, _) = codes.as_chunks::<FRAGMENT_BYTES>();
        rows::<S, Fp8Lanes, R, QUAD, FRAGMENT_BYTES>(simd, fragments, x, out);
        for (sum, scale) in out.iter_mut().zip(scales.as_chunks::<4>().0) {
            *sum *= f32::from_le_bytes(*scale);
        }
    }
}

impl Widen for Scalar {
    #[inline(always)]
    fn widen(self, codes: &Codes, at: usize) -> [f32; QUAD] {
        by_table(self, codes, at)
    }
}

/// Looks each code up in memory: for levels whose registers are not used as tables here.
#[inline(always)]
fn by_table<S: Registers>(simd: S, codes: &Codes, at: usize) -> [S::f32s; QUAD] {
    let mut values = [simd.splat_f32s(0.0); QUAD];
    for (t, values) in values.iter_mut().enumerate() {
        let mut lanes = [0.0; LANES];
        let lanes = &mut lanes[..S::F32_LANES];
        for (lane, value) in lanes.iter_mut().enumerate() {
            let code = codes[code_of(S::F32_LANES * at + lane, t)];
            // Not by `e4m3::value`: a call into another crate, which the dev profile makes.
            *value = e4m3::VALUES[usize::from(code)];
        }
        *values = S::as_simd_f32s(lanes).0[0];
    }
    values
}

#[cfg(target_arch = "aarch64")]
impl Widen for pulp::aarch64::Neon {
    #[inline(always)]
    fn widen(self, codes: &Codes, at: usize) -> [Self::f32s; QUAD] {
        by_table(self, codes, at)
    }
}

/// The bf16 bits of 2^-7: the value of the magnitude 0 if it were not subnormal.
const FIRST: u16 = 120 << 7;

/// High bytes, by a code's upper four bits: the sign, and the exponent with the bias of an f32.
const HIGH: [u8; 16] = {
    let mut table = [0; 16];
    let mut upper = 0;
    while upper < 16 {
        table[upper] = ((upper as u8 & 8) << 4) | ((FIRST >> 8) as u8 + (upper as u8 & 7));
        upper += 1;
    }
    table
};

/// The corrections of the subnormals' high (0) and low (1) bytes, which are applied by exclusive
/// or. The index is twice the code.
const WRONG: [[u8; 16]; 2] = {
    let mut tables = [[0; 16]; 2];
    let mut code = 0;
    while code < 8 {
        let right = (e4m3::VALUES[code].to_bits() >> 16) as u16;
        let wrong = right ^ (FIRST + ((code as u16) << 4));
        tables[0][2 * code] = (wrong >> 8) as u8;
        tables[1][2 * code] = wrong as u8;
        code += 1;
    }
    tables
};

/// Added with saturation to twice a magnitude, this sets bit 7 of every magnitude that is not
/// subnormal. A lookup with bit 7 set gives 0, which corrects nothing.
const NOT_SUBNORMAL: u8 = 0x70;

/// A table in every 128-bit lane.
const fn repeated<const BYTES: usize>(table: [u8; 16]) -> [u8; BYTES] {
    let mut all = [0; BYTES];
    let mut at = 0;
    while at < BYTES {
        all[at] = table[at % 16];
        at += 1;
    }
    all
}

#[cfg(target_arch = "x86_64")]
impl Widen for V3 {
    #[inline(always)]
    fn widen(self, codes: &Codes, at: usize) -> [f32x8; QUAD] {
        widen_32(self, codes.as_chunks().0[at])
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn widen_32(simd: V3, codes: [u8; 32]) -> [f32x8; QUAD] {
    let avx2 = simd.avx2;
    let codes: __m256i = cast(codes);
    let high_bytes: __m256i = cast(const { repeated::<32>(HIGH) });
    let wrong_high: __m256i = cast(const { repeated::<32>(WRONG[0]) });
    let wrong_low: __m256i = cast(const { repeated::<32>(WRONG[1]) });
    let twice = avx2._mm256_add_epi8(codes, codes);
    let index = avx2._mm256_adds_epu8(twice, cast([NOT_SUBNORMAL; 32]));
    let upper = avx2._mm256_and_si256(avx2._mm256_srli_epi16::<4>(codes), cast([0x0f_u8; 32]));
    let high = avx2._mm256_shuffle_epi8(high_bytes, upper);
    let high = avx2._mm256_xor_si256(high, avx2._mm256_shuffle_epi8(wrong_high, index));
    let low = avx2._mm256_and_si256(avx2._mm256_slli_epi16::<4>(codes), cast([0xf0_u8; 32]));
    let low = avx2._mm256_xor_si256(low, avx2._mm256_shuffle_epi8(wrong_low, index));
    let first = avx2._mm256_unpacklo_epi8(low, high);
    let last = avx2._mm256_unpackhi_epi8(low, high);
    let odd: __m256i = cast([0xffff_0000_u32; 8]);
    [
        cast(avx2._mm256_slli_epi32::<16>(first)),
        cast(avx2._mm256_and_si256(first, odd)),
        cast(avx2._mm256_slli_epi32::<16>(last)),
        cast(avx2._mm256_and_si256(last, odd)),
    ]
}

#[cfg(target_arch = "x86_64")]
impl Widen for V4 {
    #[inline(always)]
    fn widen(self, codes: &Codes, _: usize) -> [f32x16; QUAD] {
        widen_64(self, *codes)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn widen_64(simd: V4, codes: [u8; 64]) -> [f32x16; QUAD] {
    let (avx512f, avx512bw) = (simd.avx512f, simd.avx512bw);
    let codes: __m512i = cast(codes);
    let high_bytes: __m512i = cast(const { repeated::<64>(HIGH) });
    let wrong_high: __m512i = cast(const { repeated::<64>(WRONG[0]) });
    let wrong_low: __m512i = cast(const { repeated::<64>(WRONG[1]) });
    let twice = avx512bw._mm512_add_epi8(codes, codes);
    let index = avx512bw._mm512_adds_epu8(twice, cast([NOT_SUBNORMAL; 64]));
    let upper =
        avx512f._mm512_and_si512(avx512bw._mm512_srli_epi16::<4>(codes), cast([0x0f_u8; 64]));
    let high = avx512bw._mm512_shuffle_epi8(high_bytes, upper);
    let high = avx512f._mm512_xor_si512(high, avx512bw._mm512_shuffle_epi8(wrong_high, index));
    let low = avx512f._mm512_and_si512(avx512bw._mm512_slli_epi16::<4>(codes), cast([0xf0_u8; 64]));
    let low = avx512f._mm512_xor_si512(low, avx512bw._mm512_shuffle_epi8(wrong_low, index));
    let first = avx512bw._mm512_unpacklo_epi8(low, high);
    let last = avx512bw._mm512_unpackhi_epi8(low, high);
    let odd: __m512i = cast([0xffff_0000_u32; 16]);
    [
        cast(avx512f._mm512_slli_epi32::<16>(first)),
        cast(avx512f._mm512_and_si512(first, odd)),
        cast(avx512f._mm512_slli_epi32::<16>(last)),
        cast(avx512f._mm512_and_si512(last, odd)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Kernel, Simd};
    use monolith_abi::formats::TILE_ROWS;

    struct Widen<'a>(&'a Codes, &'a mut [[f32; LANES]; QUAD]);

    impl Kernel for Widen<'_> {
        #[inline(always)]
        fn run<S: Level, const R: usize>(self, simd: S) {
            for at in 0..R {
                let values = simd.widen(self.0, at);
                for (lanes, value) in self.1.iter_mut().zip(values) {
                    S::as_mut_simd_f32s(lanes).0[at] = value;
                }
            }
        }
    }

    #[test]
    fn every_code_has_its_value_at_every_level_and_place() {
        for level in Simd::available() {
            for first in 0..=u8::MAX {
                // Every code comes to every place, with other codes around it.
                let codes = std::array::from_fn(|at| first.wrapping_add((37 * at) as u8));
                let mut values = [[f32::NAN; LANES]; QUAD];
                level.run(Widen(&codes, &mut values));
                for (t, lane) in (0..QUAD).flat_map(|t| (0..LANES).map(move |lane| (t, lane))) {
                    let exact = float8::F8E4M3::from_bits(codes[code_of(lane, t)]).to_f32();
                    let value = values[t][lane];
                    let is_same = value.to_bits() == exact.to_bits();
                    assert!(is_same || exact.is_nan(), "{}: {value} {exact}", level.name());
                }
            }
        }
    }

    #[test]
    fn the_lanes_hold_every_code_of_a_group_once() {
        let mut held: Vec<usize> =
            (0..LANES).flat_map(|lane| (0..QUAD).map(move |t| code_of(lane, t))).collect();
        held.sort_unstable();
        assert!(held.into_iter().eq(0..QUAD * LANES));
    }

    #[test]
    fn a_lanes_columns_and_rows_are_those_of_the_pack() {
        for row in 0..TILE_ROWS {
            for (weight, columns) in COLUMNS.iter().enumerate() {
                // Of four lanes, the first two hold the upper row.
                let lanes = (0..LANES).filter(|lane| lane % 4 / 2 == row / GROUPS);
                for lane in lanes {
                    let at = fragment_index(row, usize::from(columns[lane]));
                    let wanted = row % GROUPS * size_of::<Codes>() + code_of(lane, weight);
                    assert_eq!(at, wanted, "row {row}, lane {lane}, weight {weight}");
                }
            }
        }
    }
}
