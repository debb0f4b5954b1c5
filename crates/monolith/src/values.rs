//! Numbers as the command line takes them: what cannot be is refused where it is read.

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use monolith_harness::bench::Output;
use monolith_kernels::{Arch, KernelError};
use monolith_pack::{Formats, ScaleSearch};
use std::str::FromStr;

/// A count that is not 0.
pub fn at_least_1() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
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

/// A share of a whole that is not nothing.
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

/// A time that may be nothing.
///
/// # Errors
/// What was wanted instead.
pub fn duration(text: &str) -> Result<f64, String> {
    number(text, |value: f64| value >= 0.0 && value.is_finite(), "a number from 0 up")
}

/// A form of a benchmark's rows.
pub fn output() -> impl TypedValueParser<Value = Output> {
    PossibleValuesParser::new(Output::ALL.map(|(name, _)| name))
        .map(|name| Output::from_name(&name).unwrap_or(Output::Md))
}

/// Formats of weights, by their name.
pub fn formats() -> impl TypedValueParser<Value = Formats> {
    PossibleValuesParser::new(Formats::NAMED.map(Formats::name))
        .map(|name| Formats::from_name(&name).unwrap_or(Formats::BF16))
}

/// How scales are chosen, by its name.
pub fn scale_search() -> impl TypedValueParser<Value = ScaleSearch> {
    PossibleValuesParser::new(ScaleSearch::ALL.map(ScaleSearch::name))
        .map(|name| ScaleSearch::from_name(&name).unwrap_or_default())
}

/// An architecture that there are kernels for.
///
/// # Errors
/// The name is none; the names there are, are listed.
pub fn arch(text: &str) -> Result<Arch, KernelError> {
    text.parse()
}

/// How far apart two values may be.
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
    text.parse().ok().filter(|&value| fits(value)).ok_or_else(|| format!("{wanted} is wanted"))
}
