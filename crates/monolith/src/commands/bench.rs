//! `monolith bench`: the speed of an engine, verified if its gate has passed.

use crate::exit::{Code, Exit};
use crate::measure::{Setup, command, exit_of, input_exit, prepare, version};
use crate::options::{EngineArgs, FormatArgs, ModelArgs, ResultsArgs};
use crate::progress::Progress;
use crate::source::{self, Model};
use crate::text_out::{put, say};
use crate::values;
use monolith_harness::HarnessError;
use monolith_harness::bench::{self, Bench, BenchOptions, Gate, Output, Roofline, Row, rendered};
use monolith_harness::environment::Environment;
use monolith_harness::predict::{Calibration, Predictor};
use monolith_harness::prompts::{PromptIds, bench_ids};
use monolith_harness::report::write_readme;
use monolith_harness::runs::RunFolder;
use std::ffi::OsString;
use std::path::PathBuf;

/// Measure the speed of an engine; the speed is verified if a gate has passed before
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The prompts' token ids, as written by `monolith ids` [default: the benchmark's own prompts,
    /// encoded by the model's tokenizer]
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Exit with code 5 if no gate has passed, instead of printing unverified numbers
    #[arg(long)]
    pub require_gate: bool,
    /// Prompt lengths to time, one test for each; 0 is none. Lists and ranges as in llama-bench:
    /// 16,64 or 16-64+16 or 16-128*2
    #[arg(short = 'p', long = "n-prompt", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "0", allow_negative_numbers = true)]
    pub prompt_lengths: Vec<Vec<usize>>,
    /// Numbers of tokens to decode (with the prompts: after each prompt), one test for each; 0 is
    /// none
    #[arg(short = 'n', long = "n-gen", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "256", allow_negative_numbers = true)]
    pub steps: Vec<Vec<usize>>,
    /// Numbers of positions cached before the first decoded token, one test for each
    #[arg(short = 'd', long = "n-depth", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "16,128,512,1024,2048", allow_negative_numbers = true)]
    pub depths: Vec<Vec<usize>>,
    /// Number of timed runs of each test
    #[arg(short = 'r', long = "repetitions", value_name = "N", default_value_t = 5)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub runs: usize,
    /// Skip the untimed warm-up run
    #[arg(long)]
    pub no_warmup: bool,
    /// Skip the tests that decode after each of the benchmark's prompts
    #[arg(long)]
    pub no_prompts: bool,
    /// After the timing, measure the energy at each depth while decoding for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::speed)]
    #[arg(allow_negative_numbers = true)]
    pub energy: Option<f64>,
    /// Format of the rows on stdout: md, csv, json, jsonl or sql
    #[arg(short, long, value_name = "FORM", default_value = "md", hide_possible_values = true)]
    #[arg(value_parser = values::output())]
    pub output: Output,
    /// Print the rows in this format on stderr too; -oe for short
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    #[arg(value_parser = values::output())]
    pub output_err: Option<Output>,
    #[command(flatten)]
    pub roofline: RooflineArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith bench -m data/tiny
  monolith bench -p 512 -n 128 -d 0 --no-prompts -o json
  monolith bench -d 16-4096*4 -n 64-256+64 -r 10 -o sql -oe md > rows.sql
  monolith bench --bandwidth-gb-s 4100 --bandwidth-source 'the probe, same run'

tg256 @ d16 decodes 256 tokens greedily with 16 positions cached: prefill excluded, argmax
included. pp512 feeds a prompt of 512 tokens, from an empty cache to the first token.

A speed is verified if `monolith gate` has passed before it in the same run (one boot of one GPU)
with the same build, weights, prompts and engine options. Verified rows also go into the run's
folder, and with them some prompts' tokens with the time of each, from a pass of its own. All others
are marked *unverified*, go to stdout only, and never enter a table. A second
table has the prediction for each test, part by part, and its error (`monolith predict`).";

