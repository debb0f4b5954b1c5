//! The cost of recording: times the loop around a recorded step alternately with the recording
//! build and with the headline build.

use crate::engine::Options;
use crate::interrupt;
use crate::progress::Progress;
use crate::text_out::say;
use monolith_abi::dump::{Dump, Pace};
use monolith_engine::Engine;
use monolith_harness::pace::{Builds, RecordOptions, record};
use monolith_pack::Pack;
use std::sync::Arc;
use std::time::Duration;

/// Number of timed loops of each build.
const RUNS: usize = 3;
/// Time budget of all loops together, the untimed first ones included.
const BUDGET: Duration = Duration::from_secs(2);
/// Maximum length of a loop.
const STEPS_MAX: usize = 16;

/// A recorded step and its text.
pub struct Recorded {
    /// The step.
    pub dump: Dump,
    /// The whole text, which the engine's cache holds.
    pub tokens: Vec<u32>,
    /// Time per step.
    pub step: Duration,
}

impl Recorded {
    /// Adds the pace of the loop around the step; if it cannot be measured, says why.
    pub fn with_pace(
        mut self,
        headline: &Options,
        pack: &Arc<Pack>,
        engine: &mut dyn Engine,
    ) -> Dump {
        match self.pace(headline, pack, engine) {
            Ok(pace) => self.dump.pace = Some(pace),
            Err(why) => say(&format!("monolith: the cost of recording was not measured: {why}")),
        }
        self.dump
    }

    fn pace(
        &self,
        headline: &Options,
        pack: &Arc<Pack>,
        engine: &mut dyn Engine,
    ) -> Result<Pace, String> {
        if interrupt::raised() {
            return Err("interrupted".to_owned());
        }
        let (position, context) = (self.dump.position as usize, engine.info().context);
        let steps = self.steps();
        let first = position.saturating_sub(steps / 2);
        let options = RecordOptions { position, steps: steps.min(context - first), runs: RUNS };
        let progress = Progress::new("xray");
        let mut tell = |what: &str| progress.doing(what);
        // The CPU engine holds both builds of the step; on a GPU the recording build is another
        // kernel.
        let dump = if engine.info().engine == "cpu" {
            record(&mut Builds::One(engine), &self.tokens, &options, &mut tell)
        } else {
            let load = headline.load_first(pack.clone(), Some(context));
            let mut headline = load.map_err(|error| error.to_string())?;
            let mut builds = Builds::Two { headline: headline.as_mut(), recording: engine };
            record(&mut builds, &self.tokens, &options, &mut tell)
        };
        let pace = dump.map_err(|error| error.to_string())?.pace;
        pace.ok_or_else(|| "no loop was timed".to_owned())
    }

    /// Returns as many steps as the budget allows, but at least two.
    fn steps(&self) -> usize {
        let loops = 2 * (RUNS + 1);
        let each = self.step.as_secs_f64().max(1e-6) * loops as f64;
        ((BUDGET.as_secs_f64() / each) as usize).clamp(2, STEPS_MAX)
    }
}
