//! A test's timed runs.

use super::{Bench, BenchOptions, Test};
use crate::environment::Sample;
use crate::identity::sha256_hex;
use crate::{HarnessError, Progress, fill, prefill};
use monolith_engine::Engine;
use std::time::Instant;

/// How far the engine's clock may run ahead of the host's: a fraction, plus seconds.
const CLOCK_AHEAD: (f64, f64) = (1.02, 1e-3);
/// How far it may run behind: the host's time includes the calls.
const CLOCK_BEHIND: (f64, f64) = (0.8, 5e-3);

/// The results of a test's timed runs.
pub struct Measured {
    /// Seconds of each run (for the prompts: the mean over them).
    pub seconds: Vec<f64>,
    /// The processor's state after each run.
    pub samples: Vec<Sample>,
    /// Hash of the tokens, the same in every run.
    pub tokens_sha256: String,
}

/// Runs one test, warm-up first.
///
/// # Errors
/// A step that fails; clocks that do not agree; runs that gave different tokens.
pub fn measure(
    bench: &mut Bench,
    test: Test,
    options: &BenchOptions,
    progress: &mut Progress,
) -> Result<Measured, HarnessError> {
    let name = test.name();
    progress(&name);
    let sequences: Vec<Vec<u32>> = match test {
        Test::Prompts { .. } => bench.prompts.ids.clone(),
        Test::Depth { depth, .. } => vec![bench.prompts.cycled(depth + 1)],
        Test::Prompt { tokens } => vec![bench.prompts.cycled(tokens)],
    };
    if let Test::Depth { depth, .. } = test {
        // Filled once: the timed runs do not change these positions.
        fill(bench.engine, &sequences[0][..depth], &name, progress)?;
    }
    if options.warm_up {
        one_run(bench.engine, test, &sequences[..1], &name, progress)?;
    }
    let mut measured =
        Measured { seconds: Vec::new(), samples: Vec::new(), tokens_sha256: String::new() };
    for run in 1..=options.runs {
        let what = format!("{name}, run {run} of {}", options.runs);
        progress(&what);
        let (seconds, tokens) = one_run(bench.engine, test, &sequences, &what, progress)?;
        measured.seconds.push(seconds / sequences.len() as f64);
        measured.samples.extend(bench.probe.sample());
        let tokens: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let hash = sha256_hex(&tokens);
        if !measured.tokens_sha256.is_empty() && measured.tokens_sha256 != hash {
            return Err(HarnessError::Unsteady { test: name });
        }
        measured.tokens_sha256 = hash;
    }
    Ok(measured)
}

/// Runs all sequences once; returns the seconds and the tokens. The work that is not timed reports
/// progress.
fn one_run(
    engine: &mut dyn Engine,
    test: Test,
    sequences: &[Vec<u32>],
    what: &str,
    progress: &mut Progress,
) -> Result<(f64, Vec<u32>), HarnessError> {
    let (mut seconds, mut tokens) = (0.0, Vec::new());
    for (index, sequence) in sequences.iter().enumerate() {
        let (first, position, steps) = match test {
            Test::Prompt { .. } => {
                let begin = Instant::now();
                tokens.push(engine.prefill(sequence)?);
                seconds += begin.elapsed().as_secs_f64();
                continue;
            }
            Test::Prompts { steps } => {
                let what = format!("{what}, prompt {} of {}", index + 1, sequences.len());
                (prefill(engine, sequence, &what, progress)?, sequence.len(), steps)
            }
            Test::Depth { depth, steps } => (sequence[depth], depth, steps),
        };
        let begin = Instant::now();
        let decoded = engine.decode(first, position, steps)?;
        check_clock(decoded.seconds, begin.elapsed().as_secs_f64())?;
        if decoded.tokens.len() != steps {
            return Err(HarnessError::Unsteady { test: test.name() });
        }
        seconds += decoded.seconds;
        tokens.extend(decoded.tokens);
    }
    Ok((seconds, tokens))
}

/// Checks that the engine's clock is plausible.
fn check_clock(engine_s: f64, host_s: f64) -> Result<(), HarnessError> {
    let least = CLOCK_BEHIND.0 * host_s - CLOCK_BEHIND.1;
    let most = CLOCK_AHEAD.0 * host_s + CLOCK_AHEAD.1;
    if engine_s > 0.0 && (least..=most).contains(&engine_s) {
        return Ok(());
    }
    Err(HarnessError::Clock { engine_s, host_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_cannot_be_right_is_refused() {
        assert!(check_clock(0.99, 1.0).is_ok());
        for engine_s in [0.0, -1.0, 0.5, 1.1, f64::NAN] {
            assert!(check_clock(engine_s, 1.0).is_err(), "{engine_s}");
        }
    }
}