/// The bandwidth that a speed is compared with.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Roofline and prediction")]
pub struct RooflineArgs {
    /// Measured read bandwidth of this processor, in GB/s
    #[arg(long, value_name = "X", requires = "bandwidth_source", allow_negative_numbers = true)]
    #[arg(value_parser = values::speed)]
    pub bandwidth_gb_s: Option<f64>,
    /// How the bandwidth was measured, in words
    #[arg(long, value_name = "TEXT", requires = "bandwidth_gb_s")]
    pub bandwidth_source: Option<String>,
    /// Predict by the numbers in this file, as `predict` writes it [default: those of this build]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
}

/// Spells out llama-bench's `-oe`: the parser would read it as `-o e`.
pub fn spell_out(args: &mut [OsString]) {
    for arg in args.iter_mut().filter(|arg| *arg == "-oe") {
        *arg = "--output-err".into();
    }
}

/// Measures every test and prints the rows. If this run has a passed gate, its folder keeps the
/// rows; otherwise they are marked as unverified, and nothing is written.
///
/// # Errors
/// Code 2 if no test fits; code 5 if a gate is required and none has passed.
pub fn run(args: &Args) -> Result<(), Exit> {
    let setup = Setup::new(&args.engine)?;
    let ids = args.ids.as_deref().map(PromptIds::read).transpose().map_err(input_exit)?;
    let options = options(args, &setup.environment)?;
    let model = source::find(&args.model.model)?;
    let folder = setup.run_folder(args.results.folder())?;
    if args.require_gate && folder.is_none() {
        return Err(Exit::new(Code::Gate, HarnessError::Ungated { reasons: vec![no_run(args)] }));
    }
    let prompts = ids.map_or_else(|| own_prompts(&model), Ok)?;
    let pack = model.pack((&args.format).into())?;
    let mut engine =
        setup.options.load_first(pack.clone(), None).map_err(crate::engine::exit_of)?;
    let mut subject = Bench {
        engine: engine.as_mut(),
        pack: &pack,
        prompts: &prompts,
        environment: &setup.environment,
        probe: &setup.probe,
    };
    let progress = Progress::new("bench");
    progress.doing("looking for the gate");
    let gate = gate(args, &subject, folder.as_ref())?;
    let mut tell = |what: &str| progress.doing(what);
    let measured = bench::run(&mut subject, &options, gate.as_ref(), &mut tell);
    let (mut rows, left_out) = measured.map_err(exit_of)?;
    if rows.is_empty() {
        let what = format!("no test was measured: {}", nothing(&left_out));
        return Err(Exit::message(Code::Usage, what));
    }
    if let Some(window_s) = args.energy {
        add_energy(&mut subject, &mut rows, window_s, &progress)?;
    }
    if let (Some(folder), Some(_)) = (&folder, &gate) {
        if let Some(removed) = folder.add_rows(&rows).map_err(exit_of)? {
            say(&format!("bench: {removed}"));
        }
        write_readme(folder).map_err(exit_of)?;
        if let Some(removed) = folder.add_command(&command(), &[version()]).map_err(exit_of)? {
            say(&format!("bench: {removed}"));
        }
        write_readme(folder).map_err(exit_of)?;
        // Last: a pass that fails takes no row with it.
        add_streams(&mut subject, &rows, &model, folder, &progress)?;
    }
    drop(progress);
    for line in left_out {
        say(&format!("bench: left out: {line}"));
    }
    if let Some(form) = args.output_err {
        say(rendered(&rows, form).trim_end());
    }
    put(&rendered(&rows, args.output))?;
    Ok(())
}

/// The benchmark's prompts, as this model's tokens.
fn own_prompts(model: &Model) -> Result<PromptIds, Exit> {
    bench_ids(&model.dir, model.config()?.vocab).map_err(exit_of)
}

