//! The probes as a program: the table on stderr, the report as JSON on stdout.

use anyhow::Context;
use clap::Parser;
use monolith_probes::{Options, ProbeError};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// A probe failed: the report says which.
const SOME_FAILED: u8 = 1;
const NO_GPU: u8 = 3;

/// Probe the GPU: conversions, clocks, bandwidth, hand-offs, counters.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Number of the GPU.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Folder of compiled kernels, for a machine without NVRTC.
    #[arg(long, value_name = "FOLDER")]
    cubins: Option<PathBuf>,
    /// Compile the kernels of every architecture into this folder, and do nothing else.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["device", "cubins"])]
    compile: Option<PathBuf>,
    /// Do not run Nsight Compute.
    #[arg(long)]
    no_ncu: bool,
    /// Run one small kernel, for Nsight Compute to profile.
    #[arg(long, hide = true)]
    child: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            let no_gpu = error.downcast_ref::<ProbeError>().is_some_and(ProbeError::is_no_gpu);
            eprintln!("error: {error:#}");
            ExitCode::from(if no_gpu { NO_GPU } else { SOME_FAILED })
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.compile {
        monolith_probes::kernels::write(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut options =
        Options { device: args.device, cubins: args.cubins.clone(), ..Options::default() };
    if args.child {
        monolith_probes::run_child(&options)?;
        return Ok(ExitCode::SUCCESS);
    }
    options.child = if args.no_ncu { None } else { child(args) };
    let report = monolith_probes::run(&options, &mut |_| ())?;
    eprintln!("{report}");
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(report.to_json().as_bytes()).context("writing the report")?;
    stdout.flush().context("writing the report")?;
    let failed = report.failures().iter().any(|(name, _)| !(args.no_ncu && *name == "counters"));
    Ok(if failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Returns the command that runs this program again, on the same GPU.
fn child(args: &Args) -> Option<Vec<String>> {
    let program = std::env::current_exe().ok()?.to_str()?.to_owned();
    let mut words = vec![program, "--child".into(), "--device".into(), args.device.to_string()];
    if let Some(cubins) = &args.cubins {
        words.extend(["--cubins".into(), cubins.to_str()?.to_owned()]);
    }
    Some(words)
}
