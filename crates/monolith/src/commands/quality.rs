//! `monolith quality`: what a weight format costs, against the same model in bf16.

use crate::engine::{self, Options};
use crate::exit::{Code, Exit, OrExit};
use crate::measure::{Setup, command, exit_of, input_exit, prepare, verdicts, version};
use crate::options::{EngineArgs, EngineChoice, ModelArgs, ResultsArgs};
use crate::packing::AskedPack;
use crate::progress::Progress;
use crate::source::{self, Model};
use crate::text_out::{put, say};
use crate::{interrupt, values};
use monolith_engine::Engine;
use monolith_harness::identity::tensors_sha256;
use monolith_harness::prompts::prompt_ids;
use monolith_harness::quality::{
    self, Agreement, ControlFile, Job, Numbers, Outcome, Pair, QualityOptions, QualityRecord,
    Reading, TextIds, Wanted, positions,
};
use monolith_harness::report::write_readme;
use monolith_harness::runs::RunFolder;
use monolith_harness::subject::Ours;
use monolith_model::Config;
use monolith_pack::{Formats, Pack, ScaleSearch};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Measure what a weight format costs, against the same model in bf16
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The candidate: a model folder, a pack, or a name in the hub's cache [default: the model]
    #[arg(long, value_name = "MODEL", required_unless_present = "candidate_format")]
    pub candidate: Option<OsString>,
    /// The candidate's weights: bf16, fp8 or fp8-head-bf16 [default: as in the candidate]
    #[arg(long, visible_alias = "format", value_name = "FORMAT", value_parser = values::formats())]
    #[arg(hide_possible_values = true)]
    pub candidate_format: Option<Formats>,
    /// How the candidate's FP8 scales are chosen: amax or mse [default: amax, or as in the pack]
    #[arg(long, value_name = "HOW", value_parser = values::scale_search())]
    #[arg(hide_possible_values = true)]
    pub scale_search: Option<ScaleSearch>,
    /// The text to score, UTF-8 [default: heldout.txt in the model's folder]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// The prompts to continue, one JSON object per line
    #[arg(long, value_name = "FILE", default_value = "data/prompts/quality.jsonl")]
    pub prompts: PathBuf,
    /// Tokens per window; each window starts with an empty cache
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub window: usize,
    /// Tokens from the start of one window to the start of the next; less than a window
    #[arg(long, value_name = "N", default_value_t = 512)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub stride: usize,
    /// Use only the first N tokens of the text [default: all]
    #[arg(long, value_name = "N", value_parser = values::at_least_1())]
    #[arg(allow_negative_numbers = true)]
    pub limit_tokens: Option<usize>,
    /// Number of positions, evenly spaced in the text, at which the distributions are compared
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub kl_positions: usize,
    /// Tokens to decode greedily after each prompt
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 64)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub new: usize,
    /// The file that tools/control.py wrote for the model: transformers' tokens in bf16 and in f32.
    /// The bf16 engine is then compared with f32 too, and the record holds both figures
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith quality -m data/tiny --candidate-format fp8
  monolith quality --candidate-format fp8 --text wikitext-2-test.txt --control control.json
  monolith quality --candidate qwen3-fp8.pack --text book.txt --limit-tokens 20000

