//! The GPU architectures that the kernels are compiled for, and their limits.

use crate::KernelError;
use std::fmt;
use std::str::FromStr;

/// A GPU architecture. The `a` means that the kernels use features of exactly this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// H100, H200.
    Sm90a,
    /// RTX 5090 and its family.
    Sm120a,
}

/// Registers of a multiprocessor's quarter (partition); a warp runs in one quarter.
const QUARTER_REGISTERS: u32 = 65_536 / QUARTERS;
const QUARTERS: u32 = 4;
const WARP_THREADS: u32 = 32;
/// Registers are allocated to a warp in units of eight per thread.
const REGISTER_UNIT: u32 = 8;
const REGISTERS_MAX: u32 = 255;

impl Arch {
    /// Every architecture.
    pub const ALL: [Arch; 2] = [Arch::Sm90a, Arch::Sm120a];

    /// Returns the compiler's name for the architecture.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Sm90a => "sm_90a",
            Arch::Sm120a => "sm_120a",
        }
    }

    /// Returns the compute capability, major times ten plus minor.
    pub const fn capability(self) -> u32 {
        match self {
            Arch::Sm90a => 90,
            Arch::Sm120a => 120,
        }
    }

    /// Returns the most bytes of shared memory of a block, static and dynamic together.
    pub const fn shared_bytes_max(self) -> u32 {
        match self {
            Arch::Sm90a => 227 * 1024,
            Arch::Sm120a => 99 * 1024,
        }
    }

    /// Returns the most registers per thread with which a block of `threads` fits a multiprocessor.
    /// Warps are distributed over four quarters, so the fullest quarter decides.
    pub const fn registers_max(self, threads: u32) -> u32 {
        let warps = threads.div_ceil(WARP_THREADS).div_ceil(QUARTERS);
        if warps == 0 {
            return REGISTERS_MAX;
        }
        let fit = QUARTER_REGISTERS / warps / WARP_THREADS / REGISTER_UNIT * REGISTER_UNIT;
        if fit < REGISTERS_MAX { fit } else { REGISTERS_MAX }
    }

    /// Returns the architecture to load for a GPU of this compute capability; `gpu` is its name.
    ///
    /// # Errors
    /// There is no kernel for this GPU.
    pub fn of_gpu(gpu: &str, major: u32, minor: u32) -> Result<Arch, KernelError> {
        Arch::ALL
            .into_iter()
            .find(|arch| (arch.capability() / 10, arch.capability() % 10) == (major, minor))
            .ok_or_else(|| KernelError::NoKernelForGpu { gpu: gpu.into(), major, minor })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Arch {
    type Err = KernelError;

    fn from_str(name: &str) -> Result<Arch, KernelError> {
        Arch::ALL
            .into_iter()
            .find(|arch| arch.name() == name)
            .ok_or_else(|| KernelError::UnknownArch { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_others_are_refused() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse::<Arch>().unwrap(), arch);
        }
        let message = "sm_90".parse::<Arch>().unwrap_err().to_string();
        assert!(message.contains("sm_90") && message.contains("sm_120a"), "{message}");
    }

    #[test]
    fn a_gpu_without_a_kernel_is_named() {
        assert_eq!(Arch::of_gpu("NVIDIA H200", 9, 0).unwrap(), Arch::Sm90a);
        assert_eq!(Arch::of_gpu("RTX 5090", 12, 0).unwrap(), Arch::Sm120a);
        let message = Arch::of_gpu("Tesla T4", 7, 5).unwrap_err().to_string();
        assert!(message.contains("Tesla T4") && message.contains("7.5"), "{message}");
    }

    #[test]
    fn the_fullest_quarter_limits_the_registers() {
        // The compiler's own limits for blocks of these sizes.
        for (threads, registers) in [(32, 255), (256, 255), (512, 128), (544, 96), (1024, 64)] {
            assert_eq!(Arch::Sm90a.registers_max(threads), registers, "{threads} threads");
        }
    }
}
