//! The errors before a kernel runs. Every message says the cause and a cure.

use crate::variant::TABLE;
use crate::{Arch, ShapeError};
use std::path::PathBuf;

/// The least CUDA version of a driver that loads our kernels, as the driver reports it.
const DRIVER_NEEDED: i32 = 13_000;
/// The PyPI package with NVRTC, in the version that the project is tested with.
pub const NVRTC_PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The model has a dimension that the kernels cannot run.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// No row of the variant table has this name.
    #[error("there is no kernel variant `{name}`; there are: {}", variants())]
    UnknownVariant {
        /// The requested name.
        name: String,
    },
    /// No architecture has this name.
    #[error("there are no kernels for `{name}`; there are for: {}", arches())]
    UnknownArch {
        /// The name that was asked for.
        name: String,
    },
    /// No kernel is compiled for the GPU's architecture.
    #[error(
        "there is no kernel for {gpu} (compute capability {major}.{minor}); there are for: {}. \
         --engine cpu runs on any machine",
        arches()
    )]
    NoKernelForGpu {
        /// The GPU's name.
        gpu: String,
        /// The compute capability's major number.
        major: u32,
        /// The compute capability's minor number.
        minor: u32,
    },
    /// libcuda was not found.
    #[error(
        "the NVIDIA driver (libcuda.so.1) was not found: install the driver, and in a container \
         start it with the GPU (--gpus all). --engine cpu needs none"
    )]
    NoDriver,
    /// The driver is older than the kernels.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {}, the kernels need {}: update it to 580 \
         or later. --engine cpu needs none",
        cuda_version(*.found),
        cuda_version(DRIVER_NEEDED)
    )]
    DriverTooOld {
        /// The version from `cuDriverGetVersion`.
        found: i32,
    },
    /// There is neither a compiled kernel nor a compiler.
    #[error(
        "this build carries no kernel for {wanted}, and NVRTC, which would compile it, was not \
         found. Looked for: {}. Install CUDA 13, or `pip install {NVRTC_PACKAGE}`, and set \
         MONOLITH_NVRTC to libnvrtc.so.13 or its folder",
        .looked.join("; ")
    )]
    NvrtcNotFound {
        /// The kernel.
        wanted: String,
        /// The searched places, and what was there instead.
        looked: Vec<String>,
    },
    /// There is a compiler, but it is not suitable.
    #[error("NVRTC at {library} cannot be used: {what}. Install {NVRTC_PACKAGE}, or CUDA 13")]
    Nvrtc {
        /// The library.
        library: String,
        /// The reason.
        what: String,
    },
    /// The sources do not compile.
    #[error("the kernel does not compile:\n{log}")]
    Compile {
        /// The compiler's messages, by file and line.
        log: String,
    },
    /// The compiled kernel is damaged, or not ours.
    #[error("the compiled kernel cannot be read: {what}")]
    Cubin {
        /// The reason.
        what: String,
    },
    /// The model is too wide for the GPU's shared memory.
    #[error(
        "the kernel for {shape} needs {bytes} bytes of shared memory; a block on {arch} has {}. \
         --engine cpu runs this model",
        arch.shared_bytes_max()
    )]
    SharedMemory {
        /// The model's shape.
        shape: String,
        /// The needed bytes, static and dynamic together.
        bytes: u64,
        /// The architecture.
        arch: Arch,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl KernelError {
    /// Returns whether this machine lacks a supported GPU, a driver or the compiler.
    pub fn is_no_engine(&self) -> bool {
        use KernelError::{DriverTooOld, NoDriver, NoKernelForGpu, Nvrtc, NvrtcNotFound};
        matches!(
            self,
            NoKernelForGpu { .. }
                | NoDriver
                | DriverTooOld { .. }
                | NvrtcNotFound { .. }
                | Nvrtc { .. }
        )
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> KernelError {
        let path = path.into();
        move |source| KernelError::Io { path, source }
    }

    pub(crate) fn cubin(what: impl Into<String>) -> KernelError {
        KernelError::Cubin { what: what.into() }
    }
}

/// Checks the driver's version from `cuDriverGetVersion`; `None` means that there is no driver.
///
/// # Errors
/// There is no driver, or it is too old.
pub fn check_driver(version: Option<i32>) -> Result<(), KernelError> {
    match version {
        None => Err(KernelError::NoDriver),
        Some(found) if found < DRIVER_NEEDED => Err(KernelError::DriverTooOld { found }),
        Some(_) => Ok(()),
    }
}

fn variants() -> String {
    TABLE.iter().map(|variant| variant.name).collect::<Vec<_>>().join(", ")
}

fn arches() -> String {
    Arch::ALL.map(Arch::name).join(", ")
}

fn cuda_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_must_be_there_and_new_enough() {
        assert!(check_driver(Some(13_000)).is_ok());
        assert!(check_driver(Some(13_040)).is_ok());
        let message = check_driver(Some(12_090)).unwrap_err().to_string();
        assert!(message.contains("CUDA 12.9") && message.contains("580"), "{message}");
        let message = check_driver(None).unwrap_err().to_string();
        assert!(message.contains("libcuda.so.1") && message.contains("install"), "{message}");
    }
}
