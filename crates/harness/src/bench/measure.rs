//! A test's timed runs.

use super::{Bench, BenchOptions, Test};
use crate::adapters::{Contender, Monolith};
use crate::environment::Sample;
use crate::identity::sha256_hex;
use crate::{HarnessError, Progress, fill};
use std::time::Instant;

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
        one_run(&mut bench.contender(), test, &sequences[..1], &name, progress)?;
    }
    let mut measured =
        Measured { seconds: Vec::new(), samples: Vec::new(), tokens_sha256: String::new() };
    for run in 1..=options.runs {
        let what = format!("{name}, run {run} of {}", options.runs);
        progress(&what);
        let (seconds, tokens) = one_run(&mut bench.contender(), test, &sequences, &what, progress)?;
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
    ours: &mut Monolith,
    test: Test,
    sequences: &[Vec<u32>],
    what: &str,
    progress: &mut Progress,
) -> Result<(f64, Vec<u32>), HarnessError> {
    let (mut seconds, mut tokens) = (0.0, Vec::new());
    for (index, sequence) in sequences.iter().enumerate() {
        let (answer, steps) = match test {
            Test::Prompt { .. } => {
                let begin = Instant::now();
                tokens.push(ours.engine.prefill(sequence)?);
                seconds += begin.elapsed().as_secs_f64();
                continue;
            }
            Test::Prompts { steps } => {
                let what = format!("{what}, prompt {} of {}", index + 1, sequences.len());
                (ours.decode(sequence, steps, &what, progress)?, steps)
            }
            // The positions before are filled once for all runs.
            Test::Depth { depth, steps } => {
                (ours.decode_from(sequence[depth], depth, steps)?, steps)
            }
        };
        if answer.tokens.len() != steps {
            return Err(HarnessError::Unsteady { test: test.name() });
        }
        seconds += answer.seconds;
        tokens.extend(answer.tokens);
    }
    Ok((seconds, tokens))
}
