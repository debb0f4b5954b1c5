//! SIMD by run-time detection. The arithmetic is written once, on arrays of 16 lanes; it is
//! compiled for each level, and the level is chosen when the engine loads.
//!
//! Every level with fused multiply-add gives the same bits: lanes, order and rounding do not
//! depend on the width of the registers. The scalar level rounds twice where those round once.

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
    /// Does the work. `FMA`: multiply-add is one instruction. `WIDE`: there are 32 registers of
    /// 16 lanes. Implementations are `#[inline(always)]`, to be compiled inside each level.
    fn run<const FMA: bool, const WIDE: bool>(self);
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
            Simd::Scalar => kernel.run::<false, false>(),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2(level) => level.vectorize(
                #[inline(always)]
                || kernel.run::<true, false>(),
            ),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512(level) => level.vectorize(
                #[inline(always)]
                || kernel.run::<true, true>(),
            ),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon(level) => level.vectorize(
                #[inline(always)]
                || kernel.run::<true, false>(),
            ),
        }
    }
}

/// Lanes of the arrays that the arithmetic is written on.
pub(crate) const LANES: usize = 16;

/// `a * b + c`, rounded once where the level can.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The f32 of a bf16's bits (exact).
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

/// e^x for x <= 0, within 3e-7 of the value; 0 below -87. Its own polynomial, since the system's
/// library is neither the same on every machine nor vectorized.
#[inline(always)]
pub(crate) fn exp_nonpositive<const FMA: bool>(x: f32) -> f32 {
    let x = x.max(-87.0);
    // Adding 1.5 * 2^23 rounds to a whole number in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let whole = shifted - ROUND;
    // ln 2 in two parts, so that x - whole * ln 2 keeps its low bits.
    let rest = fma::<FMA>(whole, -0.693_359_4, x);
    let rest = fma::<FMA>(whole, 2.121_944_4e-4, rest);
    let mut poly = 1.0 / 720.0;
    for factor in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        poly = fma::<FMA>(poly, rest, factor);
    }
    let scale = f32::from_bits(((whole as i32 + 127) as u32) << 23);
    if x <= -87.0 { 0.0 } else { poly * scale }
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

    #[test]
    fn exp_is_close_everywhere() {
        let mut x = 0.0f32;
        while x > -86.9 {
            for value in [exp_nonpositive::<true>(x), exp_nonpositive::<false>(x)] {
                let exact = f64::from(x).exp();
                let error = (f64::from(value) - exact).abs() / exact;
                assert!(error < 3e-7, "exp({x}) = {value}, off by {error}");
            }
            x -= 0.003_7;
        }
        assert_eq!(exp_nonpositive::<true>(0.0), 1.0);
        assert_eq!(exp_nonpositive::<true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_nonpositive::<true>(-1000.0), 0.0);
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
