//! The benchmark: times greedy decoding with prefill excluded and argmax included, and the
//! processing of a prompt.
//!
//! A measurement without a passed gate of the same run is *unverified*: its rows say so, and no
//! run's folder keeps them.

mod measure;
mod output;
mod row;
mod sql;
mod stream;

pub use output::{Output, rendered};
pub(crate) use output::{percent, predictions, signed_percent};
pub(crate) use row::median;
pub use row::{Facts, PassedGate, Predicted, Roofline, Row, SCHEMA_VERSION, Test, row};
pub use stream::{First, Pass, Stream, StreamRecord};

use crate::adapters::{Contender, Description, Monolith};
use crate::environment::{Energy, Environment, Probe, Telemetry};
use crate::gate::{self, GateRecord};
use crate::identity::file_sha256;
use crate::predict::{Prediction, Predictor};
use crate::prompts::PromptIds;
use crate::subject::Ours;
use crate::{HarnessError, Progress, fill};
use measure::{Measured, measure};
use monolith_engine::{Engine, HOST_CLOCK};
use monolith_kernels::Variant;
use monolith_pack::Pack;
use std::path::Path;
use std::time::Instant;

/// The tests to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Timed runs of each test.
    pub runs: usize,
    /// Numbers of tokens to decode, one test each for the prompts and for every depth.
    pub steps: Vec<usize>,
    /// Numbers of cached positions before the first timed step, one test each.
    pub depths: Vec<usize>,
    /// Prompt lengths to time, one test each.
    pub prompt_lengths: Vec<usize>,
    /// Whether decoding after each prompt is a test.
    pub prompts: bool,
    /// Whether each test begins with an untimed run.
    pub warm_up: bool,
    /// The measured bandwidth, for the roofline.
    pub roofline: Option<Roofline>,
    /// Predicts each test's speed; `None` for a processor without a model.
    pub predictor: Option<Predictor>,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            runs: 5,
            steps: vec![256],
            depths: vec![16, 128, 512, 1024, 2048],
            prompt_lengths: Vec::new(),
            prompts: true,
            warm_up: true,
            roofline: None,
            predictor: None,
        }
    }
}

/// What a benchmark or a soak measures. For a verified speed, all of it must be the same as in the
/// gate.
pub struct Bench<'a> {
    /// The engine.
    pub engine: &'a mut dyn Engine,
    /// Its weights.
    pub pack: &'a Pack,
    /// The prompts.
    pub prompts: &'a PromptIds,
    /// The processor.
    pub environment: &'a Environment,
    /// For samples of its state.
    pub probe: &'a Probe,
}

/// The passed gate that makes a speed verified.
#[derive(Clone, Debug)]
pub struct Gate {
    record: GateRecord,
    /// Hash of the record's file.
    sha256: String,
}

impl Bench<'_> {
    /// What this process measures.
    fn subject(&self) -> Result<Ours, HarnessError> {
        Ours::of(self.engine.info(), self.pack, &self.environment.run_id)
    }

    /// The engine as a contender.
    fn contender(&mut self) -> Monolith<'_> {
        let run_id = &self.environment.run_id;
        Monolith { engine: &mut *self.engine, pack: self.pack, run_id }
    }

    /// Finds the gate of this measurement in a run's folder.
    ///
    /// # Errors
    /// [`HarnessError::Ungated`] with every reason why there is none.
    pub fn gate(&self, folder: &Path) -> Result<Gate, HarnessError> {
        let record = gate::refusals_in(folder, &self.subject()?, &self.prompts.ids_sha256())
            .map_err(|reasons| HarnessError::Ungated { reasons })?;
        let sha256 = file_sha256(&folder.join(record.file_name()))?;
        Ok(Gate { record, sha256 })
    }
}

/// Measures every test; returns a row for each, and the skipped tests with the reasons. Without a
/// gate the rows are unverified.
///
/// # Errors
/// A step that fails; clocks that disagree; runs of one test that gave different tokens.
pub fn run(
    bench: &mut Bench,
    options: &BenchOptions,
    gate: Option<&Gate>,
    progress: &mut Progress,
) -> Result<(Vec<Row>, Vec<String>), HarnessError> {
    let about = bench.contender().describe()?;
    let gated = gate.map_or(about.context, |gate| gate.record.checks.context.context);
    let (tests, left_out) = tests(bench.prompts, options, about.context.min(gated));
    let mut rows = Vec::new();
    for test in tests {
        let measured = measure(bench, test, options, progress)?;
        rows.push(row_of(bench, &about, options, gate, test, &measured));
    }
    Ok((rows, left_out))
}

/// Returns the row of one measured test.
fn row_of(
    bench: &Bench,
    about: &Description,
    options: &BenchOptions,
    gate: Option<&Gate>,
    test: Test,
    measured: &Measured,
) -> Row {
    let header = bench.pack.header();
    let position = test.mean_position(bench.prompts);
    let kv = |position| header.kv_bytes_per_position as f64 * position;
    row(&Facts {
        subject: about.subject.ours().expect("the bench measures an engine of ours"),
        model: &header.source.model,
        environment: bench.environment,
        test,
        seconds: &measured.seconds,
        launches_per_token: about.launches_per_token.map(f64::from),
        bytes_per_token: position.map(|position| header.bytes_per_token as f64 + kv(position)),
        roofline: position.and(options.roofline.clone()),
        prediction: prediction(bench, options, test),
        gate: gate.map(|gate| PassedGate {
            sha256: &gate.sha256,
            rule: gate.record.checks.tokens.rule,
            rows: gate.record.checks.logits.rows,
        }),
        prompt_ids_sha256: &bench.prompts.ids_sha256(),
        tokens_sha256: &measured.tokens_sha256,
        context: about.context,
        clock: clock(about, test),
        telemetry: Telemetry::of(&measured.samples),
    })
}

