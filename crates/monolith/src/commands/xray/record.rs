//! `monolith xray record`: a step of a decode loop, and the cost of recording.

use crate::exit::{Code, Exit};
use crate::file_out::write_file;
use crate::kinds::{Kind, check_output};
use crate::measure::{exit_of, input_exit};
use crate::options::{EngineArgs, FormatArgs, ModelArgs};
use crate::progress::Progress;
use crate::text_out::{put, say};
use crate::{engine, source, values};
use anyhow::Context;
use monolith_abi::dump::Dump;
use monolith_engine::Engine;
use monolith_harness::pace::{Builds, RecordOptions, record};
use monolith_harness::prompts::PromptIds;
use monolith_xray::{Analysis, dump_file, trace_from_dump};
use std::path::PathBuf;

/// Record a step in the middle of a decode loop, and what recording costs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// Positions of the steps to record, one file each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "16")]
    pub at: Vec<usize>,
    /// Steps of the loop; the step in its middle is recorded
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 64)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub steps: usize,
    /// Number of timed loops for each of the two builds, recording and headline
    #[arg(short = 'r', long = "repetitions", value_name = "N", default_value_t = 5)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub runs: usize,
    /// The prompts' token ids, as written by `monolith ids` [default: made-up ids]
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// The folder for the dumps; each file is named after its variant and position
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Print no analysis on stderr
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith xray record -m data/tiny --at 16,128
  monolith xray record --engine cuda --at 16,2048 -o dumps

The recording and the headline build run the same loop alternately; the dump says how much slower
the recording build is. The files' names go to stdout.";

/// Records a step at each position.
///
/// # Errors
/// A missing or damaged model, an engine that cannot run or record, positions beyond the context,
/// tokens of the recording build that differ.
pub fn run(args: &Args) -> Result<(), Exit> {
    let options = engine::options(&args.engine)?.only_first();
    let ids = args.ids.as_deref().map(PromptIds::read).transpose().map_err(input_exit)?;
    let model = source::find(&args.model.model)?;
    if args.out.exists() && !args.out.is_dir() {
        let what = format!("--out {}: not a folder", args.out.display());
        return Err(Exit::message(Code::Usage, what));
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{} cannot be made", args.out.display()))?;
    let pack = model.pack((&args.format).into())?;
    let mut headline = options.load_first(pack.clone(), None).map_err(engine::exit_of)?;
    let mut recording =
        options.recording().load_first(pack.clone(), None).map_err(engine::exit_of)?;
    check(args, headline.as_ref())?;
    let longest = args.at.iter().max().unwrap_or(&0) + args.steps + 1;
    let sequence = sequence(ids.as_ref(), longest, pack.config().vocab);
    let paths = args.at.iter().map(|&at| path(args, headline.info().variant.as_str(), at));
    let paths: Vec<PathBuf> = paths.collect();
    for path in &paths {
        check_output(path, Kind::Dump)?;
    }
    for (&position, path) in args.at.iter().zip(&paths) {
        let options = RecordOptions { position, steps: args.steps, runs: args.runs };
        let (headline, recording) = (headline.as_mut(), recording.as_mut());
        let mut builds = Builds::Two { headline, recording };
        let progress = Progress::new("record");
        let mut tell = |what: &str| progress.doing(what);
        let dump = record(&mut builds, &sequence, &options, &mut tell).map_err(exit_of)?;
        drop(progress);
        write_file(path, &dump_file::write(&dump))?;
        put(&format!("{}\n", path.display()))?;
        if !args.quiet {
            show(&dump)?;
        }
    }
    Ok(())
}

fn show(dump: &Dump) -> Result<(), Exit> {
    let trace = trace_from_dump(dump)?;
    say(&format!("\nposition {}:\n{}", dump.position, Analysis::of(&trace)));
    Ok(())
}

fn path(args: &Args, variant: &str, position: usize) -> PathBuf {
    args.out.join(format!("{variant}-{position}.xray"))
}

/// Checks that all positions fit, with the rest of their loops.
fn check(args: &Args, engine: &dyn Engine) -> Result<(), Exit> {
    let context = engine.info().context;
    let twice = args.at.iter().enumerate().find(|&(index, at)| args.at[..index].contains(at));
    if let Some((_, at)) = twice {
        return Err(Exit::message(Code::Usage, format!("--at {at}: named twice")));
    }
    match args.at.iter().find(|&&at| at.saturating_add(args.steps) >= context) {
        Some(at) => {
            let steps = args.steps;
            let what = format!(
                "--at {at}: a loop of {steps} steps does not fit in {context} positions: give a \
                 larger --context"
            );
            Err(Exit::message(Code::Usage, what))
        }
        None => Ok(()),
    }
}

/// Returns tokens to fill positions with: the prompts repeated, or made-up ids.
fn sequence(ids: Option<&PromptIds>, length: usize, vocab: usize) -> Vec<u32> {
    match ids {
        Some(ids) => ids.cycled(length),
        // A prime factor keeps neighbouring ids far apart.
        None => (0..length).map(|at| (at * 7919 % vocab) as u32).collect(),
    }
}
