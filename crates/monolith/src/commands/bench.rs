//! `monolith bench`: the speed of an engine whose gate passed.

use crate::args::{BenchArgs, RooflineArgs};
use crate::exit::{Code, Exit};
use crate::measure::{Setup, command, exit_of, prepare, version};
use crate::progress::Progress;
use crate::source;
use crate::text_out::{put, say};
use monolith_harness::bench::{self, Bench, BenchOptions, Row, rendered};
use monolith_harness::predict::Calibration;
use monolith_harness::prompts::PromptIds;

/// Measures every test, keeps the rows with their run, and prints them.
///
/// # Errors
/// Code 5 without a passed gate of what would be measured; code 2 if there is room for no test.
pub fn run(args: &BenchArgs) -> Result<(), Exit> {
    let setup = Setup::new(&args.engine)?;
    let prompts = PromptIds::read(&args.ids).map_err(exit_of)?;
    let model = source::find(&args.model.model)?;
    let results = &args.results.results;
    let Some(folder) = setup.run_folder(results)? else {
        let what = format!(
            "no speed without a passed gate of this run: {} has none; `monolith gate` comes first",
            results.display()
        );
        return Err(Exit::message(Code::Gate, what));
    };
    prepare(results)?;
    let pack = model.pack((&args.format).into())?;
    let mut engine =
        setup.options.load_first(pack.clone(), None).map_err(crate::engine::exit_of)?;
    let mut subject = Bench {
        engine: engine.as_mut(),
        pack: &pack,
        prompts: &prompts,
        folder: &folder.path,
        environment: &setup.environment,
        probe: &setup.probe,
    };
    let options = options(args, setup.options.gpu().is_some());
    let progress = Progress::new("bench");
    let mut tell = |what: &str| progress.doing(what);
    let (mut rows, left_out) = bench::run(&mut subject, &options, &mut tell).map_err(exit_of)?;
    if rows.is_empty() {
        let what = format!("there is room for no test: {}", left_out.join("; "));
        return Err(Exit::message(Code::Usage, what));
    }
    if let Some(window_s) = args.energy {
        add_energy(&mut subject, &mut rows, window_s, &progress)?;
    }
    drop(progress);
    folder.add_rows(&rows).map_err(exit_of)?;
    folder.add_command(&command(), &[version()]).map_err(exit_of)?;
    for line in left_out {
        say(&format!("bench: left out: {line}"));
    }
    put(&rendered(&rows, args.output))?;
    Ok(())
}

/// Adds the energy to the rows of a depth, where the processor counts it.
fn add_energy(
    subject: &mut Bench,
    rows: &mut [Row],
    window_s: f64,
    progress: &Progress,
) -> Result<(), Exit> {
    if subject.probe.energy_j().is_none() {
        say("bench: --energy: this processor has no counter of energy: left out");
        return Ok(());
    }
    for row in rows.iter_mut().filter(|row| row.position.is_some()) {
        progress.doing(format!("energy of {}", row.test));
        bench::add_energy(subject, row, window_s).map_err(exit_of)?;
    }
    Ok(())
}

fn options(args: &BenchArgs, on_gpu: bool) -> BenchOptions {
    BenchOptions {
        runs: args.runs,
        steps: args.steps,
        depths: args.depths.clone(),
        prompts: !args.no_prompts,
        warm_up: !args.no_warmup,
        // The whole step is one kernel.
        launches_per_token: on_gpu.then_some(1.0),
        calibration: calibration(&args.roofline),
    }
}

fn calibration(args: &RooflineArgs) -> Option<Calibration> {
    let RooflineArgs { hand_off_us, compute_us, argmax_us, .. } = *args;
    let (bandwidth_gb_s, source) = (args.bandwidth_gb_s?, args.bandwidth_source.clone()?);
    Some(Calibration { bandwidth_gb_s, hand_off_us, compute_us, argmax_us, source })
}
