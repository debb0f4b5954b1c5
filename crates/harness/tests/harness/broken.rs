//! Engines with one thing wrong: the gate names it.

use crate::{load, pack, reference};
use monolith_engine::{Decoded, Engine, EngineError, EngineInfo};
use monolith_harness::gate::{GateOptions, run};
use monolith_model::Config;
use std::cell::Cell;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    /// Every hundredth token is another.
    Token,
    /// Logits are off by a little everywhere.
    Logits,
    /// One row of logits is never written.
    Row,
    /// The upper third of the vocabulary cannot be said.
    Vocabulary,
    /// A bit of a logit depends on how often the engine was asked.
    Chance,
    /// Steps in a row give something else.
    Decode,
    /// Positions late in the context are wrong.
    Late,
    /// The context has no end.
    Endless,
}

struct Broken {
    inner: Box<dyn Engine>,
    wrong: Wrong,
    steps: usize,
    position: usize,
    seen: Cell<u32>,
}

impl Engine for Broken {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }

    fn config(&self) -> &Config {
        self.inner.config()
    }

    fn cached(&self) -> usize {
        self.inner.cached()
    }

    fn step(&mut self, token: u32, position: usize) -> Result<u32, EngineError> {
        if self.wrong == Wrong::Endless && position >= self.info().context {
            return Ok(0);
        }
        let next = self.inner.step(token, position)?;
        (self.steps, self.position) = (self.steps + 1, position);
        let vocab = self.config().vocab as u32;
        Ok(match self.wrong {
            Wrong::Token if self.steps.is_multiple_of(100) => (next + 1) % vocab,
            Wrong::Vocabulary if next >= vocab / 3 * 2 => 0,
            _ => next,
        })
    }

    fn decode(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
    ) -> Result<Decoded, EngineError> {
        let mut decoded = self.inner.decode(token, position, steps)?;
        if self.wrong == Wrong::Decode {
            decoded.tokens[steps / 2] ^= 1;
        }
        Ok(decoded)
    }

    fn step_recorded(
        &mut self,
        token: u32,
        position: usize,
    ) -> Result<(u32, monolith_abi::dump::Dump), EngineError> {
        self.inner.step_recorded(token, position)
    }

    fn logits(&self, out: &mut Vec<f32>) {
        self.inner.logits(out);
        self.seen.set(self.seen.get() + 1);
        match self.wrong {
            Wrong::Logits => out.iter_mut().for_each(|logit| *logit += 0.1),
            Wrong::Row => out[7] = -3.0,
            Wrong::Chance => {
                out[7] = f32::from_bits(out[7].to_bits() ^ u32::from(self.seen.get() > 6000));
            }
            Wrong::Late if self.position > 600 => out.iter_mut().for_each(|l| *l *= 1.5),
            _ => {}
        }
    }

    fn intermediate(&self, layer: usize, phase: monolith_abi::Phase) -> Option<Vec<f32>> {
        self.inner.intermediate(layer, phase)
    }
}

/// Names of the checks that fail.
fn failing(wrong: Wrong) -> Vec<String> {
    let loader = move |pack, context| {
        let (inner, seen) = (load(pack, context)?, Cell::new(0));
        let broken: Box<dyn Engine> =
            Box::new(Broken { inner, wrong, steps: 0, position: 0, seen });
        Ok(broken)
    };
    let options = GateOptions::default();
    let record =
        run(&pack(), &loader, reference(), "a run", &options, &mut |_| ()).expect("the gate runs");
    assert_eq!(record.passed, record.failures.is_empty());
    let name = |failure: &String| failure.split(':').next().unwrap_or("").to_owned();
    let mut names: Vec<String> = record.failures.iter().map(name).collect();
    names.dedup();
    names
}

#[test]
fn what_is_wrong_is_named() {
    for (wrong, name) in [
        (Wrong::Token, "tokens"),
        (Wrong::Logits, "logits"),
        (Wrong::Row, "rows"),
        (Wrong::Vocabulary, "vocabulary"),
        (Wrong::Chance, "determinism"),
        (Wrong::Decode, "decode"),
        (Wrong::Late, "context"),
        (Wrong::Endless, "context"),
    ] {
        let names = failing(wrong);
        assert!(names.iter().any(|found| found == name), "{wrong:?}: {names:?}");
    }
}
