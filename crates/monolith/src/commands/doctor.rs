//! `monolith doctor`

use crate::exit::{Code, Exit};
use crate::file_out::write_file;
use crate::kinds::{Kind, check_output};
use crate::options::{DEFAULT_MODEL, EngineChoice};
use crate::progress::Progress;
use crate::source;
use crate::text_out::{put, say, show};
use monolith_engine::cpu::simd::Simd;
use monolith_engine::{cpu, cuda};
use monolith_harness::environment::nvml_state;
use monolith_probes::{Options, ProbeError};
use std::path::PathBuf;

/// Show which engines can run on this machine, and what the others need
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The engine that must be usable (auto, cuda or cpu); the exit code is 3 if it is not
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto, hide_possible_values = true)]
    pub engine: EngineChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Probe the GPU: conversions, clocks, bandwidth, hand-offs, counters
    #[arg(long)]
    pub probe: bool,
    /// Write the probes' report to this file, as JSON
    #[arg(long, value_name = "FILE", requires = "probe")]
    pub out: Option<PathBuf>,
    /// Run one small kernel, for Nsight Compute to profile
    #[arg(long, hide = true)]
    pub probe_child: bool,
}

const EXAMPLES: &str = "Examples:
  monolith doctor
  monolith doctor --engine cuda || echo 'no GPU here'
  monolith doctor --json | jq '.engines[] | select(.usable)'";

/// Prints which engines can run.
///
/// # Errors
/// Code 3 if the requested engine cannot run.
pub fn run(args: &Args) -> Result<(), Exit> {
    if args.probe_child {
        return monolith_probes::run_child(&Options::default()).map_err(probe_exit);
    }
    if args.probe {
        return probe(args);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let levels: Vec<&str> = Simd::available().iter().map(|level| level.name()).collect();
    let model = source::find(DEFAULT_MODEL.as_ref());
    let model = model.map(|model| model.dir).map_err(|exit| exit.to_string());
    let gpu = cuda::usable(0).map_err(|error| error.to_string());
    let telemetry = nvml_state();
    let text = if args.json {
        let value = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "engines": [
                {"engine": "cpu", "usable": true, "device": cpu::device_name(),
                 "threads": cores, "simd": levels},
                {"engine": "cuda", "usable": gpu.is_ok(), "reason": gpu.as_ref().err(),
                 "device": gpu.as_ref().ok().map(|gpu| &gpu.name),
                 "arch": gpu.as_ref().ok().map(|gpu| gpu.arch),
                 "driver_cuda": gpu.as_ref().ok().map(|gpu| gpu.driver_cuda)},
            ],
            "telemetry": {"usable": telemetry.is_ok(), "reason": telemetry.err()},
            "default_model": {
                "name": DEFAULT_MODEL,
                "here": model.is_ok(),
                "reason": model.err(),
            },
        });
        format!("{value:#}\n")
    } else {
        format!(
            "monolith {}\ncpu    can run: {}, {cores} threads, {}\ncuda   {}\nNVML   {}\n\
             model  {}\n",
            env!("CARGO_PKG_VERSION"),
            cpu::device_name(),
            levels.join(", "),
            match &gpu {
                Ok(gpu) => format!("can run: {}, {}", gpu.name, gpu.arch),
                Err(why) => format!("cannot run: {why}"),
            },
            match telemetry {
                Ok(()) => "telemetry for a run's record: clocks, power, temperature".to_owned(),
                Err(why) => format!("no telemetry for a run's record: {why}"),
            },
            model.map_or_else(|reason| reason, |dir| format!("{DEFAULT_MODEL}: {}", dir.display())),
        )
    };
    if args.json {
        put(&text)?;
    } else {
        show(&text)?;
    }
    match (args.engine, gpu) {
        (EngineChoice::Cuda, Err(why)) => Err(Exit::message(Code::NoEngine, why)),
        _ => Ok(()),
    }
}

/// Runs the GPU's probes and prints the table, or JSON; writes the report to a file, if one is
/// named.
fn probe(args: &Args) -> Result<(), Exit> {
    if let Some(path) = &args.out {
        check_output(path, Kind::Probes)?;
    }
    // Nsight Compute profiles a second run of this program.
    let child = std::env::current_exe().ok().map(|program| {
        vec![program.to_string_lossy().into_owned(), "doctor".into(), "--probe-child".into()]
    });
    let options = Options { child, ..Options::default() };
    let progress = Progress::new("doctor");
    let mut tell = |what: &str| progress.doing(what);
    let report = monolith_probes::run(&options, &mut tell).map_err(probe_exit)?;
    drop(progress);
    if let Some(path) = &args.out {
        write_file(path, report.to_json().as_bytes())?;
    }
    if args.json {
        put(&report.to_json())?;
    } else {
        show(&format!("{report}\n"))?;
    }
    let failed = report.failures();
    if failed.is_empty() {
        return Ok(());
    }
    say("monolith: some probes failed; the report says which and why");
    Err(Exit::message(Code::Failure, format!("{} probes failed", failed.len())))
}

fn probe_exit(error: ProbeError) -> Exit {
    let code = if error.is_no_gpu() { Code::NoEngine } else { Code::Failure };
    Exit::new(code, error)
}