WikiText-2's test split, as commonly scored:
  python3 -c 'from datasets import load_dataset as load
  rows = load(\"Salesforce/wikitext\", \"wikitext-2-raw-v1\", split=\"test\")[\"text\"]
  print(\"\\n\\n\".join(rows), end=\"\")' > wikitext-2-test.txt

The control: how far bf16 and f32 agree with nothing quantized (it changes no threshold):
  monolith ids --prompts data/prompts/quality.jsonl -o ids.json
  python3 tools/control.py --model CHECKPOINT --ids ids.json --out control.json

The model in bf16 is the reference. Both engines run over the same tokens, which gives the
perplexity of the text, the KL divergence of the next-token distributions and the agreement of
greedy tokens. The gate passes if the perplexity rises by at most 2% and 90% of the tokens agree
while each engine decodes by itself; the exit code is 5 if not. A second verdict stands beside it:
the same, but teacher-forced, with the candidate fed the reference's tokens. The record goes into
the measuring run's folder and its path to stdout. Finished windows and prompts are kept: after
Ctrl-C the same command continues from there.";

/// Interval between two lines of progress if stderr is no terminal.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Compares a candidate with the model in bf16 and keeps the record with its run.
///
/// # Errors
/// Code 5 if a threshold does not hold; code 2 for an unusable text or impossible options; a model
/// or engine that is not available.
pub fn run(args: &Args) -> Result<(), Exit> {
    if args.engine.context.is_some() {
        let what = "--context: it follows from --window and the prompts: omit it";
        return Err(Exit::message(Code::Usage, what));
    }
    let options = QualityOptions {
        context: args.window,
        stride: args.stride,
        kl_positions: args.kl_positions,
        new: args.new,
    };
    if !quality::fits(options.context, options.stride) {
        let what = format!("--stride {}: must be less than --window {}", args.stride, args.window);
        return Err(Exit::message(Code::Usage, what));
    }
    let setup = Setup::new(&args.engine)?;
    let reference_options = engine::options(&reference_engine(&args.engine))?.only_first();
    let model = source::find(&args.model.model)?;
    let other = args.candidate.as_deref().map(source::find).transpose()?;
    let config = model.config()?;
    let text = text(args, &model, config.vocab)?;
    let prompts = prompt_ids(&args.prompts, &model.dir, config.vocab).map_err(input_exit)?;
    let room = positions(&options, text.ids.len(), &prompts.ids);
    check_room(room, &config)?;
    prepare(args.results.folder())?;
    let packs = [
        model.pack(AskedPack::of(Formats::BF16))?,
        other
            .as_ref()
            .unwrap_or(&model)
            .pack(AskedPack { formats: args.candidate_format, scale_search: args.scale_search })?,
    ];
    let control = control(args, &packs[0], &prompts.ids)?;
    let mut reference = Side::load(&reference_options, &packs[0], room, &setup)?;
    let mut candidate = Side::load(&setup.options, &packs[1], room, &setup)?;
    let subjects = [reference.subject, candidate.subject];
    let job = Job::new([&packs[0], &packs[1]], subjects, text, prompts, options);
    let job = job.or_exit(Code::Usage)?;
    let job = match control {
        Some(control) => job.with_control(control),
        None => job,
    };
    let mut pair =
        Pair { reference: reference.engine.as_mut(), candidate: candidate.engine.as_mut() };
    job.check(&pair).or_exit(Code::Usage)?;
    let folder = RunFolder::open(args.results.folder(), &setup.environment).map_err(exit_of)?;
    write_readme(&folder).map_err(exit_of)?;
    let _guard = interrupt::guard();
    let outcome = quality::run(&mut pair, &job, &folder.path, &mut progress());
    finish(&folder, &outcome.map_err(exit_of)?)
}

/// Writes and shows the record.
fn finish(folder: &RunFolder, outcome: &Outcome) -> Result<(), Exit> {
    let record = &outcome.record;
    let path = folder.add_quality(outcome).map_err(exit_of)?;
    write_readme(folder).map_err(exit_of)?;
    if let Some(removed) = folder.add_command(&command(), &[version()]).map_err(exit_of)? {
        say(&format!("quality: {removed}"));
    }
    write_readme(folder).map_err(exit_of)?;
    say(&shown(record));
    put(&format!("{}\n", path.display()))?;
    let verdict = record.verdicts().as_written;
    if verdict.passed {
        return Ok(());
    }
    let what = format!("the quality gate failed as written: {}", verdict.failures.join("; "));
    Err(Exit::message(Code::Gate, what))
}

/// An engine and its description in the record.
struct Side {
    engine: Box<dyn Engine>,
    subject: Ours,
}

impl Side {
    fn load(options: &Options, pack: &Arc<Pack>, room: usize, setup: &Setup) -> Result<Side, Exit> {
        let engine = options.load_first(pack.clone(), Some(room)).map_err(engine::exit_of)?;
        let run_id = &setup.environment.run_id;
        let subject = Ours::of(engine.info(), pack, run_id).map_err(exit_of)?;
        Ok(Side { engine, subject })
    }
}

/// The reference runs on the candidate's device, with the kernel for its own format.
fn reference_engine(args: &EngineArgs) -> EngineArgs {
    let engine = if args.variant.is_some() { EngineChoice::Cuda } else { args.engine };
    let EngineArgs { threads, context, blocks, .. } = *args;
    EngineArgs { engine, threads, context, simd: args.simd.clone(), variant: None, blocks }
}

/// Returns the text that `--text` names, or the one in the model's folder.
fn text(args: &Args, model: &Model, vocab: usize) -> Result<TextIds, Exit> {
    let own = model.dir.join("heldout.txt");
    let path: PathBuf = match &args.text {
        Some(path) => path.clone(),
        None if own.is_file() => own,
        None => {
            let what = "no text: name one with --text (`monolith quality --help` tells how to get \
                        WikiText-2's test split)";
            return Err(Exit::message(Code::Usage, what));
        }
    };
    source::check_text(&path)?;
    let text = TextIds::read(&path, &model.dir, vocab, args.limit_tokens);
    text.or_exit(Code::Usage)
}

/// Checks that the model has enough positions.
fn check_room(room: usize, config: &Config) -> Result<(), Exit> {
    if room <= config.max_positions {
        return Ok(());
    }
    let what = format!(
        "{room} positions are needed, this model has {}: lower --window or --n-gen",
        config.max_positions
    );
    Err(Exit::message(Code::Usage, what))
}

/// Reads how transformers continues the prompts in bf16 and in f32, with the reference's weights.
fn control(args: &Args, pack: &Pack, prompts: &[Vec<u32>]) -> Result<Option<ControlFile>, Exit> {
    let read = |path: &PathBuf| {
        let tensors_sha256 = &tensors_sha256(pack);
        ControlFile::read(path, Wanted { tensors_sha256, prompts, new: args.new })
            .map_err(input_exit)
    };
    args.control.as_ref().map(read).transpose()
}

/// Reports progress: on a terminal a line that is redrawn, elsewhere a line now and then. Ctrl-C
/// ends the program after the running step; every finished window and prompt is kept.
fn progress() -> impl FnMut(&str) {
    let terminal = std::io::stderr().is_terminal();
    let shown = if terminal { Progress::new("quality") } else { Progress::hidden() };
    let mut said: Option<Instant> = None;
    move |what| {
        if interrupt::raised() {
            interrupt::end(&format!(
                "interrupted at {what}; finished windows and prompts are kept: run the same \
                 command to continue"
            ));
        }
        if terminal {
            shown.doing(what);
        } else if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            said = Some(Instant::now());
            say(&format!("quality: {what}"));
        }
    }
}

/// Renders the measurements, both verdicts and the controls.
fn shown(record: &QualityRecord) -> String {
    let failures = record.verdicts().as_written.failures;
    let table = verdicts("measure", numbers(&record.numbers), &failures);
    let lines = [Reading::AsWritten, Reading::AfterTheSameText].map(|by| verdict(record, by));
    format!("{table}\n{}\n{}", lines.join("\n"), controls(record))
}

/// Renders one verdict in a line.
fn verdict(record: &QualityRecord, by: Reading) -> String {
    let verdicts = record.verdicts();
    let own = verdicts.by(by);
    let gate = match by {
        Reading::AsWritten => " (the gate)",
        Reading::AfterTheSameText => "",
    };
    let result = match own.passed {
        true => "passed".to_owned(),
        false => format!("FAILED: {}", own.failures.join("; ")),
    };
    format!("{}{gate}: {result}", by.name())
}

/// Says how far bf16 and f32 agree with nothing quantized.
fn controls(record: &QualityRecord) -> String {
    let (Some(own), Some(control)) = (&record.own_control, &record.control) else {
        return "no control: bf16 was not compared with f32 (`monolith quality --help` explains \
                --control)"
            .into();
    };
    let line = |what: &str, agreement: &Agreement, how: &str| {
        format!(
            "control, {what}: {} of the greedy tokens agree, {} of {} texts are the same, {} \
             agree {how}",
            percent(agreement.greedy),
            agreement.whole,
            agreement.prompts,
            percent(agreement.forced)
        )
    };
    format!(
        "{}\n{}",
        line("this bf16 engine against f32", &own.agreement, "when it is fed the tokens of f32"),
        line(
            &format!("bf16 against f32 ({})", control.engine),
            &control.agreement,
            "when f32 is fed the tokens of bf16"
        )
    )
}

fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

fn numbers(numbers: &Numbers) -> [(&'static str, String); 3] {
    let Numbers { perplexity, kl, agreement, .. } = numbers;
    [
        (
            "perplexity",
            format!(
                "{:.4}, bf16 {:.4}: {:+.3}% ({} tokens)",
                perplexity.candidate,
                perplexity.reference,
                100.0 * perplexity.rise,
                perplexity.scored
            ),
        ),
        (
            "kl",
            format!(
                "mean {:.6}, 99% {:.6}, most {:.6} nats; the same top token at {} of {} positions",
                kl.mean,
                kl.p99,
                kl.max,
                percent(kl.top_1),
                kl.positions
            ),
        ),
        (
            "agreement",
            format!(
                "each by itself {} (up to the first difference {}), after the same text {}, of {} \
                 prompts x {} tokens",
                percent(agreement.greedy),
                percent(agreement.prefix),
                percent(agreement.forced),
                agreement.prompts,
                agreement.new
            ),
        ),
    ]
}
