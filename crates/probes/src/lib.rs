//! Probes of the GPU: whether its conversions are exact, the resolution of its timer, the speed of
//! its clocks, memory and hand-offs, and whether Nsight Compute may read its counters. [`run`] runs
//! them all; if a probe fails, the report says why, and the others continue.

mod bandwidth;
mod clocks;
mod convert;
mod error;
mod gpu;
mod handoff;
pub mod kernels;
mod ncu;
pub mod reference;
pub mod report;
mod statistics;
mod table;

pub use error::ProbeError;
pub use report::Report;

use gpu::Gpu;
use report::{GpuInfo, Outcome, SCHEMA_VERSION};
use std::path::PathBuf;
use std::time::Instant;

/// Options of the probes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The number of the GPU.
    pub device: usize,
    /// Folder of compiled kernels that [`kernels::write`] made; `None`: NVRTC compiles them.
    pub cubins: Option<PathBuf>,
    /// Program and arguments that call [`run_child`], for Nsight Compute to profile; `None`: the
    /// counters are not probed.
    pub child: Option<Vec<String>>,
}

/// Runs every probe; the report holds each one's result or failure. Calls `progress` with the name
/// of each probe.
///
/// # Errors
/// There is no driver or no such GPU, or there are no kernels for it.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report, ProbeError> {
    let begun = Instant::now();
    progress("opening the GPU, compiling the probes");
    let gpu = Gpu::open(options)?;
    let info = gpu.info()?;
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        gpu: info,
        convert: outcome({
            progress("conversions");
            convert::probe(&gpu)
        }),
        timer: outcome({
            progress("the shared timer");
            clocks::timer(&gpu)
        }),
        clock: outcome({
            progress("the blocks' clocks");
            clocks::clock(&gpu)
        }),
        offsets: outcome({
            progress("the clocks' offsets");
            clocks::offsets(&gpu)
        }),
        bandwidth: outcome({
            progress("bandwidth");
            bandwidth::probe(&gpu)
        }),
        handoff: outcome({
            progress("hand-offs");
            handoff::probe(&gpu)
        }),
        counters: Outcome::Failed("not tried".into()),
        seconds: 0.0,
    };
    // A GPU in exclusive-process mode would refuse the child.
    drop(gpu);
    progress("counters, by Nsight Compute");
    report.counters = outcome(ncu::probe(options.child.as_deref()));
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Runs one small kernel, for Nsight Compute to profile.
///
/// # Errors
/// Those of [`run`], and a failure of the kernel.
pub fn run_child(options: &Options) -> Result<(), ProbeError> {
    convert::probe(&Gpu::open(options)?).map(|_| ())
}

fn outcome<T>(result: Result<T, ProbeError>) -> Outcome<T> {
    match result {
        Ok(measured) => Outcome::Measured(measured),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

impl Gpu {
    fn info(&self) -> Result<GpuInfo, ProbeError> {
        let (major, minor) = self.context.compute_capability()?;
        let cuda = gpu::driver_version().unwrap_or_default();
        Ok(GpuInfo {
            name: self.name.clone(),
            arch: self.arch.to_string(),
            compute_capability: format!("{major}.{minor}"),
            driver: driver_release(),
            cuda: format!("{}.{}", cuda / 1000, cuda % 1000 / 10),
            multiprocessors: self.multiprocessors,
            l2_bytes: self.l2_bytes,
            kernels: self.origin.clone(),
        })
    }
}

/// Returns the driver's own version, which only NVML knows.
fn driver_release() -> Option<String> {
    nvml_wrapper::Nvml::init().ok()?.sys_driver_version().ok()
}
