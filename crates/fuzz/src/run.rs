//! All batches of a run, and its summary.

use crate::Options;
use crate::parsers::{self, Parser};
use crate::worker::{self, Batch, HANG_STATUS};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A finding: one input and what it did.
struct Finding {
    parser: &'static str,
    number: u64,
    what: String,
}

#[derive(Default)]
struct Totals {
    batch: Batch,
    seconds: f64,
}

/// A range of one parser's inputs.
#[derive(Clone, Copy)]
struct Share {
    parser: &'static Parser,
    from: u64,
    inputs: u64,
}

#[derive(Default)]
struct State {
    queue: Vec<Share>,
    totals: BTreeMap<&'static str, Totals>,
    findings: Vec<Finding>,
    error: Option<anyhow::Error>,
}

/// Runs everything; false if there was a finding.
pub fn run(options: &Options) -> Result<bool> {
    let shares = shares(options)?;
    if options.list {
        for Share { parser, inputs, .. } in shares {
            say(&format!("{:<18} {inputs:>10}  {}", parser.name, parser.about))?;
        }
        return Ok(true);
    }
    let begin = Instant::now();
    say(&format!("seed {}, {} inputs, {} jobs", options.seed, options.inputs, options.jobs))?;
    let queue = batches(&shares);
    let state = Mutex::new(State { queue, ..State::default() });
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| work(options, &state, begin));
        }
    });
    let state = state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(error) = state.error {
        return Err(error);
    }
    summary(options, &state, begin.elapsed())?;
    Ok(state.findings.is_empty()
        && state.totals.values().all(|totals| totals.batch.slow.is_empty()))
}

/// How many inputs each parser gets.
fn shares(options: &Options) -> Result<Vec<Share>> {
    if let Some(name) = &options.parser {
        let (parser, inputs) = (parsers::find(name)?, options.inputs);
        return Ok(vec![Share { parser, from: options.from, inputs }]);
    }
    let all = parsers::all();
    let weights: u64 = all.iter().map(|parser| parser.weight).sum();
    let share = |parser: &'static Parser| {
        let inputs = options.inputs * parser.weight / weights;
        Share { parser, from: options.from, inputs: inputs.max(1) }
    };
    Ok(all.into_iter().map(share).collect())
}

/// Alternates between the parsers, so that a run that is cut short has fed each of them.
fn batches(shares: &[Share]) -> Vec<Share> {
    let mut batches = Vec::new();
    for &Share { parser, from, inputs } in shares {
        let size = (parser.weight * 40).clamp(100, 40_000);
        for (turn, begin) in (0..).zip((from..from + inputs).step_by(size as usize)) {
            let inputs = size.min(from + inputs - begin);
            batches.push((turn, Share { parser, from: begin, inputs }));
        }
    }
    batches.sort_by_key(|&(turn, _)| std::cmp::Reverse(turn));
    batches.into_iter().map(|(_, share)| share).collect()
}

fn work(options: &Options, state: &Mutex<State>, begin: Instant) {
    let lock = || state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    loop {
        let Some(share) = ({ lock() }).queue.pop() else { return };
        if options.seconds.is_some_and(|most| begin.elapsed() >= Duration::from_secs(most)) {
            return;
        }
        if let Err(error) = one(options, share, &lock) {
            let mut state = lock();
            state.queue.clear();
            state.error = Some(error);
            return;
        }
    }
}

/// Runs a batch. If an input ends the process, continues behind that input.
fn one<'a>(
    options: &Options,
    mut share: Share,
    lock: &impl Fn() -> std::sync::MutexGuard<'a, State>,
) -> Result<()> {
    while share.inputs > 0 {
        let begin = Instant::now();
        let output = start(options, share, false)?;
        let parser = share.parser.name;
        let (from, inputs) = (share.from, share.inputs);
        if output.status.success() {
            let batch: Batch = serde_json::from_slice(&output.stdout)
                .with_context(|| format!("{parser} from {from}: the batch printed no result"))?;
            let mut state = lock();
            for (number, what) in &batch.panics {
                let what = format!("panic: {}", what.replace('\n', " "));
                state.findings.push(Finding { parser, number: *number, what });
            }
            state.totals.entry(parser).or_default().add(batch, begin.elapsed());
            return Ok(());
        }
        let (number, what) = culprit(options, share, &output)?;
        lock().findings.push(Finding { parser, number, what });
        if number > from {
            one(options, Share { inputs: number - from, ..share }, lock)?;
        }
        let mut state = lock();
        state.totals.entry(parser).or_default().batch.inputs += 1;
        share = Share { from: number + 1, inputs: from + inputs - number - 1, ..share };
    }
    Ok(())
}

