//! Records a step of a decode loop and measures the cost of recording: runs the same loop
//! alternately with the headline build and the recording build.

use crate::bench::median;
use crate::{HarnessError, Progress, fill};
use monolith_abi::dump::{Dump, Pace};
use monolith_engine::{Engine, EngineError};

/// Which step is recorded, and in which loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Position of the step whose dump is kept.
    pub position: usize,
    /// Steps of the loop; the kept one is in its middle, if there are enough positions before it.
    pub steps: usize,
    /// Number of timed loops of each engine.
    pub runs: usize,
}

/// The headline build and the recording build, with the same weights.
pub enum Builds<'a> {
    /// One engine does both, as on the CPU, whose step is compiled with and without recording. Its
    /// cache must hold the sequence.
    One(&'a mut dyn Engine),
    /// Two engines.
    Two {
        /// Records nothing.
        headline: &'a mut dyn Engine,
        /// Records every step.
        recording: &'a mut dyn Engine,
    },
}

impl Builds<'_> {
    fn headline(&mut self) -> &mut dyn Engine {
        match self {
            Builds::One(engine) | Builds::Two { headline: engine, .. } => *engine,
        }
    }

    fn recording(&mut self) -> &mut dyn Engine {
        match self {
            Builds::One(engine) | Builds::Two { recording: engine, .. } => *engine,
        }
    }

    fn fill(
        &mut self,
        tokens: &[u32],
        what: &str,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        match self {
            Builds::One(engine) if engine.cached() >= tokens.len() => Ok(()),
            Builds::One(engine) => fill(*engine, tokens, what, progress),
            Builds::Two { headline, recording } => {
                fill(*headline, tokens, what, progress)?;
                fill(*recording, tokens, &format!("{what} of the recording build"), progress)
            }
        }
    }
}

/// Runs the loops; returns the last one's dump, which includes the median pace of both builds.
///
/// # Errors
/// A step that fails, an engine that cannot record, or builds whose tokens differ.
pub fn record(
    builds: &mut Builds<'_>,
    sequence: &[u32],
    options: &RecordOptions,
    progress: &mut Progress,
) -> Result<Dump, HarnessError> {
    let first = options.position.saturating_sub(options.steps / 2).min(sequence.len() - 1);
    let (token, chosen) = (sequence[first], options.position - first);
    let steps = options.steps.max(chosen + 1);
    let what = format!("position {}: filling {first} positions", options.position);
    progress(&what);
    builds.fill(&sequence[..first], &what, progress)?;
    let tokens = builds.headline().decode(token, first, steps)?.tokens;
    let (_, mut dump) = builds.recording().decode_recorded(token, first, steps, chosen)?;
    let (mut plain, mut recorded) = (Vec::new(), Vec::new());
    for run in 1..=options.runs {
        progress(&format!("position {}: run {run} of {}", options.position, options.runs));
        let decoded = builds.headline().decode(token, first, steps)?;
        let (same, last) = builds.recording().decode_recorded(token, first, steps, chosen)?;
        if decoded.tokens != tokens || same.tokens != tokens {
            let test = format!("the step at position {}, recorded", options.position);
            return Err(HarnessError::Unsteady { test });
        }
        plain.push(decoded.seconds);
        recorded.push(same.seconds);
        dump = last;
    }
    dump.pace = median_ns(&mut plain, steps)
        .zip(median_ns(&mut recorded, steps))
        .map(|(headline_ns, instrumented_ns)| Pace { headline_ns, instrumented_ns });
    Ok(dump)
}

/// Converts the loops' seconds to the median nanoseconds per step.
fn median_ns(seconds: &mut [f64], steps: usize) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    (!seconds.is_empty()).then(|| median(seconds) * 1e9 / steps as f64)
}

#[cfg(test)]
mod tests {
    use super::median_ns;

    #[test]
    fn the_median_is_of_the_sorted_seconds() {
        assert_eq!(median_ns(&mut [3.0, 1.0, 2.0], 2), Some(1e9));
        assert_eq!(median_ns(&mut [4.0, 1.0, 2.0, 3.0], 1), Some(2.5e9));
        assert_eq!(median_ns(&mut [], 1), None);
    }
}
