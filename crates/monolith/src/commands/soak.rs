//! `monolith soak`: many tokens in one process.

use crate::exit::{Code, Exit};
use crate::file_out::check_writable;
use crate::measure::{Setup, exit_of, input_exit};
use crate::options::{EngineArgs, FormatArgs, ModelArgs};
use crate::progress::Progress;
use crate::source;
use crate::text_out::show;
use crate::values;
use monolith_harness::bench::Bench;
use monolith_harness::prompts::{PromptIds, bench_ids};
use monolith_harness::soak::{SoakOptions, SoakRecord, soak};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Decode many tokens in one process: texts must come out the same, and memory must not grow
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
    /// Number of tokens to decode, rounded up to a whole text
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub tokens: usize,
    /// Tokens of a text, fewer if the context ends
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub steps: usize,
    /// Begin no text after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::speed)]
    #[arg(allow_negative_numbers = true)]
    pub limit: Option<f64>,
    /// Write the record to this file, as JSON
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith soak -m data/tiny --limit 300 -o soak.json
  monolith soak -m data/tiny --engine cpu -n 2000 --steps 64

A text is the greedy tokens after one of the prompts. Each time it must be the same, and neither
this process nor the GPU may use much more memory at the end than after the first text. The pace of
the first and the last pass over all texts is shown, and not judged. If a check fails, the code is
1.";

/// Decodes the texts and prints what was seen.
///
/// # Errors
/// Code 1 if a text changed or memory grew; a step that fails.
pub fn run(args: &Args) -> Result<(), Exit> {
    if let Some(path) = &args.out {
        check_writable(path)?;
    }
    let setup = Setup::new(&args.engine)?;
    let ids = args.ids.as_deref().map(PromptIds::read).transpose().map_err(input_exit)?;
    let model = source::find(&args.model.model)?;
    let vocab = model.config()?.vocab;
    let prompts = ids.map_or_else(|| bench_ids(&model.dir, vocab).map_err(exit_of), Ok)?;
    let pack = model.pack((&args.format).into())?;
    let loaded = setup.options.load_first(pack.clone(), None);
    let mut engine = loaded.map_err(crate::engine::exit_of)?;
    let mut soaked = Bench {
        engine: engine.as_mut(),
        pack: &pack,
        prompts: &prompts,
        environment: &setup.environment,
        probe: &setup.probe,
    };
    let options = SoakOptions {
        tokens: args.tokens,
        steps: args.steps,
        limit: args
            .limit
            .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    };
    let progress = Progress::new("soak");
    let mut tell = |what: &str| progress.doing(what);
    let record = soak(&mut soaked, &options, &mut tell).map_err(exit_of)?;
    drop(progress);
    if let Some(path) = &args.out {
        record.write(path).map_err(exit_of)?;
    }
    show(&summary(&record))?;
    if record.passed {
        return Ok(());
    }
    Err(Exit::message(Code::Failure, format!("soak: {}", record.failures.join("; "))))
}

/// Describes a soak in a few lines.
fn summary(record: &SoakRecord) -> String {
    let SoakRecord { tokens, asked, texts, prompts, seconds, pace, .. } = record;
    let mut text = format!(
        "{} on {}: {tokens} of {asked} tokens in {seconds:.1} s, {texts} texts of {prompts} \
         prompts\n",
        record.subject.variant, record.subject.gpu
    );
    if !record.complete {
        text += "the time limit came before the last token\n";
    }
    let _ = writeln!(text, "texts that differ from the first time: {}", record.differing.len());
    let _ = writeln!(
        text,
        "pace: {:.0} tok/s in the first pass, {:.0} in the last, {:.0} to {:.0} in all",
        pace.first, pace.last, pace.least, pace.most
    );
    let [first, last] = &record.memory;
    for (name, before, after) in [
        ("this process", first.host_bytes, last.host_bytes),
        ("the GPU", first.gpu_bytes, last.gpu_bytes),
    ] {
        if let (Some(before), Some(after)) = (before, after) {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let (before, after) = (mib(before), mib(after));
            let _ = writeln!(
                text,
                "memory of {name}: {before:.1} MiB after the first text, {after:.1} MiB at the end"
            );
        }
    }
    text + if record.passed { "passed\n" } else { "FAILED\n" }
}
