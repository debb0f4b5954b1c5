//! `monolith bench`: the speed of an engine, verified if its gate has passed.

use crate::args::{BenchArgs, RooflineArgs};
use crate::exit::{Code, Exit};
use crate::measure::{Setup, command, exit_of, input_exit, prepare, version};
use crate::progress::Progress;
use crate::source::{self, Model};
use crate::text_out::{put, say};
use monolith_harness::HarnessError;
use monolith_harness::bench::{self, Bench, BenchOptions, Gate, Row, rendered};
use monolith_harness::predict::Calibration;
use monolith_harness::prompts::{PromptIds, bench_ids};
use monolith_harness::report::write_readme;
use monolith_harness::runs::RunFolder;

/// Measures every test and prints the rows. If this run has a passed gate, its folder keeps the
/// rows; otherwise they are marked as unverified, and nothing is written.
///
/// # Errors
/// Code 2 if no test fits; code 5 if a gate is required and none has passed.
pub fn run(args: &BenchArgs) -> Result<(), Exit> {
    let setup = Setup::new(&args.engine)?;
    let ids = args.ids.as_deref().map(PromptIds::read).transpose().map_err(input_exit)?;
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
    let options = options(args);
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
    drop(progress);
    if let (Some(folder), Some(_)) = (&folder, &gate) {
        if let Some(removed) = folder.add_rows(&rows).map_err(exit_of)? {
            say(&format!("bench: {removed}"));
        }
        write_readme(folder).map_err(exit_of)?;
        if let Some(removed) = folder.add_command(&command(), &[version()]).map_err(exit_of)? {
            say(&format!("bench: {removed}"));
        }
        write_readme(folder).map_err(exit_of)?;
    }
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
fn gate(
    args: &BenchArgs,
    subject: &Bench,
    folder: Option<&RunFolder>,
) -> Result<Option<Gate>, Exit> {
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

fn no_run(args: &BenchArgs) -> String {
    format!("{} holds no gate of this machine since it started", args.results.folder().display())
}

/// Says why there is no row.
fn nothing(left_out: &[String]) -> String {
    match left_out {
        [] => "-p, -n and the prompts ask for none".into(),
        _ => left_out.join("; "),
    }
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

fn options(args: &BenchArgs) -> BenchOptions {
    let all = |lists: &[Vec<usize>]| lists.concat();
    BenchOptions {
        runs: args.runs,
        steps: all(&args.steps),
        depths: all(&args.depths),
        prompt_lengths: all(&args.prompt_lengths),
        prompts: !args.no_prompts,
        warm_up: !args.no_warmup,
        calibration: calibration(&args.roofline),
    }
}

fn calibration(args: &RooflineArgs) -> Option<Calibration> {
    let RooflineArgs { hand_off_us, compute_us, argmax_us, .. } = *args;
    let (bandwidth_gb_s, source) = (args.bandwidth_gb_s?, args.bandwidth_source.clone()?);
    Some(Calibration { bandwidth_gb_s, hand_off_us, compute_us, argmax_us, source })
}
