//! What is known of the GPUs that steps are predicted for.

use super::PredictError;
use monolith_kernels::Arch;

/// A GPU's facts.
#[derive(Debug)]
pub struct Gpu {
    /// Name, as its driver reports it.
    pub name: &'static str,
    /// Name on the command line.
    pub short: &'static str,
    /// Architecture of its kernels.
    pub arch: Arch,
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Clock of the multiprocessors, MHz.
    pub clock_mhz: f64,
    /// Bandwidth that reading reaches, GB/s.
    pub bandwidth_gb_s: f64,
    /// Bandwidth by the data sheet, GB/s.
    pub nominal_gb_s: f64,
    /// Where clock and bandwidth come from.
    pub source: &'static str,
    /// Speeds of other programs on it, by their authors; nobody here measured them.
    pub published: &'static str,
}

/// Every GPU with facts.
pub const GPUS: &[Gpu] = &[
    Gpu {
        name: "NVIDIA H200",
        short: "h200",
        arch: Arch::SM_90A,
        multiprocessors: 132,
        clock_mhz: 1980.0,
        bandwidth_gb_s: 4393.0,
        nominal_gb_s: 4800.0,
        source: "the probes of 2026-11-30-h200-07",
        published: "",
    },
    Gpu {
        name: "NVIDIA GeForce RTX 5090",
        short: "rtx-5090",
        arch: Arch::SM_120A,
        multiprocessors: 170,
        clock_mhz: 2407.0,
        bandwidth_gb_s: 1674.0,
        nominal_gb_s: 1792.0,
        source: "the data sheet (boost clock, 1,792 GB/s), and 1,674 GB/s that the author of \
                 qwen_megakernel measured on one",
        published: "Published for this GPU, in bf16: 1,036 tok/s (qwen_megakernel, its author), \
                    1,398 tok/s (a derivative of it, July 2026).",
    },
];

impl Gpu {
    /// The GPU of this name: as the driver reports it, or as the command line takes it.
    pub fn named(name: &str) -> Option<&'static Gpu> {
        GPUS.iter().find(|gpu| gpu.name == name || gpu.short == name)
    }

    /// The GPU of this name.
    ///
    /// # Errors
    /// Nothing is known of it.
    pub fn find(name: &str) -> Result<&'static Gpu, PredictError> {
        Gpu::named(name).ok_or_else(|| PredictError::UnknownGpu {
            name: name.into(),
            known: GPUS.iter().map(|gpu| gpu.short).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_gpu_is_named_with_the_known_ones() {
        assert_eq!(Gpu::find("rtx-5090").unwrap().multiprocessors, 170);
        let message = Gpu::find("NVIDIA T4").unwrap_err().to_string();
        for part in ["NVIDIA T4", "h200", "rtx-5090", "gpus.rs"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
