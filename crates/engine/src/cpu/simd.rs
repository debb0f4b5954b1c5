//! SIMD by run-time detection, through `pulp`. The arithmetic is written once, on 16 lanes. A
//! level holds them in 1, 2, 4 or 16 registers. The engine chooses the level when it loads.
//!
//! Every level with fused multiply-add gives the same bits: lanes, order and rounding do not
//! depend on the width of the registers. The scalar level rounds twice where the others round
//! once.

pub(crate) use super::formats::Level;
pub(crate) use pulp::Simd as Registers;
use pulp::{Scalar, WithSimd};

/// A set of instructions.
#[derive(Clone, Copy, Debug)]
pub enum Simd {
    /// No vector instructions: runs on every processor of the architecture.
    Scalar,
    /// AVX2 and FMA: 256-bit registers.
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// AVX-512 F, BW, CD, DQ and VL: 512-bit registers.
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    /// NEON: 128-bit registers. It compiles but was never run.
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
}

impl PartialEq for Simd {
    fn eq(&self, other: &Simd) -> bool {
        self.name() == other.name()
    }
}

/// A piece of arithmetic that is compiled for every level.
pub(crate) trait Kernel {
    /// Does the work with its 16 lanes in `R` registers. Implementations are `#[inline(always)]`,
    /// so that they are compiled with each level's instructions.
    fn run<S: Level, const R: usize>(self, simd: S);
}

/// Calls a kernel with a level's type and the number of registers that the level needs.
struct Fitted<S, K>(S, K);

impl<S: Level, K: Kernel> WithSimd for Fitted<S, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<Same: Registers>(self, _: Same) {
        match S::F32_LANES {
            16 => self.1.run::<S, 1>(self.0),
            8 => self.1.run::<S, 2>(self.0),
            4 => self.1.run::<S, 4>(self.0),
            _ => self.1.run::<S, 16>(self.0),
        }
    }
}

impl Simd {
    /// Every level that this processor supports, best first.
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

    /// The best level that this processor supports.
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

    /// Runs a kernel with this level's instructions.
    #[inline]
    pub(crate) fn run(self, kernel: impl Kernel) {
        match self {
            Simd::Scalar => run_at(Scalar::new(), kernel),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2(level) => run_at(level, kernel),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512(level) => run_at(level, kernel),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon(level) => run_at(level, kernel),
        }
    }
}

#[inline(always)]
fn run_at<S: Level>(level: S, kernel: impl Kernel) {
    Registers::vectorize(level, Fitted(level, kernel));
}

/// The number of lanes of the arithmetic.
pub(crate) const LANES: usize = 16;

/// 16 words.
pub(crate) type Words = [u32; LANES];

/// Sums of 16 lanes, in registers.
pub(crate) type Sums<S, const R: usize> = [<S as Registers>::f32s; R];

/// Adds `low half * even + high half * odd` of a register's words of two bf16 each to its sums.
#[inline(always)]
pub(crate) fn add_pairs<S: Registers>(
    simd: S,
    sum: S::f32s,
    words: S::u32s,
    even: S::f32s,
    odd: S::f32s,
) -> S::f32s {
    let shifted = simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16));
    let low = simd.transmute_f32s_u32s(shifted);
    let high = simd.transmute_f32s_u32s(simd.and_u32s(words, simd.splat_u32s(0xffff_0000)));
    simd.mul_add_e_f32s(high, odd, simd.mul_add_e_f32s(low, even, sum))
}

/// Loads 16 values into registers.
#[inline(always)]
pub(crate) fn load<S: Registers, const R: usize>(values: &[f32; LANES]) -> [S::f32s; R] {
    let (registers, _) = S::as_simd_f32s(values);
    std::array::from_fn(|at| registers[at])
}

/// Stores registers into 16 values.
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

/// The bits of the bf16 nearest to a value, ties to even. NaN stays NaN.
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
/// For smaller x the result is e^-87, 1.6e-38: negligible, and still a normal number.
const EXP_MIN: f32 = -87.0;

/// e^x for x <= 0, with a relative error below 3e-7 down to -87. The system's library is neither
/// the same on every machine nor vectorized, so this is our own polynomial.
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
        fn run<S: Level, const R: usize>(self, simd: S) {
            let x = load::<S, R>(self.0);
            store::<S, R>(self.0, x.map(|x| exp_nonpositive(simd, x)));
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
