//! SIMD by run-time detection, through `pulp`. The arithmetic is written once, on 16 lanes; a
//! level holds them in 1, 2, 4 or 16 registers, and is chosen when the engine loads.
//!
//! Every level with fused multiply-add gives the same bits: lanes, order and rounding do not
//! depend on the width of the registers. The scalar level rounds twice where those round once.

pub(crate) use pulp::Simd as Registers;
use pulp::{Scalar, WithSimd};

/// A set of instructions.
#[derive(Clone, Copy, Debug)]
pub enum Simd {
    /// What every processor of the architecture has.
    Scalar,
    /// AVX2 and FMA: 256-bit registers.
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// AVX-512 F, BW, CD, DQ and VL: 512-bit registers.
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    /// NEON: 128-bit registers. Compiles, but no machine of ours has run it.
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
}

impl PartialEq for Simd {
    fn eq(&self, other: &Simd) -> bool {
        self.name() == other.name()
    }
}

/// A piece of arithmetic to be compiled for every level.
pub(crate) trait Kernel {
    /// Does the work, its 16 lanes in `R` registers. Implementations are `#[inline(always)]`, to
    /// be compiled inside each level.
    fn run<S: Registers, const R: usize>(self, simd: S);
}

/// Calls a kernel with the number of registers that a level needs.
struct Fitted<K>(K);

impl<K: Kernel> WithSimd for Fitted<K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Registers>(self, simd: S) {
        match S::F32_LANES {
            16 => self.0.run::<S, 1>(simd),
            8 => self.0.run::<S, 2>(simd),
            4 => self.0.run::<S, 4>(simd),
            _ => self.0.run::<S, 16>(simd),
        }
    }
}

impl Simd {
    /// Every level that this processor has, best first.
    pub fn available() -> Vec<Simd> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(pulp::x86::V4::try_new().map(Simd::Avx512));
            levels.extend(pulp::x86::V3::try_new().map(Simd::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        levels.extend(pulp::aarch64::Neon::try_new().map(Simd::Neon));
        levels.push(Simd::Scalar);
        levels
    }

    /// The best level that this processor has.
    pub fn detect() -> Simd {
        Simd::available()[0]
    }

    /// The level's name, as in `--simd` and in the variant's name.
    pub fn name(self) -> &'static str {
        match self {
            Simd::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Simd::Neon(_) => "neon",
        }
    }

    /// Runs a kernel compiled for this level.
    #[inline]
    pub(crate) fn run(self, kernel: impl Kernel) {
        match self {
            Simd::Scalar => Registers::vectorize(Scalar::new(), Fitted(kernel)),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2(level) => Registers::vectorize(level, Fitted(kernel)),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512(level) => Registers::vectorize(level, Fitted(kernel)),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon(level) => Registers::vectorize(level, Fitted(kernel)),
        }
    }
}

/// Lanes that the arithmetic is written on.
pub(crate) const LANES: usize = 16;

/// 16 words.
pub(crate) type Words = [u32; LANES];

/// Sums of 16 lanes, in registers.
pub(crate) type Sums<S, const R: usize> = [<S as Registers>::f32s; R];

/// Adds `low half * even + high half * odd` of 16 words of two bf16 each to 16 sums.
#[inline(always)]
pub(crate) fn add_pairs<S: Registers, const R: usize>(
    simd: S,
    sums: &mut Sums<S, R>,
    words: &Words,
    even: [S::f32s; R],
    odd: [S::f32s; R],
) {
    let shift = simd.splat_u32s(16);
    let mask = simd.splat_u32s(0xffff_0000);
    let (words, _) = S::as_simd_u32s(words);
    for at in 0..R {
        let low = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(words[at], shift));
        let high = simd.transmute_f32s_u32s(simd.and_u32s(words[at], mask));
        let sum = simd.mul_add_e_f32s(low, even[at], sums[at]);
        sums[at] = simd.mul_add_e_f32s(high, odd[at], sum);
    }
}

/// Of an E4M3 code's seven low bits: the value of exponent field 0 if there were no subnormals.
const FP8_FIRST: f32 = 1.0 / 128.0;
/// What the exponent field of an f32 has more than that of an E4M3.
const FP8_BIAS: u32 = 120 << 23;
/// The bits of 2^23: a small whole number in the low bits of it is added to it.
const WHOLE: u32 = 0x4b00_0000;
const WHOLE_VALUE: f32 = 8_388_608.0;

