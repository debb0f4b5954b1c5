//! `monolith predict`: how long a step should take on a GPU, part by part.

mod traces;

use crate::exit::{Code, Exit};
use crate::file_out::{check_writable, write_file};
use crate::measure::exit_of;
use crate::source;
use crate::text_out::{put, show};
use crate::values;
use monolith_harness::HarnessError;
use monolith_harness::predict::{Calibration, PredictError, Predictor};
use monolith_harness::report::{Forecast, calibrated, compared, comparison, forecast};
use monolith_harness::runs::RunFolder;
use monolith_pack::Formats;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Predict the speed on a GPU, part by part, or fit the prediction's numbers to a run
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The GPU: h200 or rtx-5090
    #[arg(long, value_name = "GPU", default_value = "h200")]
    pub gpu: String,
    /// A named shape (qwen3-0.6b, tiny), or the path of a config.json
    #[arg(long, value_name = "SHAPE", default_value = "qwen3-0.6b")]
    pub shape: OsString,
    /// Weight format [default: bf16 and fp8, a row each]
    #[arg(long, value_name = "FORMAT", value_parser = values::formats())]
    #[arg(hide_possible_values = true)]
    pub format: Option<Formats>,
    /// Numbers of positions before the first token, a row each; with --calibrate, those of the rows
    /// that the numbers are fitted to. Lists and ranges as in bench
    #[arg(short = 'd', long = "n-depth", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "16,2048", allow_negative_numbers = true)]
    pub depths: Vec<Vec<usize>>,
    /// Number of tokens
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 256)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub steps: usize,
    /// Bandwidth of the GPU, in GB/s [default: as measured on it, or as published]
    #[arg(long, value_name = "X", value_parser = values::speed, allow_negative_numbers = true)]
    pub bandwidth_gb_s: Option<f64>,
    /// Use the numbers in this file, which --calibrate wrote [default: those of this build]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// Compare the rows of this run with their predictions
    #[arg(long, value_name = "RUN", conflicts_with_all = ["calibrate", "shape", "format"])]
    pub check: Option<PathBuf>,
    /// Fit the numbers to this run, which needs rows, probes and X-rays, and compare its other rows
    /// with their predictions
    #[arg(long, value_name = "RUN", conflicts_with_all = ["gpu", "shape", "format"])]
    pub calibrate: Option<PathBuf>,
    /// With --calibrate: fit to the rows of this model only; may be given more than once
    #[arg(long = "fit-model", value_name = "NAME", requires = "calibrate")]
    pub fit_models: Vec<String>,
    /// With --calibrate: write the numbers to this file
    #[arg(short, long, value_name = "FILE", requires = "calibrate")]
    pub out: Option<PathBuf>,
    /// Print the numbers that the prediction uses, as JSON
    #[arg(long, conflicts_with_all = ["check", "calibrate"])]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  monolith predict
  monolith predict --gpu rtx-5090
  monolith predict --check results/2026-11-30-h200-07
  monolith predict --calibrate results/2026-11-30-h200-07 -d 16,512,2048 -o h200.json

A step is layers x max(bytes / bandwidth, hand-offs x time of one + compute) + head + argmax +
launch. A hand-off's time depends on the stream of weights beside it, which follows from the result.
The numbers were fitted to a run on one GPU. For another GPU they are scaled, and the table says
so.";

/// Prints a prediction, or compares a run with it.
///
/// # Errors
/// Code 2 for an unknown GPU or shape, or a run that is not there; a run without what a fit needs.
pub fn run(args: &Args) -> Result<(), Exit> {
    if let Some(run) = &args.calibrate {
        return calibrate(args, run);
    }
    let read = args.calibration.as_deref().map(Calibration::read).transpose();
    let calibration = read.map_err(exit)?.unwrap_or_else(Calibration::shipped);
    if let Some(run) = &args.check {
        let folder = folder(run)?;
        let gpu = folder.environment().map_err(exit_of)?.gpu;
        let predictor = predictor(args, calibration, &gpu)?;
        let rows = compared(&folder, &predictor).map_err(exit_of)?;
        show(&comparison(&rows))?;
        return Ok(());
    }
    let predictor = predictor(args, calibration, &args.gpu)?;
    if args.json {
        let numbers = serde_json::to_string_pretty(predictor.parameters());
        put(&(numbers.map_err(|error| Exit::message(Code::Failure, error))? + "\n"))?;
        return Ok(());
    }
    let config = source::shape(&args.shape)?;
    let all = [Formats::BF16, Formats::FP8];
    let formats = args.format.as_ref().map_or(&all[..], std::slice::from_ref);
    let of = Forecast {
        model: &args.shape.to_string_lossy(),
        config: &config,
        formats,
        depths: &args.depths.concat(),
        steps: args.steps,
    };
    show(&forecast(&predictor, &of).map_err(exit)?)?;
    Ok(())
}

/// The predictor that the options ask for.
fn predictor(args: &Args, calibration: Calibration, gpu: &str) -> Result<Predictor, Exit> {
    let predictor = Predictor::new(calibration, gpu).map_err(exit)?;
    Ok(match args.bandwidth_gb_s {
        Some(bandwidth) => predictor.with_bandwidth(bandwidth),
        None => predictor,
    })
}

/// Fits the numbers to a run, and shows how well they predict its rows.
fn calibrate(args: &Args, run: &Path) -> Result<(), Exit> {
    if let Some(path) = &args.out {
        check_writable(path)?;
    }
    let folder = folder(run)?;
    let read = args.calibration.as_deref().map(Calibration::read).transpose();
    let before = read.map_err(exit)?.unwrap_or_else(Calibration::shipped);
    let measured = traces::measured(&folder.path, &before)?;
    let depths = args.depths.concat();
    let source = &before.origin.hand_off_source;
    let own = calibrated(&folder, &depths, &args.fit_models, &measured, source).map_err(exit_of)?;
    let gpu = own.origin.gpu.clone();
    let rows = compared(&folder, &Predictor::new(own.clone(), &gpu).map_err(exit)?);
    show(&comparison(&rows.map_err(exit_of)?))?;
    match &args.out {
        Some(path) => write_file(path, own.to_json().as_bytes())?,
        None => put(&format!("\n{}", own.to_json()))?,
    }
    Ok(())
}

/// The folder of a run.
fn folder(run: &Path) -> Result<RunFolder, Exit> {
    let (Some(results), Some(name)) = (run.parent(), run.file_name()) else {
        return Err(no_run(run));
    };
    if !run.is_dir() {
        return Err(no_run(run));
    }
    let results = if results.as_os_str().is_empty() { Path::new(".") } else { results };
    Ok(RunFolder::named(results, &name.to_string_lossy()))
}

fn no_run(run: &Path) -> Exit {
    Exit::message(Code::Usage, format!("{}: no folder of a run", run.display()))
}

fn exit(error: PredictError) -> Exit {
    exit_of(HarnessError::Predict(error))
}
