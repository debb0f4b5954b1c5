//! Our engines, through [`Engine`].

use super::{Answer, Contender, Description, TimedAnswer};
use crate::subject::{Ours, Subject};
use crate::{HarnessError, Progress, prefill};
use monolith_engine::{Engine, Timed};
use monolith_pack::Pack;
use std::time::Instant;

/// How far the engine's clock may run ahead of the host's: a fraction, plus seconds.
const CLOCK_AHEAD: (f64, f64) = (1.02, 1e-3);
/// How far it may run behind: the host's time includes the calls.
const CLOCK_BEHIND: (f64, f64) = (0.8, 5e-3);

/// How often steps are timed before clocks that disagree are an error: a machine that is busy with
/// other work can keep the host's thread waiting once.
const CLOCK_TRIES: usize = 5;

/// An engine of ours with its weights.
pub struct Monolith<'a> {
    /// The engine.
    pub engine: &'a mut dyn Engine,
    /// Its weights.
    pub pack: &'a Pack,
    /// The measuring run.
    pub run_id: &'a str,
}

impl Monolith<'_> {
    /// Times `steps` greedy steps from `token` at `position` on.
    ///
    /// # Errors
    /// A step that fails, or clocks that disagree.
    pub fn decode_from(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
    ) -> Result<Answer, HarnessError> {
        tried(|| self.decode_once(token, position, steps))
    }

    fn decode_once(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
    ) -> Result<Answer, HarnessError> {
        let begin = Instant::now();
        let decoded = self.engine.decode(token, position, steps)?;
        check_clock(decoded.seconds, begin.elapsed().as_secs_f64())?;
        Ok(Answer { tokens: decoded.tokens, seconds: decoded.seconds })
    }
}

/// Times steps until the clocks agree.
fn tried<T>(mut once: impl FnMut() -> Result<T, HarnessError>) -> Result<T, HarnessError> {
    for _ in 1..CLOCK_TRIES {
        match once() {
            Err(HarnessError::Clock { .. }) => {}
            done => return done,
        }
    }
    once()
}

impl Contender for Monolith<'_> {
    fn describe(&self) -> Result<Description, HarnessError> {
        let info = self.engine.info();
        Ok(Description {
            subject: Subject::Ours(Ours::of(info, self.pack, self.run_id)?),
            context: info.context,
            launches_per_token: info.launches_per_token,
            clock: info.clock,
        })
    }

    fn decode(
        &mut self,
        prompt: &[u32],
        steps: usize,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Answer, HarnessError> {
        let first = prefill(self.engine, prompt, what, progress)?;
        self.decode_from(first, prompt.len(), steps)
    }

    fn decode_timed(
        &mut self,
        prompt: &[u32],
        steps: usize,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Option<TimedAnswer>, HarnessError> {
        let first = prefill(self.engine, prompt, what, progress)?;
        tried(|| {
            let begin = Instant::now();
            let Timed { tokens, at_ns } = self.engine.decode_timed(first, prompt.len(), steps)?;
            let host_s = begin.elapsed().as_secs_f64();
            check_clock(at_ns.last().map_or(0.0, |&last| last as f64 / 1e9), host_s)?;
            Ok(Some(TimedAnswer { first, tokens, at_ns }))
        })
    }

    fn logits(&self) -> Option<Vec<f32>> {
        let mut logits = Vec::new();
        self.engine.logits(&mut logits);
        Some(logits)
    }
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
