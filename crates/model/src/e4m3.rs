//! E4M3, the 8-bit float of FP8 weights: sign, four bits of exponent (bias 7), three of mantissa.
//! The variant without infinities ("fn"): the largest value is 448, and only the
//! codes 0x7F and 0xFF are NaN.

/// The largest value.
pub const MAX: f32 = 448.0;

/// The value of every code; of 0x7F and 0xFF, NaN.
pub const VALUES: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = decode(code as u8);
        code += 1;
    }
    values
};

/// The value of a code; of 0x7F and 0xFF, NaN.
pub fn value(code: u8) -> f32 {
    VALUES[usize::from(code)]
}

/// Whether the code is NaN.
pub fn is_nan(code: u8) -> bool {
    code & 0x7f == 0x7f
}

const fn decode(code: u8) -> f32 {
    let (sign, magnitude) = ((code as u32 & 0x80) << 24, code as u32 & 0x7f);
    if magnitude == 0x7f {
        return f32::NAN;
    }
    if magnitude < 8 {
        // Subnormal: multiples of 2^-9.
        let value = magnitude as f32 / 512.0;
        return f32::from_bits(value.to_bits() | sign);
    }
    // The same fields, wider: the exponent's bias goes from 7 to 127.
    f32::from_bits(sign | ((magnitude << 20) + ((127 - 7) << 23)))
}

/// Returns the code of the value nearest to `x`; of two equally near values, the one whose last bit
/// is 0. Larger values than 448 saturate to 448, and so does infinity. It never returns a NaN code:
/// NaN becomes 448 as well, so callers refuse NaN first.
pub fn encode(x: f64) -> u8 {
    let sign = ((x.to_bits() >> 56) & 0x80) as u8;
    // Values more than half a step above 448 saturate: otherwise the exponent below would overflow.
    // `min` gives 464 for NaN.
    let magnitude = x.abs().min(464.0);
    // The exponent of the binade; values below the smallest normal, 2^-6, have its steps.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-6);
    // Eight steps per binade. The product with a power of two is exact.
    let per_step = f64::from_bits(((1023 + 3 - exponent) as u64) << 52);
    // Adding 2^52 rounds to whole steps, to nearest even; the last bits then count them: 0 to 16.
    let steps = (magnitude * per_step + 4_503_599_627_370_496.0).to_bits() as u8;
    // Of a normal's steps the first eight are its leading 1; 16 carry into the exponent.
    sign | ((((exponent + 6) as u8) << 3) + (steps & 0x1f))
}

/// Returns the E4M3 value nearest to `x`: `value(encode(x))`, but without code and table, so that a
/// loop over many values needs no lookup.
pub fn round(x: f64) -> f64 {
    const EXPONENT_BITS: u64 = 0x7ff0_0000_0000_0000;
    // 2^-6, the smallest normal; the numbers below it have its steps.
    const SMALLEST_NORMAL: f64 = 0.015625;
    // 1.5 times 2^52, for steps of an eighth: a sum with it has one bit for each step.
    const ROUNDER: f64 = 844_424_930_131_968.0;
    let magnitude = x.abs().min(464.0);
    let binade = f64::from_bits(magnitude.max(SMALLEST_NORMAL).to_bits() & EXPONENT_BITS);
    let rounder = binade * ROUNDER;
    ((magnitude + rounder) - rounder).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use float8::F8E4M3;
    use proptest::prelude::*;

    fn numbers() -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|&code| !is_nan(code))
    }

    /// The code by looking at all of them. Differences of an f32 and an E4M3 value of similar size
    /// are exact in f64; far outside the range they would all be the same.
    fn by_search(x: f32) -> u8 {
        let x = f64::from(x).clamp(-500.0, 500.0);
        let distance = |code: u8| (f64::from(value(code)) - x).abs();
        let same_sign = numbers().filter(|code| (code & 0x80 != 0) == x.is_sign_negative());
        let key = |code: u8| (distance(code), code & 1);
        same_sign.min_by(|&a, &b| key(a).partial_cmp(&key(b)).unwrap()).unwrap()
    }

    #[test]
    fn all_codes_have_another_implementations_value() {
        for code in 0..=u8::MAX {
            let other = F8E4M3::from_bits(code).to_f32();
            if is_nan(code) {
                assert!(value(code).is_nan() && other.is_nan(), "{code:#04x}");
            } else {
                assert_eq!(value(code).to_bits(), other.to_bits(), "{code:#04x}");
            }
        }
    }

    #[test]
    fn every_value_has_its_own_code() {
        for code in numbers() {
            assert_eq!(encode(f64::from(value(code))), code, "{code:#04x}");
        }
    }

    #[test]
    fn ties_go_to_the_even_code_and_what_is_just_beside_them_does_not() {
        for code in 0..0x7eu8 {
            let (below, above) = (f64::from(value(code)), f64::from(value(code + 1)));
            let tie = (below + above) / 2.0;
            for (sign, bit) in [(1.0, 0u8), (-1.0, 0x80)] {
                assert_eq!(encode(sign * tie), bit | (code + (code & 1)), "{code:#04x}");
                assert_eq!(encode(sign * tie.next_down()), bit | code, "{code:#04x}");
                assert_eq!(encode(sign * tie.next_up()), bit | (code + 1), "{code:#04x}");
            }
        }
    }

    #[test]
    fn every_bf16_value_goes_where_a_search_says() {
        for bits in 0..=u16::MAX {
            let x = f32::from_bits(u32::from(bits) << 16);
            if x.is_nan() {
                assert!(!is_nan(encode(f64::from(x))));
            } else {
                assert_eq!(encode(f64::from(x)), by_search(x), "{x}");
                let rounded = round(f64::from(x));
                assert_eq!(rounded.to_bits(), f64::from(value(by_search(x))).to_bits(), "{x}");
                assert_eq!(encode(f64::from(x)), F8E4M3::from_f64(f64::from(x)).to_bits(), "{x}");
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates() {
        for x in [448.0, 463.9, 464.0, 464.1, 479.9, 480.0, 1e10, f64::MAX, f64::INFINITY] {
            assert_eq!((encode(x), encode(-x)), (0x7e, 0xfe), "{x}");
        }
        assert_eq!((encode(0.0), encode(-0.0)), (0, 0x80));
        assert_eq!((encode(f64::MIN_POSITIVE), encode(5e-324)), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_f32_goes_where_a_search_says(bits in any::<u32>()) {
            let x = f32::from_bits(bits);
            if !x.is_nan() {
                prop_assert_eq!(encode(f64::from(x)), by_search(x), "{}", x);
            }
        }

        #[test]
        fn numbers_in_range_go_where_a_search_says(x in -500f32..500.0, power in -12..1i32) {
            let x = x * 2f32.powi(power);
            prop_assert_eq!(encode(f64::from(x)), by_search(x), "{}", x);
            prop_assert_eq!(round(f64::from(x)), f64::from(value(by_search(x))), "{}", x);
        }
    }
}