/// The input that ended a batch, and how it did.
fn culprit(options: &Options, share: Share, output: &Output) -> Result<(u64, String)> {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = |text: &str, mark: &str| -> Option<u64> {
        text.lines().rev().find_map(|line| line.strip_prefix(mark)?.trim().parse().ok())
    };
    if output.status.code() == Some(HANG_STATUS) {
        let number = last(&errors, "hang ").context("the worker named no hanging input")?;
        return Ok((number, format!("does not end within {} s", options.hang_s)));
    }
    // Exit code 2 means that the worker itself failed.
    if output.status.code() == Some(2) {
        bail!("{} from {}: {}", share.parser.name, share.from, errors.trim());
    }
    let traced = start(options, share, true)?;
    let traced_errors = String::from_utf8_lossy(&traced.stderr).into_owned();
    let number = last(&traced_errors, "").with_context(|| {
        format!("{} from {}: ended by {}: {errors}", share.parser.name, share.from, output.status)
    })?;
    let words: Vec<&str> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok((number, format!("abort ({}): {}", output.status, words.join(" "))))
}

fn start(options: &Options, share: Share, trace: bool) -> Result<Output> {
    let mut worker = Command::new(std::env::current_exe()?);
    worker.args(["--worker", "--parser", share.parser.name]);
    for (name, value) in [
        ("--seed", options.seed),
        ("--from", share.from),
        ("--inputs", share.inputs),
        ("--slow-ms", options.slow_ms),
        ("--hang-s", options.hang_s),
        ("--memory-mb", options.memory_mb),
    ] {
        worker.args([name, &value.to_string()]);
    }
    if trace {
        worker.arg("--trace");
    }
    // Inputs run one after another, so a thread pool would only cost time.
    worker.env("RAYON_NUM_THREADS", "1").env("RUST_BACKTRACE", "0");
    worker.output().context("could not start a worker")
}

impl Totals {
    fn add(&mut self, batch: Batch, took: Duration) {
        let total = &mut self.batch;
        total.inputs += batch.inputs;
        total.accepted += batch.accepted;
        total.slow.extend(batch.slow);
        total.panics.extend(batch.panics);
        total.slowest_us = total.slowest_us.max(batch.slowest_us);
        total.peak_kb = total.peak_kb.max(batch.peak_kb);
        self.seconds += took.as_secs_f64();
    }
}

fn summary(options: &Options, state: &State, took: Duration) -> Result<()> {
    say(&format!(
        "{:<18} {:>10} {:>10} {:>8} {:>11} {:>9} {:>9}",
        "parser", "inputs", "accepted", "panics", "slowest us", "peak MB", "us each"
    ))?;
    let mut all = 0;
    for (name, Totals { batch, seconds }) in &state.totals {
        all += batch.inputs;
        say(&format!(
            "{name:<18} {:>10} {:>10} {:>8} {:>11} {:>9} {:>9.1}",
            batch.inputs,
            batch.accepted,
            batch.panics.len(),
            batch.slowest_us,
            batch.peak_kb >> 10,
            seconds * 1e6 / batch.inputs.max(1) as f64,
        ))?;
        for (number, ms) in &batch.slow {
            keep(options, name, *number)?;
            say(&format!("  slow: input {number}, {ms} ms"))?;
        }
    }
    for Finding { parser, number, what } in &state.findings {
        let path = keep(options, parser, *number)?;
        say(&format!("FOUND: {parser}, input {number} (seed {}): {what}: {path}", options.seed))?;
    }
    let found = state.findings.len();
    let slow: usize = state.totals.values().map(|totals| totals.batch.slow.len()).sum();
    let took = took.as_secs_f64();
    say(&format!("{all} inputs in {took:.1} s, {found} findings, {slow} slow inputs"))
}

/// Writes the input of a finding.
fn keep(options: &Options, parser: &str, number: u64) -> Result<String> {
    let parser = parsers::find(parser)?;
    let bytes = worker::input(parser, &(parser.corpus)()?, options.seed, number);
    std::fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    let path = options.out.join(format!("{}-{}-{number}", parser.name, options.seed));
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
