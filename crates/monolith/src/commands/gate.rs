//! `monolith gate`: whether an engine computes what the model defines.

use crate::exit::{Code, Exit};
use crate::measure::{Setup, command, exit_of, input_exit, prepare, verdicts, version};
use crate::options::{EngineArgs, FormatArgs, ModelArgs, ResultsArgs};
use crate::progress::Progress;
use crate::source::{self, Model};
use crate::text_out::{put, say};
use monolith_harness::LoadError;
use monolith_harness::gate::{self, Checks, GateOptions, GateRecord, ROWS, Rule};
use monolith_harness::identity::tensors_sha256;
use monolith_harness::reference::{Reference, find_reference};
use monolith_harness::report::write_readme;
use monolith_harness::runs::RunFolder;
use monolith_pack::Pack;
use std::path::{Path, PathBuf};

/// Check an engine against a reference, token by token
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The folder that tools/reference.py wrote [default: the one in data/golden for these weights]
    #[arg(long, value_name = "DIR")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith gate -m data/tiny              with the reference in data/golden
  monolith bench -m data/tiny             the speed, verified by that gate

Any other model, with a reference made by transformers (torch, transformers and safetensors):
  monolith ids -m synthetic -o ids.json
  python3 tools/reference.py --model synthetic --ids ids.json --out reference
  monolith gate -m synthetic --reference reference
  monolith bench -m synthetic

The record goes into the measuring run's folder and its path to stdout; the exit code is 5 if a
check fails. The engine's token may differ from the reference's only at a near tie. If the
reference's own f32 tokens break that rule, a token that equals the f32 token also passes. The
reference sets the context. If the engine cannot be loaded, the command fails: it never falls back
to another one.";

/// Runs every check and keeps the record with its run.
///
/// # Errors
/// Code 5 if a check fails; a model, reference or engine that is not available.
pub fn run(args: &Args) -> Result<(), Exit> {
    let setup = Setup::new(&args.engine)?;
    let named = args.reference.as_deref().map(|folder| opened(args, folder)).transpose()?;
    let model = source::find(&args.model.model)?;
    prepare(args.results.folder())?;
    let pack = model.pack((&args.format).into())?;
    let (folder, reference) = match named {
        Some(named) => named,
        None => opened(args, &own_reference(&model, &pack)?)?,
    };
    let load = |pack, context| {
        setup.options.load_first(pack, Some(context)).map_err(|error| -> LoadError { error.into() })
    };
    let progress = Progress::new("gate");
    let run_id = &setup.environment.run_id;
    let mut tell = |what: &str| progress.doing(what);
    let record = gate::run(&pack, &load, &reference, run_id, &GateOptions::default(), &mut tell);
    drop(progress);
    let record = record.map_err(exit_of)?;
    let run = RunFolder::open(args.results.folder(), &setup.environment).map_err(exit_of)?;
    run.add_gate(&record, &folder).map_err(exit_of)?;
    write_readme(&run).map_err(exit_of)?;
    let versions = [version(), record.reference.engine.clone()];
    if let Some(removed) = run.add_command(&command(), &versions).map_err(exit_of)? {
        say(&format!("gate: {removed}"));
    }
    write_readme(&run).map_err(exit_of)?;
    say(&table(&record));
    put(&format!("{}\n", run.path.join(record.file_name()).display()))?;
    if record.passed {
        return Ok(());
    }
    let what = format!("the gate failed: {}", record.failures.join("; "));
    Err(Exit::message(Code::Gate, what))
}

/// Opens the reference and checks that the engine's context is the reference's.
fn opened(args: &Args, folder: &Path) -> Result<(PathBuf, Reference), Exit> {
    let reference = Reference::open(folder).map_err(input_exit)?;
    let context = reference.summary.context;
    if args.engine.context.is_some_and(|asked| asked != context) {
        let what = format!("--context: the reference sets it to {context}: omit it");
        return Err(Exit::message(Code::Usage, what));
    }
    Ok((folder.to_owned(), reference))
}

/// Returns the committed reference of these weights, if there is one.
fn own_reference(model: &Model, pack: &Pack) -> Result<PathBuf, Exit> {
    let progress = Progress::new("gate");
    progress.doing("looking for a reference of these weights");
    let here = std::env::current_dir().ok();
    let roots = [here, model.dir.canonicalize().ok()];
    find_reference(roots.iter().flatten(), &tensors_sha256(pack)).ok_or_else(|| {
        let what = format!(
            "no folder data/golden holds a reference of the weights of {} in {}: make one with \
             tools/reference.py, as `monolith gate --help` shows, and name it with --reference",
            model.name,
            pack.header().formats.name()
        );
        Exit::message(Code::Usage, what)
    })
}

/// Renders the checks with their numbers, and the rule.
fn table(record: &GateRecord) -> String {
    let rows = numbers(&record.checks, record.reference.tolerance);
    format!("{}\n{}", verdicts("check", rows, &record.failures), settled(record))
}

/// Says which rule judged the tokens, and why.
fn settled(record: &GateRecord) -> String {
    let rule = match record.checks.tokens.rule {
        Rule::Margin => "a token may differ only below the margin's tolerance",
        Rule::F32Settles => "what the reference says in f32 needs no excuse",
    };
    let own = record.reference.own.map_or_else(String::new, |own| {
        format!(
            ": its own f32 says another token than its bf16 at {} of {} positions, {} of them \
             beyond the tolerance",
            own.all, own.positions, own.beyond_tolerance
        )
    });
    format!("the reference settles the rule, {rule}{own}")
}

fn numbers(checks: &Checks, tolerance: f64) -> [(&'static str, String); 8] {
    let Checks { weights, tokens, logits, rows, vocabulary, determinism, decode, context } = checks;
    [
        ("weights", format!("tensors {}", &weights.tensors_sha256[..16])),
        (
            "tokens",
            format!(
                "{} of {} the same, {} excused by a margin below {tolerance:.4}, {} as in f32",
                tokens.matches, tokens.positions, tokens.exempt, tokens.as_f32
            ),
        ),
        (
            "logits",
            format!(
                "{} rows{}; rms {:.5} (bf16 {:.5}), 99.9% {:.5} (bf16 {:.5})",
                logits.rows,
                if logits.rows < ROWS { format!(" of {ROWS}") } else { String::new() },
                logits.engine.rms,
                logits.bf16.rms,
                logits.engine.p999,
                logits.bf16.p999
            ),
        ),
        (
            "rows",
            format!(
                "{} positions of {} logits; {} never changed, {} not finite, {} not the argmax",
                rows.positions,
                rows.vocab,
                rows.never_changed,
                rows.not_finite,
                rows.argmax_mismatches
            ),
        ),
        ("vocabulary", format!("{} of {} ids reached", vocabulary.reached, vocabulary.vocab)),
        ("determinism", format!("{} runs compared bit by bit", determinism.runs.len())),
        ("decode", format!("{} of {} tokens differ", decode.mismatches, decode.tokens)),
        (
            "context",
            format!(
                "{} positions at the end of {}, {} tokens differ; one beyond {}",
                context.positions,
                context.context,
                context.divergences.len(),
                if context.refused_beyond { "refused" } else { "not refused" }
            ),
        ),
    ]
}
