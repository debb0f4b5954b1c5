//! What a run's probes and X-rays say by themselves, without a fit.

use crate::exit::{Code, Exit};
use crate::measure::exit_of;
use anyhow::Context;
use monolith_abi::Phase;
use monolith_harness::HarnessError;
use monolith_harness::predict::{Calibration, Measured};
use monolith_kernels::Variant;
use monolith_xray::{Analysis, Trace, page};
use std::collections::BTreeMap;
use std::path::Path;

/// The probe that reads as the kernel does.
const READS: &str = "bulk copies of 16 KiB, a ring of 12";

/// Reads the bandwidth from a run's probes, and the times of head and argmax from its traces. The
/// times of a hand-off are those of `before`: no run measures them under a load.
///
/// # Errors
/// Missing probes or traces, or damaged ones.
pub fn measured(run: &Path, before: &Calibration) -> Result<Measured, Exit> {
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut argmaxes = Vec::new();
    for trace in traces(run)? {
        let analysis = Analysis::of(&trace);
        let of = |phase: Phase| {
            let own = analysis.path.phases.iter().find(|own| own.phase == phase);
            own.map(|own| own.time.sum_ns() as f64)
        };
        let bytes = trace.meta().phase_bytes.iter().find(|own| own.phase == Phase::LmHead);
        if let (Some(ns), Some(own), Some(format)) = (of(Phase::LmHead), bytes, head_format(&trace))
        {
            rates.entry(format).or_default().push(own.bytes as f64 / ns);
        }
        argmaxes.extend(of(Phase::Argmax).map(|ns| ns * 1e-3));
    }
    if rates.is_empty() || argmaxes.is_empty() {
        let what = format!("{}: no trace of a GPU's step (xray-*.json.gz)", run.display());
        return Err(Exit::message(Code::Usage, what));
    }
    Ok(Measured {
        bandwidth_gb_s: bandwidth(&run.join("probes.json"))?,
        hand_off_ns: before.parameters.hand_off_ns.clone(),
        head_gb_s: rates.into_iter().map(|(name, all)| (name, mean(&all))).collect(),
        argmax_us: mean(&argmaxes),
    })
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Name of the format of a trace's head.
fn head_format(trace: &Trace) -> Option<String> {
    let variant = Variant::find(&trace.meta().variant).ok()?;
    Some(variant.head_format.name().to_owned())
}

/// The traces of a run's folder.
fn traces(run: &Path) -> Result<Vec<Trace>, Exit> {
    let entries = std::fs::read_dir(run).with_context(|| run.display().to_string())?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("xray-") && name.ends_with(".json.gz")
    });
    paths.sort();
    let read = |path: std::path::PathBuf| -> Result<Trace, Exit> {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(page::read(&bytes).with_context(|| path.display().to_string())?)
    };
    paths.into_iter().map(read).collect()
}

/// Bandwidth of the largest read by [`READS`], GB/s.
fn bandwidth(path: &Path) -> Result<f64, Exit> {
    let wrong = |what: String| exit_of(HarnessError::File { path: path.to_owned(), what });
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let probes: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let rows = probes["bandwidth"]["measured"].as_array();
    let own = rows.into_iter().flatten().filter(|row| row["way"] == READS);
    let largest = own.max_by_key(|row| row["bytes"].as_u64());
    let found = largest.and_then(|row| row["gb_per_s_median"].as_f64());
    found.ok_or_else(|| wrong(format!("no bandwidth by {READS} (monolith doctor --probe)")))
}