/// Adds the four E4M3 codes of 16 words, each times its column's values, to 16 sums.
#[inline(always)]
pub(crate) fn add_codes<S: Registers, const R: usize>(
    simd: S,
    sums: &mut Sums<S, R>,
    words: &Words,
    x: &[[S::f32s; R]; 4],
) {
    let (words, _) = S::as_simd_u32s(words);
    for at in 0..R {
        let mut sum = sums[at];
        for (byte, x) in x.iter().enumerate() {
            sum = simd.mul_add_e_f32s(code(simd, words[at], 8 * byte as u32), x[at], sum);
        }
        sums[at] = sum;
    }
}

/// The values of the codes that begin at this bit of each word. Exact.
#[inline(always)]
fn code<S: Registers>(simd: S, words: S::u32s, bit: u32) -> S::f32s {
    let bits = simd.wrapping_dyn_shr_u32s(words, simd.splat_u32s(bit));
    let sign = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(24));
    let sign = simd.and_u32s(sign, simd.splat_u32s(0x8000_0000));
    let low = simd.and_u32s(bits, simd.splat_u32s(0x7f));
    let field = simd.wrapping_dyn_shl_u32s(low, simd.splat_u32s(20));
    let normal = simd.transmute_f32s_u32s(simd.add_u32s(field, simd.splat_u32s(FP8_BIAS)));
    // A subnormal m stands for m / 512, and the line above has 1/128 + m/1024 for it: what it has
    // too much is 1/128 - m/1024, which is 0 or less for every other code. Through no f32 that is
    // subnormal itself: those are slow.
    let whole = simd.transmute_f32s_u32s(simd.or_u32s(low, simd.splat_u32s(WHOLE)));
    let excess = simd.mul_add_e_f32s(
        whole,
        simd.splat_f32s(-1.0 / 1024.0),
        simd.splat_f32s(FP8_FIRST + WHOLE_VALUE / 1024.0),
    );
    let value = simd.sub_f32s(normal, simd.max_f32s(excess, simd.splat_f32s(0.0)));
    simd.transmute_f32s_u32s(simd.or_u32s(simd.transmute_u32s_f32s(value), sign))
}

/// 16 values into registers.
#[inline(always)]
pub(crate) fn load<S: Registers, const R: usize>(values: &[f32; LANES]) -> [S::f32s; R] {
    let (registers, _) = S::as_simd_f32s(values);
    std::array::from_fn(|at| registers[at])
}

/// Registers into 16 values.
#[inline(always)]
pub(crate) fn store<S: Registers, const R: usize>(values: &mut [f32; LANES], from: Sums<S, R>) {
    let (registers, _) = S::as_mut_simd_f32s(values);
    registers.copy_from_slice(&from);
}

/// The f32 of a bf16's bits (exact).
#[cfg(test)]
#[inline(always)]
pub(crate) fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bf16 nearest to a value, ties to even, as bits. NaN stays NaN.
#[inline(always)]
pub(crate) fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return ((bits >> 16) | 0x0040) as u16;
    }
    let rounding = 0x7fff + ((bits >> 16) & 1);
    ((bits + rounding) >> 16) as u16
}

/// Sum of squares, in a fixed order.
pub(crate) fn sum_of_squares(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    rest.iter().map(|value| value * value).sum::<f32>() + lanes.iter().sum::<f32>()
}

/// Constants of e^x = 2^n e^r: the polynomial of e^r from its highest power on, and ln 2 in two
/// parts, so that x - n ln 2 keeps its low bits.
const EXP_POLYNOMIAL: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Adding 1.5 * 2^23 rounds to a whole number, which is then in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// Below this e^x is taken as e^-87, 1.6e-38: next to nothing, and still a normal number.
const EXP_MIN: f32 = -87.0;

/// e^x for x <= 0, within 3e-7 of the value down to -87. A polynomial of our own, since the
/// system's library is neither the same on every machine nor vectorized.
#[inline(always)]
pub(crate) fn exp_nonpositive<S: Registers>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value| simd.splat_f32s(value);
    let x = simd.max_f32s(x, splat(EXP_MIN));
    let shifted = simd.mul_add_e_f32s(x, splat(std::f32::consts::LOG2_E), splat(ROUND));
    let whole = simd.sub_f32s(shifted, splat(ROUND));
    let rest = simd.mul_add_e_f32s(whole, splat(-LN_2_HIGH), x);
    let rest = simd.mul_add_e_f32s(whole, splat(-LN_2_LOW), rest);
    let mut value = splat(EXP_POLYNOMIAL[0]);
    for factor in &EXP_POLYNOMIAL[1..] {
        value = simd.mul_add_e_f32s(value, rest, splat(*factor));
    }
    // n in the exponent's place, plus the exponent of 1.
    let bits = simd.transmute_u32s_f32s(shifted);
    let exponent = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
    let scale = simd.add_u32s(exponent, simd.splat_u32s(1.0f32.to_bits()));
    simd.mul_f32s(value, simd.transmute_f32s_u32s(scale))
}

