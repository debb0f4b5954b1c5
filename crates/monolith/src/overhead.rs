//! What recording costs: the loop around a recorded step, by the build that records and by the one
//! that does not, in turn.

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

/// Loops of each build that are timed.
const RUNS: usize = 3;
/// Time that all loops together should take, the untimed first ones included.
const BUDGET: Duration = Duration::from_secs(2);
/// The longest loop.
const STEPS_MAX: usize = 16;

/// A recorded step, and the text that it is of.
pub struct Recorded {
    /// The step.
    pub dump: Dump,
    /// The whole text, which the engine's cache holds.
    pub tokens: Vec<u32>,
    /// How long a step takes.
    pub step: Duration,
}

impl Recorded {
    /// The step with the pace of the loop around it; or without it, and why it was not measured.
    pub fn with_pace(
        mut self,
        headline: &Options,
        pack: &Arc<Pack>,
        engine: &mut dyn Engine,
    ) -> Dump {
        match self.pace(headline, pack, engine) {
            Ok(pace) => self.dump.pace = Some(pace),
            Err(why) => say(&format!("monolith: what recording costs was not measured: {why}")),
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
        // The CPU engine's step is compiled with and without recording, a GPU's kernel is another.
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

    /// As many steps as the budget has, but two at least.
    fn steps(&self) -> usize {
        let loops = 2 * (RUNS + 1);
        let each = self.step.as_secs_f64().max(1e-6) * loops as f64;
        ((BUDGET.as_secs_f64() / each) as usize).clamp(2, STEPS_MAX)
    }
}