/// Predicts a test's speed, if there is a model of the processor and the format.
fn prediction(bench: &Bench, options: &BenchOptions, test: Test) -> Option<Prediction> {
    let (first, steps) = test.decoded(bench.prompts)?;
    let (config, formats) = (bench.pack.config(), bench.pack.header().formats);
    // The numbers are of the kernel that is the formats' default.
    Variant::of_formats(formats.map()).filter(|row| row.name == bench.engine.info().variant)?;
    options.predictor.as_ref()?.predict(config, formats, first.round() as usize, steps).ok()
}

/// Adds to a row the energy of decoding at its position: consecutive steps for at least `window_s`
/// seconds, by NVML's counter. It does not change a row without a position or decoded tokens, nor
/// any row if the processor has no counter. For rows that [`run`] has just returned.
///
/// # Errors
/// A row of another measuring run, or a step that fails.
pub fn add_energy(
    bench: &mut Bench,
    row: &mut Row,
    window_s: f64,
    progress: &mut Progress,
) -> Result<(), HarnessError> {
    if row.run_id != bench.environment.run_id {
        return Err(HarnessError::Ungated { reasons: vec!["the row is not of this run".into()] });
    }
    let (Some(depth), Some(_)) = (row.position, bench.probe.energy_j()) else { return Ok(()) };
    if row.n_gen == 0 {
        return Ok(());
    }
    let sequence = bench.prompts.cycled(depth + 1);
    let what = format!("energy of {}", row.test);
    progress(&what);
    fill(bench.engine, &sequence[..depth], &what, progress)?;
    bench.engine.decode(sequence[depth], depth, row.n_gen)?;
    let (begin, before, mut tokens) = (Instant::now(), bench.probe.energy_j(), 0);
    while begin.elapsed().as_secs_f64() < window_s {
        tokens += bench.engine.decode(sequence[depth], depth, row.n_gen)?.tokens.len() as u64;
    }
    let (window_s, after) = (begin.elapsed().as_secs_f64(), bench.probe.energy_j());
    row.energy = after.zip(before).map(|(after, before)| Energy {
        joules: after - before,
        window_s,
        tokens,
        tokens_per_joule: tokens as f64 / (after - before),
        method: "board energy (NVML counter), host gaps between runs of steps included".into(),
    });
    Ok(())
}

/// Returns the tests that fit the context, and describes the others.
fn tests(prompts: &PromptIds, options: &BenchOptions, room: usize) -> (Vec<Test>, Vec<String>) {
    let longest = prompts.ids.iter().map(Vec::len).max().unwrap_or(0);
    // As in llama-bench, 0 of something means no test of it.
    let lengths = options.prompt_lengths.iter().filter(|&&tokens| tokens > 0);
    let mut all: Vec<Test> = lengths.map(|&tokens| Test::Prompt { tokens }).collect();
    for &steps in options.steps.iter().filter(|&&steps| steps > 0) {
        all.extend(options.prompts.then_some(Test::Prompts { steps }));
        all.extend(options.depths.iter().map(|&depth| Test::Depth { depth, steps }));
    }
    let needs = |test: &Test| match *test {
        Test::Prompt { tokens } => tokens,
        Test::Prompts { steps } => longest.saturating_add(steps),
        Test::Depth { depth, steps } => depth.saturating_add(steps),
    };
    let (fit, rest): (Vec<Test>, Vec<Test>) = all.iter().partition(|test| needs(test) <= room);
    let name = |test: &Test| {
        let (name, needed) = (test.name(), needs(test));
        format!("{name} needs {needed} positions: there is room for {room}")
    };
    (fit, rest.iter().map(name).collect())
}

/// Names the clock that measured the seconds: a prompt is timed by the host.
fn clock(about: &Description, test: Test) -> &'static str {
    match test {
        Test::Prompt { .. } => HOST_CLOCK,
        Test::Prompts { .. } | Test::Depth { .. } => about.clock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts() -> PromptIds {
        PromptIds { rule: String::new(), prompt_set_sha256: String::new(), ids: vec![vec![1; 100]] }
    }

    #[test]
    fn what_has_no_room_is_left_out_by_name() {
        let (fit, left_out) = tests(&prompts(), &BenchOptions::default(), 512);
        let depth = |depth| Test::Depth { depth, steps: 256 };
        assert_eq!(fit, [Test::Prompts { steps: 256 }, depth(16), depth(128)]);
        assert_eq!(left_out[0], "tg256 @ d512 needs 768 positions: there is room for 512");
        let options = BenchOptions {
            steps: vec![usize::MAX],
            depths: vec![usize::MAX],
            prompt_lengths: vec![usize::MAX],
            ..BenchOptions::default()
        };
        let (fit, left_out) = tests(&prompts(), &options, 512);
        assert_eq!((fit.len(), left_out.len()), (0, 3));
    }

    #[test]
    fn every_number_of_tokens_meets_every_depth_and_none_is_no_test() {
        let options = BenchOptions {
            steps: vec![0, 8, 16],
            depths: vec![0, 4],
            prompt_lengths: vec![0, 32],
            prompts: false,
            ..BenchOptions::default()
        };
        let (fit, _) = tests(&prompts(), &options, 512);
        let names: Vec<String> = fit.iter().map(|test| test.name()).collect();
        assert_eq!(names, ["pp32", "tg8", "tg8 @ d4", "tg16", "tg16 @ d4"]);
    }
}