/// x / (1 + e^-x)
pub(crate) fn silu(x: f32) -> f32 {
    // e^-|x| never overflows, and both forms are the sigmoid.
    let e = exp_nonpositive(Scalar::new(), -x.abs());
    if x >= 0.0 { x / (1.0 + e) } else { x * e / (1.0 + e) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_end_with_scalar_and_have_names() {
        let levels = Simd::available();
        assert_eq!(levels.last(), Some(&Simd::Scalar));
        assert_eq!(Simd::detect(), levels[0]);
        let names: std::collections::BTreeSet<_> =
            levels.iter().map(|level| level.name()).collect();
        assert_eq!(names.len(), levels.len());
    }

    struct Exp<'a>(&'a mut [f32; LANES]);

    impl Kernel for Exp<'_> {
        #[inline(always)]
        fn run<S: Registers, const R: usize>(self, simd: S) {
            let x = load::<S, R>(self.0);
            store::<S, R>(self.0, x.map(|x| exp_nonpositive(simd, x)));
        }
    }

    struct Codes<'a>(&'a Words, &'a mut [f32; LANES], u32);

    impl Kernel for Codes<'_> {
        #[inline(always)]
        fn run<S: Registers, const R: usize>(self, simd: S) {
            let (words, _) = S::as_simd_u32s(self.0);
            store::<S, R>(self.1, std::array::from_fn(|at| code(simd, words[at], self.2)));
        }
    }

    #[test]
    fn every_code_has_its_value_at_every_level_and_place() {
        for level in Simd::available() {
            for byte in 0..4 {
                for first in (0..256).step_by(LANES) {
                    let code = |lane: usize| (first + lane) as u32;
                    let others = |lane: usize| {
                        !(0xff << (8 * byte)) & 0x1234_5678_u32.wrapping_mul(lane as u32)
                    };
                    let words = std::array::from_fn(|lane| code(lane) << (8 * byte) | others(lane));
                    let mut values = [0.0; LANES];
                    level.run(Codes(&words, &mut values, 8 * byte));
                    for (lane, value) in values.into_iter().enumerate() {
                        let exact = float8::F8E4M3::from_bits(code(lane) as u8).to_f32();
                        let is_same = value.to_bits() == exact.to_bits();
                        assert!(is_same || exact.is_nan(), "{}: {value} {exact}", level.name());
                    }
                }
            }
        }
    }

    #[test]
    fn exp_is_close_everywhere_at_every_level() {
        for level in Simd::available() {
            for start in 0..1450 {
                let x: [f32; LANES] =
                    std::array::from_fn(|at| -0.06 * start as f32 - 0.0037 * at as f32);
                let mut values = x;
                level.run(Exp(&mut values));
                for (x, value) in x.into_iter().zip(values).filter(|(x, _)| *x > EXP_MIN) {
                    let exact = f64::from(x).exp();
                    let error = (f64::from(value) - exact).abs() / exact;
                    assert!(error < 3e-7, "{}: exp({x}) = {value}, off by {error}", level.name());
                }
            }
            let mut ends =
                [0.0, -1000.0, f32::MIN, f32::NEG_INFINITY].repeat(4).try_into().unwrap();
            level.run(Exp(&mut ends));
            assert_eq!(ends[0], 1.0);
            assert!(ends[1..4].iter().all(|&value| value < 2e-38), "{ends:?}");
        }
    }

    #[test]
    fn silu_is_close_everywhere() {
        for at in -20_000..20_000 {
            let x = at as f32 * 0.01;
            let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            let error = (f64::from(silu(x)) - exact).abs();
            assert!(error <= 1e-6 * exact.abs() + 1e-30, "silu({x}) is off by {error}");
        }
        assert_eq!(silu(f32::MAX), f32::MAX);
        assert!(silu(f32::MIN).abs() < 10.0);
    }

    #[test]
    fn every_bf16_survives_and_every_tie_goes_to_even() {
        for bits in 0..=u16::MAX {
            let value = widen(bits);
            if value.is_nan() {
                assert!(widen(narrow(value)).is_nan());
            } else {
                assert_eq!(narrow(value), bits);
                let tie = f32::from_bits((u32::from(bits) << 16) | 0x8000);
                let even = if bits & 1 == 0 { bits } else { bits.wrapping_add(1) };
                if tie.is_finite() {
                    assert_eq!(narrow(tie), even, "tie above {bits:#06x}");
                }
            }
        }
    }
}
