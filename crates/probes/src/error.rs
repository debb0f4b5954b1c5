//! The errors. Every message says the cause and a cure.

use cudarc::driver::DriverError;
use monolith_kernels::KernelError;
use std::path::PathBuf;

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is no driver, or it is too old.
    #[error("{}", without_engine(.0))]
    NoDriver(KernelError),
    /// There is a driver, but not this GPU.
    #[error(
        "GPU {device} was not found: the driver sees {count}. Choose another with --device, and \
         in a container start it with the GPU (--gpus all)"
    )]
    NoGpu {
        /// The requested number.
        device: usize,
        /// The number of GPUs.
        count: usize,
    },
    /// The kernels are not available.
    #[error("{}", without_engine(.0))]
    Kernels(KernelError),
    /// An error of the driver.
    #[error("the GPU's driver: {0}")]
    Driver(#[from] DriverError),
    /// A wait in a kernel timed out.
    #[error(
        "block {block} timed out waiting for {what} {index}: expected {expected}, saw {seen}. The \
         GPU may be shared or paused by another program"
    )]
    Stuck {
        /// The block that waited.
        block: u32,
        /// What it waited for.
        what: &'static str,
        /// The index of it.
        index: u32,
        /// The value that would have ended the wait.
        expected: u32,
        /// The value that was there.
        seen: u32,
    },
    /// The GPU gave a wrong answer.
    #[error("the GPU's answer is wrong: {0}")]
    Wrong(String),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Nsight Compute was not tried, or did not finish.
    #[error("{0}")]
    Ncu(String),
}

impl ProbeError {
    /// Returns whether the error is that there is no usable GPU.
    pub fn is_no_gpu(&self) -> bool {
        matches!(self, ProbeError::NoDriver(_) | ProbeError::NoGpu { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ProbeError {
        let path = path.into();
        move |source| ProbeError::Io { path, source }
    }
}

/// Removes a message's advice to use another engine: the probes have none.
fn without_engine(error: &KernelError) -> String {
    let message = error.to_string();
    match message.split_once(" --engine cpu") {
        Some((message, _)) => message.trim_end_matches('.').into(),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_the_message_names_cause_and_cure() {
        let error = ProbeError::NoDriver(monolith_kernels::check_driver(None).unwrap_err());
        let message = error.to_string();
        for part in ["libcuda.so.1", "install the driver", "--gpus all"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("engine"), "{message}");
        assert!(error.is_no_gpu());
        let error = ProbeError::NoGpu { device: 3, count: 1 };
        let message = error.to_string();
        assert!(message.contains("GPU 3") && message.contains("--device"), "{message}");
        assert!(error.is_no_gpu());
        assert!(!ProbeError::Wrong("any".into()).is_no_gpu());
    }
}
