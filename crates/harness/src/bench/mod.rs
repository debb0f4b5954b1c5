//! The stopwatch: greedy decoding, prefill excluded, argmax included.

mod output;
mod row;

pub(crate) use output::percent;
pub use output::{Output, rendered};
pub(crate) use row::median;
pub use row::{Facts, Roofline, Row, SCHEMA_VERSION, Test, row};

use crate::environment::{Energy, Environment, Probe, Sample, Telemetry};
use crate::gate;
use crate::identity::{Subject, sha256_hex};
use crate::predict::{Calibration, Prediction};
use crate::prompts::PromptIds;
use crate::{HarnessError, Progress, fill};
use monolith_engine::Engine;
use monolith_pack::Pack;
use std::path::Path;
use std::time::Instant;

/// How far the engine's clock may run ahead of the host's: a share, and seconds.
const CLOCK_AHEAD: (f64, f64) = (1.02, 1e-3);
/// And how far behind: the host's time includes the calls.
const CLOCK_BEHIND: (f64, f64) = (0.8, 5e-3);

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Timed runs of each test.
    pub runs: usize,
    /// Steps a run (a prompt).
    pub steps: usize,
    /// Cached positions before the first timed step, one test each.
    pub depths: Vec<usize>,
    /// Whether the prompts are a test.
    pub prompts: bool,
    /// Whether each test begins with a run that is not timed.
    pub warm_up: bool,
    /// Kernel launches a token; `None` for a CPU.
    pub launches_per_token: Option<f64>,
    /// Numbers for prediction and roofline.
    pub calibration: Option<Calibration>,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            runs: 5,
            steps: 256,
            depths: vec![16, 128, 512, 1024, 2048],
            prompts: true,
            warm_up: true,
            launches_per_token: None,
            calibration: None,
        }
    }
}

/// What is measured: all of it must be the same as in the gate.
pub struct Bench<'a> {
    /// The engine.
    pub engine: &'a mut dyn Engine,
    /// Its weights.
    pub pack: &'a Pack,
    /// The prompts.
    pub prompts: &'a PromptIds,
    /// The measuring run's folder, with the gate's record in it.
    pub folder: &'a Path,
    /// The processor.
    pub environment: &'a Environment,
    /// For samples of its state.
    pub probe: &'a Probe,
}

/// Measures every test; gives a row each, and what was left out and why.
///
/// # Errors
/// [`HarnessError::Ungated`] before anything is measured; a step that fails; clocks that do not
/// agree; runs of one test that gave different tokens.
pub fn run(
    bench: &mut Bench,
    options: &BenchOptions,
    progress: &mut Progress,
) -> Result<(Vec<Row>, Vec<String>), HarnessError> {
    run_with(bench, options, None, progress)
}

/// [`run`], where the caller knows the sha256 of the GPU's machine code: the gate must have been
/// of the same.
///
/// # Errors
/// Those of [`run`].
pub fn run_with(
    bench: &mut Bench,
    options: &BenchOptions,
    kernels: Option<&str>,
    progress: &mut Progress,
) -> Result<(Vec<Row>, Vec<String>), HarnessError> {
    let info = bench.engine.info();
    let kernels = kernels.or(info.kernels.as_deref());
    let subject = Subject::of(info, bench.pack, &bench.environment.run_id, kernels)?;
    let ids_sha256 = bench.prompts.ids_sha256();
    let record = gate::refusals_in(bench.folder, &subject, &ids_sha256)
        .map_err(|reasons| HarnessError::Ungated { reasons })?;
    let room = bench.engine.info().context.min(record.checks.context.context);
    let (tests, left_out) = tests(bench.prompts, options, room);
    let gate_path = bench.folder.join(record.file_name());
    let gate_sha256 = crate::identity::file_sha256(&gate_path)?;
    let mut rows = Vec::new();
    for test in tests {
        progress(&test.name(options.steps));
        let measured = measure(bench, test, options)?;
        let position = test.mean_position(bench.prompts, options.steps);
        let layers = bench.pack.config().layers;
        let header = bench.pack.header();
        let prediction = options
            .calibration
            .as_ref()
            .map(|numbers| Prediction::of(header, layers, position, numbers));
        let kv = header.kv_bytes_per_position as f64 * position;
        rows.push(row(&Facts {
            subject: &subject,
            model: &header.source.model,
            environment: bench.environment,
            test,
            steps: options.steps,
            seconds: &measured.seconds,
            launches_per_token: options.launches_per_token,
            bytes_per_token: header.bytes_per_token as f64 + kv,
            prediction,
            gate_sha256: &gate_sha256,
            gate_rule: record.checks.tokens.rule,
            prompt_ids_sha256: &ids_sha256,
            tokens_sha256: &measured.tokens_sha256,
            context: bench.engine.info().context,
            clock: clock(bench.engine),
            telemetry: Telemetry::of(&measured.samples),
        }));
    }
    Ok((rows, left_out))
}

