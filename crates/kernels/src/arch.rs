//! The GPU architectures that the kernels are compiled for, and their limits.

use crate::{KernelError, Variant};
use monolith_abi::Launch;
use monolith_abi::step::Tuning;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// What is known of an architecture: everything that differs between GPUs is in its row.
#[derive(Debug)]
pub struct ArchRow {
    /// The compiler's name for it. The `a` means that the kernels use features of exactly this one.
    pub name: &'static str,
    /// Compute capability, major times ten plus minor.
    pub capability: u32,
    /// The most bytes of shared memory of a block, static and dynamic together.
    pub shared_bytes_max: u32,
    /// Whether it converts E2M1 (the codes of NVFP4) by an instruction.
    pub has_e2m1: bool,
    /// The numbers that a variant runs fastest with, recording aside.
    pub tuning: fn(&Variant) -> Tuning,
}

/// A GPU architecture: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Arch(&'static ArchRow);

/// H100, H200.
const SM_90A: ArchRow = ArchRow {
    name: "sm_90a",
    capability: 90,
    shared_bytes_max: 227 * 1024,
    has_e2m1: false,
    tuning: |variant| {
        // FP8 waits for instructions, not for memory: with one copy fewer in flight, its hand-offs
        // are faster.
        let is_narrow = variant.format.bits() <= 8;
        let in_step = Tuning {
            consumer_warps: 16,
            // 128 items of the O and down projections, 256 and 384 tiles of QKV and gate and up:
            // all whole.
            grid: 128,
            flight: if is_narrow { 1 } else { 2 },
            low_water: if is_narrow { 4 } else { 0 },
            head_flight: if is_narrow { 8 } else { 4 },
            stages: 11,
            // Where all ranks attend to all positions, each loads all keys and values: in bf16 the
            // weights leave less room for that.
            kv_local: if is_narrow { 256 } else { 128 },
            ..plain()
        };
        if !variant.is_by_phase() {
            return in_step;
        }
        // Where every phase is a kernel, nobody waits behind its copies. Two blocks of successive
        // kernels may share an SM, and so its memory: the second one's first stages fill while the
        // first one computes.
        let (stages, residents) = if overlaps(variant) { (4, 2) } else { (in_step.stages, 1) };
        Tuning {
            flight: stages,
            kv_flight: stages,
            low_water: 0,
            head_flight: in_step.head_flight.min(stages),
            stages,
            residents,
            prefetch: 1,
            ..in_step
        }
    },
};

/// RTX 5090 and its family.
const SM_120A: ArchRow = ArchRow {
    name: "sm_120a",
    capability: 120,
    shared_bytes_max: 99 * 1024,
    has_e2m1: true,
    tuning: |variant| Tuning {
        consumer_warps: 16,
        grid: 128,
        flight: if variant.is_by_phase() { 3 } else { 2 },
        kv_flight: 3,
        head_flight: 3,
        stages: 3,
        ..plain()
    },
};

/// Whether a kernel's blocks start while those of the kernel before it run.
fn overlaps(variant: &Variant) -> bool {
    matches!(variant.launch, Launch::DependentGraph | Launch::Dependent)
}

/// The numbers that are the same on both.
const fn plain() -> Tuning {
    Tuning {
        consumer_warps: 0,
        grid: 0,
        flight: 0,
        kv_flight: 4,
        low_water: 0,
        head_flight: 0,
        stages: 0,
        stage_bytes: 16_384,
        kv_chunk: 32,
        kv_splits: 16,
        kv_local: 192,
        residents: 1,
        prefetch: 0,
        xray: 0,
    }
}

/// Registers of a multiprocessor's quarter (partition); a warp runs in one quarter.
const QUARTER_REGISTERS: u32 = 65_536 / QUARTERS;
const QUARTERS: u32 = 4;
const WARP_THREADS: u32 = 32;
/// Registers are allocated to a warp in units of eight per thread.
const REGISTER_UNIT: u32 = 8;
const REGISTERS_MAX: u32 = 255;

impl Arch {
    /// H100, H200.
    pub const SM_90A: Arch = Arch(&SM_90A);
    /// RTX 5090 and its family.
    pub const SM_120A: Arch = Arch(&SM_120A);

    /// Every architecture that kernels are released for.
    pub const ALL: [Arch; 2] = [Arch::SM_90A, Arch::SM_120A];

    /// The architecture of a row that is not in the table: a new one, before it is tuned.
    pub const fn of_row(row: &'static ArchRow) -> Arch {
        Arch(row)
    }

    /// Returns the compiler's name for the architecture.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the compute capability, major times ten plus minor.
    pub const fn capability(self) -> u32 {
        self.0.capability
    }

    /// Returns the most bytes of shared memory of a block, static and dynamic together.
    pub const fn shared_bytes_max(self) -> u32 {
        self.0.shared_bytes_max
    }

    /// Returns whether the architecture has an instruction that converts E2M1 (the codes of NVFP4).
    pub const fn has_e2m1(self) -> bool {
        self.0.has_e2m1
    }

    /// Returns the numbers that a variant runs with.
    pub fn tuning(self, variant: &Variant) -> Tuning {
        Tuning { xray: usize::from(variant.xray), ..(self.0.tuning)(variant) }
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

impl PartialEq for Arch {
    fn eq(&self, other: &Arch) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Arch {}

impl Hash for Arch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
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
        assert_eq!(Arch::of_gpu("NVIDIA H200", 9, 0).unwrap(), Arch::SM_90A);
        assert_eq!(Arch::of_gpu("RTX 5090", 12, 0).unwrap(), Arch::SM_120A);
        let message = Arch::of_gpu("Tesla T4", 7, 5).unwrap_err().to_string();
        assert!(message.contains("Tesla T4") && message.contains("7.5"), "{message}");
    }

    #[test]
    fn the_fullest_quarter_limits_the_registers() {
        // The compiler's own limits for blocks of these sizes.
        for (threads, registers) in [(32, 255), (256, 255), (512, 128), (544, 96), (1024, 64)] {
            assert_eq!(Arch::SM_90A.registers_max(threads), registers, "{threads} threads");
        }
    }
}
