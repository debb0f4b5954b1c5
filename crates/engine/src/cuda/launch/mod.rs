//! How a step is put on the stream: a file for each [`Launch`] of the variant table.

mod cooperative;

use super::device::Kernels;
use super::params::Param;
use crate::EngineError;
use cudarc::driver::{CudaStream, LaunchConfig};
use monolith_abi::Launch;
use monolith_abi::kernel::StepArgs;
use monolith_abi::step::{Step, shared_bytes};
use std::fmt::Debug;
use std::sync::Arc;

/// Puts steps on a stream, in order.
pub(super) trait Strategy: Debug + Send {
    /// Kernel launches of one step.
    fn launches_per_step(&self) -> u32;

    /// Launches one step on the stream.
    ///
    /// # Safety
    /// Every address in the parameters is of memory that the caller holds until the stream is
    /// synchronized, and the position and the tokens lie within that memory.
    unsafe fn launch(&self, stream: &Arc<CudaStream>, args: &StepArgs) -> Result<(), EngineError>;
}

/// The strategy of a row.
pub(super) fn strategy(
    launch: Launch,
    kernels: Kernels,
    step: &Step,
    blocks: usize,
) -> Box<dyn Strategy> {
    let config = LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (step.sizes.threads as u32, 1, 1),
        shared_mem_bytes: shared_bytes(step) as u32,
    };
    match launch {
        Launch::Cooperative => Box::new(cooperative::Cooperative { kernels, config, step: *step }),
    }
}
