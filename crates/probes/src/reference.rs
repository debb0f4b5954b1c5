//! The expected results of the conversions, from the formats' definitions.

use half::f16;

/// The value of an e4m3 code: a sign, four bits of exponent with bias 7, three of mantissa. No
/// infinities; `None` for the two codes, 0x7f and 0xff, that are not a number.
pub fn e4m3(code: u8) -> Option<f32> {
    if code & 0x7f == 0x7f {
        return None;
    }
    Some(value(code >> 7, u32::from(code >> 3 & 0xf), u32::from(code & 7), 3, 7))
}

/// The value of an e2m1 code (the low four bits): a sign, two bits of exponent with bias 1, one
/// of mantissa. Every code is a number.
pub fn e2m1(code: u8) -> f32 {
    value(code >> 3 & 1, u32::from(code >> 1 & 3), u32::from(code & 1), 1, 1)
}

/// A number of `mantissa_bits`; exponent 0 is subnormal. Exact: a small integer times a power of
/// two.
fn value(sign: u8, exponent: u32, mantissa: u32, mantissa_bits: i32, bias: i32) -> f32 {
    let (whole, power) = match exponent {
        0 => (mantissa, 1),
        _ => (mantissa | 1 << mantissa_bits, exponent as i32),
    };
    let magnitude = whole as f32 * 2f32.powi(power - bias - mantissa_bits);
    if sign == 0 { magnitude } else { -magnitude }
}

/// The power of two that the shift trick for e4m3 multiplies the value with.
const E4M3_SHIFT_POWER: i32 = -8;
/// The power of two that the shift trick for e2m1 multiplies the value with.
const E2M1_SHIFT_POWER: i32 = -14;
/// The value that the shift trick gives for e4m3's NaN codes.
const E4M3_SHIFT_NAN: f32 = 480.0;

/// f16 bits of an e4m3 code by the instruction; `None` stands for any NaN.
pub fn e4m3_by_cvt(code: u8) -> Option<u16> {
    e4m3(code).map(|value| f16::from_f32(value).to_bits())
}

/// f16 bits of an e4m3 code by the shift trick.
pub fn e4m3_by_shift(code: u8) -> u16 {
    let signed = if code & 0x80 == 0 { E4M3_SHIFT_NAN } else { -E4M3_SHIFT_NAN };
    let value = e4m3(code).unwrap_or(signed);
    f16::from_f32(value * 2f32.powi(E4M3_SHIFT_POWER)).to_bits()
}

/// f16 bits of an e2m1 code by the instruction.
pub fn e2m1_by_cvt(code: u8) -> u16 {
    f16::from_f32(e2m1(code)).to_bits()
}

/// f16 bits of an e2m1 code by the shift trick.
pub fn e2m1_by_shift(code: u8) -> u16 {
    f16::from_f32(e2m1(code) * 2f32.powi(E2M1_SHIFT_POWER)).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use float8::F8E4M3;

    #[test]
    fn e4m3_agrees_with_another_implementation_on_every_code() {
        for code in 0..=u8::MAX {
            let other = F8E4M3::from_bits(code).to_f32();
            match e4m3(code) {
                Some(value) => assert_eq!(value.to_bits(), other.to_bits(), "{code:#04x}"),
                None => assert!(other.is_nan(), "{code:#04x}"),
            }
        }
        assert_eq!(e4m3(0x7e), Some(448.0));
        assert_eq!(e4m3(0x01), Some(0.001953125));
    }

    #[test]
    fn e2m1_is_the_table() {
        let table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (code, value) in (0u8..).zip(table) {
            assert_eq!(e2m1(code).to_bits(), f32::to_bits(value), "{code}");
            assert_eq!(e2m1(code | 8).to_bits(), f32::to_bits(-value), "-{code}");
        }
    }

    /// The tricks' own bit operations, as convert.cu writes them.
    #[test]
    fn the_shift_tricks_are_exact_on_every_code() {
        for code in 0..=u8::MAX {
            let shifted = u16::from(code & 0x7f) << 7 | u16::from(code & 0x80) << 8;
            assert_eq!(shifted, e4m3_by_shift(code), "e4m3 {code:#04x}");
            if let Some(bits) = e4m3_by_cvt(code) {
                let scaled = f16::from_bits(bits).to_f32();
                assert_eq!(scaled, f16::from_bits(shifted).to_f32() * 256.0, "{code:#04x}");
            }
        }
        for code in 0..16u8 {
            let wide = u16::from(code);
            let shifted = wide << 9 & 0x0e00 | wide << 12 & 0x8000;
            assert_eq!(shifted, e2m1_by_shift(code), "e2m1 {code}");
            assert_eq!(f16::from_bits(shifted).to_f32() * 16384.0, e2m1(code));
        }
    }

    #[test]
    fn f16_holds_every_value_exactly() {
        for code in 0..=u8::MAX {
            if let (Some(value), Some(bits)) = (e4m3(code), e4m3_by_cvt(code)) {
                assert_eq!(f16::from_bits(bits).to_f32().to_bits(), value.to_bits());
            }
            let bits = e2m1_by_cvt(code & 15);
            assert_eq!(f16::from_bits(bits).to_f32().to_bits(), e2m1(code & 15).to_bits());
        }
    }
}