/// Adds the energy of decoding at a row's position to it: steps in a row for at least `window_s`
/// seconds, by NVML's counter. A row without a position, or a processor without the counter, is
/// left as it is. For rows that [`run`] just gave.
///
/// # Errors
/// A row of another measuring run, or a step that fails.
pub fn add_energy(bench: &mut Bench, row: &mut Row, window_s: f64) -> Result<(), HarnessError> {
    if row.run_id != bench.environment.run_id || row.gate_passed != Some(true) {
        return Err(HarnessError::Ungated { reasons: vec!["the row is not of this run".into()] });
    }
    let (Some(depth), Some(_)) = (row.position, bench.probe.energy_j()) else { return Ok(()) };
    let sequence = bench.prompts.cycled(depth + 1);
    fill(bench.engine, &sequence[..depth])?;
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

/// The tests that there is room for, and the others in words.
fn tests(prompts: &PromptIds, options: &BenchOptions, room: usize) -> (Vec<Test>, Vec<String>) {
    let longest = prompts.ids.iter().map(Vec::len).max().unwrap_or(0);
    let all = options.prompts.then_some(Test::Prompts).into_iter();
    let all = all.chain(options.depths.iter().map(|&depth| Test::Depth(depth)));
    let needs = |test: &Test| match test {
        Test::Prompts => longest + options.steps,
        Test::Depth(depth) => depth + options.steps,
    };
    let (fit, rest): (Vec<Test>, Vec<Test>) = all.partition(|test| needs(test) <= room);
    let name = |test: &Test| {
        let (name, needed) = (test.name(options.steps), needs(test));
        format!("{name} needs {needed} positions: {room} were gated and loaded")
    };
    (fit, rest.iter().map(name).collect())
}

/// Which clock the engine's seconds are of.
fn clock(engine: &dyn Engine) -> &'static str {
    if engine.info().engine == "cuda" { "CUDA events" } else { "monotonic clock" }
}

/// A test's timed runs.
struct Measured {
    /// Seconds of each run (for the prompts: the mean over them).
    seconds: Vec<f64>,
    samples: Vec<Sample>,
    tokens_sha256: String,
}

fn measure(
    bench: &mut Bench,
    test: Test,
    options: &BenchOptions,
) -> Result<Measured, HarnessError> {
    let sequences: Vec<Vec<u32>> = match test {
        Test::Prompts => bench.prompts.ids.clone(),
        Test::Depth(depth) => vec![bench.prompts.cycled(depth + 1)],
    };
    if let Test::Depth(depth) = test {
        // Once: what follows leaves these positions as they are.
        fill(bench.engine, &sequences[0][..depth])?;
    }
    if options.warm_up {
        one_run(bench.engine, test, &sequences[..1], options.steps)?;
    }
    let mut measured =
        Measured { seconds: Vec::new(), samples: Vec::new(), tokens_sha256: String::new() };
    for _ in 0..options.runs {
        let (seconds, tokens) = one_run(bench.engine, test, &sequences, options.steps)?;
        measured.seconds.push(seconds / sequences.len() as f64);
        measured.samples.extend(bench.probe.sample());
        let tokens: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let hash = sha256_hex(&tokens);
        if !measured.tokens_sha256.is_empty() && measured.tokens_sha256 != hash {
            return Err(HarnessError::Unsteady { test: test.name(options.steps) });
        }
        measured.tokens_sha256 = hash;
    }
    Ok(measured)
}

/// One run over all sequences: its seconds, prefill excluded, and its tokens.
fn one_run(
    engine: &mut dyn Engine,
    test: Test,
    sequences: &[Vec<u32>],
    steps: usize,
) -> Result<(f64, Vec<u32>), HarnessError> {
    let (mut seconds, mut tokens) = (0.0, Vec::new());
    for sequence in sequences {
        let (first, position) = match test {
            Test::Prompts => (engine.prefill(sequence)?, sequence.len()),
            Test::Depth(depth) => (sequence[depth], depth),
        };
        let begin = Instant::now();
        let decoded = engine.decode(first, position, steps)?;
        let host_s = begin.elapsed().as_secs_f64();
        check_clock(decoded.seconds, host_s)?;
        seconds += decoded.seconds;
        tokens.extend(decoded.tokens);
    }
    if tokens.len() != steps * sequences.len() {
        return Err(HarnessError::Unsteady { test: test.name(steps) });
    }
    Ok((seconds, tokens))
}

/// Whether the engine's clock can be right.
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

    #[test]
    fn what_has_no_room_is_left_out_by_name() {
        let prompts = PromptIds {
            rule: String::new(),
            prompt_set_sha256: String::new(),
            ids: vec![vec![1; 100]],
        };
        let (fit, left_out) = tests(&prompts, &BenchOptions::default(), 512);
        assert_eq!(fit, [Test::Prompts, Test::Depth(16), Test::Depth(128)]);
        assert_eq!(left_out[0], "tg256 @ d512 needs 768 positions: 512 were gated and loaded");
    }
}
