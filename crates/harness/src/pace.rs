//! A recorded step of a decode loop, and what recording costs: the same loop by the build that is
//! timed and by the one that records, in turn.

use crate::bench::median;
use crate::{HarnessError, Progress, fill};
use monolith_abi::dump::{Dump, Pace};
use monolith_engine::Engine;

/// Which step is recorded, and in which loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Position of the step whose dump is kept.
    pub position: usize,
    /// Steps of the loop; the kept one is in its middle, as far as there are positions before it.
    pub steps: usize,
    /// Loops of each engine that are timed.
    pub runs: usize,
}

/// The same weights in the build that is timed and in the one that records.
pub struct Pair<'a> {
    /// Records nothing.
    pub headline: &'a mut dyn Engine,
    /// Records every step.
    pub recording: &'a mut dyn Engine,
}

/// Runs the loops; gives the last one's dump, with the median pace of both engines in it.
///
/// # Errors
/// A step that fails, an engine that cannot record, or engines whose tokens differ.
pub fn record(
    pair: &mut Pair<'_>,
    sequence: &[u32],
    options: &RecordOptions,
    progress: &mut Progress,
) -> Result<Dump, HarnessError> {
    let first = options.position.saturating_sub(options.steps / 2).min(sequence.len() - 1);
    let (token, chosen) = (sequence[first], options.position - first);
    let steps = options.steps.max(chosen + 1);
    progress(&format!("position {}: filling {first} positions", options.position));
    fill(pair.headline, &sequence[..first])?;
    fill(pair.recording, &sequence[..first])?;
    let tokens = pair.headline.decode(token, first, steps)?.tokens;
    let (_, mut dump) = pair.recording.decode_recorded(token, first, steps, chosen)?;
    let (mut plain, mut recorded) = (Vec::new(), Vec::new());
    for run in 1..=options.runs {
        progress(&format!("position {}: run {run} of {}", options.position, options.runs));
        let decoded = pair.headline.decode(token, first, steps)?;
        let (same, last) = pair.recording.decode_recorded(token, first, steps, chosen)?;
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

/// Of seconds a loop, the median in nanoseconds a step.
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
