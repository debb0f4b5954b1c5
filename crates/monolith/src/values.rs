//! Parsers for option values; they refuse impossible values.

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use monolith_harness::bench::Output;
use monolith_kernels::{Arch, KernelError};
use monolith_pack::{Formats, ScaleSearch};
use std::str::FromStr;

/// A count of at least 1.
pub fn at_least_1() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Limit of the numbers in one list.
const COUNTS_MAX: usize = 1000;

/// Parses counts as llama-bench does: `16`, `16,64`, `16-64` (every one), `16-64+16` (every
/// sixteenth) and `16-128*2` (doubling), in any mixture.
///
/// # Errors
/// What was wanted instead.
pub fn counts(text: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        for count in range(part)? {
            if all.len() == COUNTS_MAX {
                return Err(format!("more than {COUNTS_MAX} numbers"));
            }
            all.push(count);
        }
    }
    Ok(all)
}

/// Parses one part of a list.
fn range(part: &str) -> Result<impl Iterator<Item = usize>, String> {
    let wanted = || format!("\"{part}\": N, FIRST-LAST, FIRST-LAST+STEP or FIRST-LAST*FACTOR");
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<usize>().ok().filter(|_| digits).ok_or_else(wanted)
    };
    let (first, rest) = part.split_once('-').unwrap_or((part, part));
    let (last, step) = rest.split_once(['+', '*']).unwrap_or((rest, "1"));
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    let times = rest.contains('*');
    if first > last || step == 0 || (times && (step == 1 || first == 0)) {
        return Err(format!("\"{part}\" does not end: from {first}, {last} is never reached"));
    }
    let next = move |&count: &usize| {
        let next = if times { count.checked_mul(step) } else { count.checked_add(step) };
        next.filter(|&next| next <= last)
    };
    Ok(std::iter::successors(Some(first), next))
}

/// A number of threads.
pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=4096)
}

/// A sampling temperature.
///
/// # Errors
/// What was wanted instead.
pub fn temperature(text: &str) -> Result<f32, String> {
    number(text, |value: f32| value >= 0.0 && value.is_finite(), "a number from 0 up")
}

/// A fraction, above 0 and up to 1.
///
/// # Errors
/// What was wanted instead.
pub fn share(text: &str) -> Result<f32, String> {
    number(text, |value: f32| value > 0.0 && value <= 1.0, "a number above 0 and up to 1")
}

/// A memory bandwidth.
///
/// # Errors
/// What was wanted instead.
pub fn speed(text: &str) -> Result<f64, String> {
    number(text, |value: f64| value > 0.0 && value.is_finite(), "a number above 0")
}

/// The output formats of a benchmark's rows.
pub fn output() -> impl TypedValueParser<Value = Output> {
    PossibleValuesParser::new(Output::ALL.map(|(name, _)| name))
        .map(|name| Output::from_name(&name).unwrap_or(Output::Md))
}

/// The names of the weight formats.
pub fn formats() -> impl TypedValueParser<Value = Formats> {
    PossibleValuesParser::new(Formats::NAMES)
        .map(|name| Formats::from_name(&name).unwrap_or(Formats::BF16))
}

/// The names of the ways to choose scales.
pub fn scale_search() -> impl TypedValueParser<Value = ScaleSearch> {
    PossibleValuesParser::new(ScaleSearch::ALL.map(ScaleSearch::name))
        .map(|name| ScaleSearch::from_name(&name).unwrap_or_default())
}

/// An architecture that the kernels support.
///
/// # Errors
/// An unknown name; the message lists the known ones.
pub fn arch(text: &str) -> Result<Arch, KernelError> {
    text.parse()
}

/// The largest difference between two values that still counts as equal.
///
/// # Errors
/// What was wanted instead.
pub fn tolerance(text: &str) -> Result<f32, String> {
    number(text, |value: f32| value >= 0.0 && value.is_finite(), "a number from 0 up")
}

fn number<T: FromStr + Copy>(
    text: &str,
    fits: impl Fn(T) -> bool,
    wanted: &str,
) -> Result<T, String> {
    text.parse().ok().filter(|&value| fits(value)).ok_or_else(|| format!("expected {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_llama_bench_reads_them() {
        for (text, all) in [
            ("16", &[16][..]),
            ("0", &[0]),
            ("16,64", &[16, 64]),
            ("3-6", &[3, 4, 5, 6]),
            ("16-64+16", &[16, 32, 48, 64]),
            ("16-60+16", &[16, 32, 48]),
            ("16-128*2", &[16, 32, 64, 128]),
            ("5-5*2,1,0-2", &[5, 1, 0, 1, 2]),
            ("18446744073709551615", &[usize::MAX]),
            ("18446744073709551614-18446744073709551615+2", &[usize::MAX - 1]),
        ] {
            assert_eq!(counts(text).unwrap(), all, "{text}");
        }
    }

    #[test]
    fn counts_that_are_none_are_refused() {
        for text in [
            "",
            ",",
            "16,",
            "-1",
            "+1",
            "1.5",
            "x",
            "8-4",
            "1-8+0",
            "1-8*1",
            "0-8*2",
            "1-8*0",
            "1-8/2",
            "1-8-2",
            "1-8+2*2",
            "16 ",
            "18446744073709551616",
            "0-18446744073709551615",
            "1-2000",
        ] {
            assert!(counts(text).is_err(), "{text}");
        }
    }
}
