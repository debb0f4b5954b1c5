//! What can go wrong. Every message says the cause and a cure.

use cudarc::driver::DriverError;
use monolith_kernels::KernelError;
use std::path::PathBuf;

/// Why a probe gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is no driver, or it is too old.
    #[error("{}", without_engine(.0))]
    NoDriver(KernelError),
    /// The driver is there, and this GPU is not.
    #[error(
        "GPU {device} was not found: the driver sees {count}. Choose another with --device, and \
         in a container start it with the GPU (--gpus all)"
    )]
    NoGpu {
        /// The number asked for.
        device: usize,
        /// How many there are.
        count: usize,
    },
    /// The kernels cannot be had.
    #[error("{}", without_engine(.0))]
    Kernels(KernelError),
    /// What the driver said.
    #[error("the GPU's driver: {0}")]
    Driver(#[from] DriverError),
    /// A wait in a kernel took too long.
    #[error(
        "block {block} waited for {what} {index} in vain: expected {expected}, saw {seen}. The \
         GPU may be shared or paused by another program"
    )]
    Stuck {
        /// Who waited.
        block: u32,
        /// For what.
        what: &'static str,
        /// Which of them.
        index: u32,
        /// What would have ended the wait.
        expected: u32,
        /// What was there.
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
        /// What the system said.
        source: std::io::Error,
    },
    /// Nsight Compute was not tried, or did not end.
    #[error("{0}")]
    Ncu(String),
}

impl ProbeError {
    /// Whether there is no GPU to ask.
    pub fn is_no_gpu(&self) -> bool {
        matches!(self, ProbeError::NoDriver(_) | ProbeError::NoGpu { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ProbeError {
        let path = path.into();
        move |source| ProbeError::Io { path, source }
    }
}

/// The message without its advice to use another engine: the probes have no other.
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
