//! How a step is put on the stream: a file for each [`Launch`] of the variant table.

mod cooperative;
mod phases;

use super::params::Param;
use crate::EngineError;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig};
use monolith_abi::kernel::StepArgs;
use monolith_abi::step::{Step, shared_bytes};
use monolith_abi::{Attention, Launch};
use monolith_kernels::Variant;
use std::fmt::Debug;
use std::sync::Arc;

/// Puts steps on a stream, in order.
pub(super) trait Strategy: Debug + Send {
    /// Kernel launches of one step, up to the positions that one block attends to.
    fn launches_per_step(&self) -> u32;

    /// Launches one step on the stream.
    ///
    /// # Safety
    /// Every address in the parameters is of memory that the caller holds until the stream is
    /// synchronized, and the position and the tokens lie within that memory. The addresses, and
    /// what else a step does not change, are those that the strategy was made with.
    unsafe fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        args: &StepArgs,
    ) -> Result<(), EngineError>;
}

/// The strategy of a row, whose kernels these are. The parameters are a step's: what steps change
/// may be missing.
pub(super) fn strategy(
    variant: &Variant,
    kernels: Vec<CudaFunction>,
    step: &Step,
    blocks: usize,
    stream: &Arc<CudaStream>,
    args: &StepArgs,
) -> Result<Box<dyn Strategy>, EngineError> {
    let config = LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (step.sizes.threads as u32, 1, 1),
        shared_mem_bytes: shared_bytes(step) as u32,
    };
    Ok(match variant.launch {
        Launch::Cooperative => {
            let [local, split] = fitting(kernels)?;
            Box::new(cooperative::Cooperative { local, split, config, step: *step })
        }
        Launch::Graph | Launch::DependentGraph | Launch::Dependent => {
            let chain = phases::Chain {
                kernels: fitting(kernels)?,
                config,
                layers: step.dims.layers as u32,
                is_apart: variant.attention == Attention::Apart,
                overlaps: variant.launch != Launch::Graph,
                is_graph: variant.launch != Launch::Dependent,
            };
            Box::new(phases::Phases::new(chain, step, stream, args)?)
        }
    })
}

/// The kernels that a strategy launches.
fn fitting<const N: usize>(kernels: Vec<CudaFunction>) -> Result<[CudaFunction; N], EngineError> {
    kernels.try_into().map_err(|found: Vec<CudaFunction>| {
        EngineError::UnfitPack(format!("the row has {} kernels, not {N}", found.len()))
    })
}