/// Returns the passed gate of the measured engine. Without one it prints why the rows are
/// unverified.
fn gate(args: &Args, subject: &Bench, folder: Option<&RunFolder>) -> Result<Option<Gate>, Exit> {
    let reasons = match folder.map(|folder| (folder, subject.gate(&folder.path))) {
        Some((_, Ok(gate))) => {
            prepare(args.results.folder())?;
            return Ok(Some(gate));
        }
        Some((_, Err(HarnessError::Ungated { reasons }))) => reasons,
        Some((_, Err(error))) => return Err(exit_of(error)),
        None => vec![no_run(args)],
    };
    if args.require_gate {
        return Err(Exit::new(Code::Gate, HarnessError::Ungated { reasons }));
    }
    say(&format!(
        "bench: unverified, and nothing is written: {}: run `monolith gate` first for a verified \
         speed",
        reasons.join("; ")
    ));
    Ok(None)
}

fn no_run(args: &Args) -> String {
    format!("{} holds no gate of this machine since it started", args.results.folder().display())
}

/// Says why there is no row.
fn nothing(left_out: &[String]) -> String {
    match left_out {
        [] => "-p, -n and the prompts ask for none".into(),
        _ => left_out.join("; "),
    }
}

/// Times every token of the prompts' test once more, for the page's race; of the longest one, if
/// there are several. Nothing without a tokenizer for the text.
fn add_streams(
    subject: &mut Bench,
    rows: &[Row],
    model: &Model,
    folder: &RunFolder,
    progress: &Progress,
) -> Result<(), Exit> {
    let of_prompts = rows.iter().filter(|row| row.position.is_none() && row.n_gen > 0);
    let Some(row) = of_prompts.max_by_key(|row| row.n_gen) else { return Ok(()) };
    if !model.dir.join("tokenizer.json").is_file() {
        say("bench: no token streams: the model has no tokenizer");
        return Ok(());
    }
    let tokenizer = model.tokenizer()?;
    let mut tell = |what: &str| progress.doing(what);
    if let Some(streams) = subject.streams(row, &tokenizer, &mut tell).map_err(exit_of)? {
        folder.add_streams(&streams).map_err(exit_of)?;
        write_readme(folder).map_err(exit_of)?;
    }
    Ok(())
}

/// Adds the energy to the rows of each depth, if the processor counts it.
fn add_energy(
    subject: &mut Bench,
    rows: &mut [Row],
    window_s: f64,
    progress: &Progress,
) -> Result<(), Exit> {
    if subject.probe.energy_j().is_none() {
        say("bench: --energy: skipped: this processor has no energy counter");
        return Ok(());
    }
    let mut tell = |what: &str| progress.doing(what);
    for row in rows.iter_mut().filter(|row| row.position.is_some()) {
        bench::add_energy(subject, row, window_s, &mut tell).map_err(exit_of)?;
    }
    Ok(())
}

fn options(args: &Args, environment: &Environment) -> Result<BenchOptions, Exit> {
    let all = |lists: &[Vec<usize>]| lists.concat();
    Ok(BenchOptions {
        runs: args.runs,
        steps: all(&args.steps),
        depths: all(&args.depths),
        prompt_lengths: all(&args.prompt_lengths),
        prompts: !args.no_prompts,
        warm_up: !args.no_warmup,
        roofline: roofline(&args.roofline),
        predictor: predictor(&args.roofline, environment)?,
    })
}

fn roofline(args: &RooflineArgs) -> Option<Roofline> {
    let (bandwidth_gb_s, source) = (args.bandwidth_gb_s?, args.bandwidth_source.clone()?);
    Some(Roofline { bandwidth_gb_s, source })
}

/// The predictor for the measured GPU. One of which nothing is known is named; a CPU has none.
fn predictor(args: &RooflineArgs, of: &Environment) -> Result<Option<Predictor>, Exit> {
    let read = args.calibration.as_deref().map(Calibration::read).transpose();
    let calibration = read.map_err(|error| exit_of(error.into()))?;
    if of.kind != "gpu" {
        return Ok(None);
    }
    match Predictor::new(calibration.unwrap_or_else(Calibration::shipped), &of.gpu) {
        Ok(predictor) => Ok(Some(predictor)),
        Err(error) => {
            say(&format!("bench: {error}"));
            Ok(None)
        }
    }
}
