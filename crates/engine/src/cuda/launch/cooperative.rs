//! One launch a step, all blocks resident: a launch whose blocks do not all fit is refused.

use super::super::device::gpu_error;
use super::{Param, StepKernel, Strategy};
use crate::EngineError;
use cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use monolith_abi::kernel::StepArgs;
use std::sync::Arc;

/// The strategy.
#[derive(Debug)]
pub(super) struct Cooperative {
    kernel: StepKernel,
    config: LaunchConfig,
}

impl Cooperative {
    pub(super) fn new(kernel: StepKernel) -> Cooperative {
        let config = LaunchConfig {
            grid_dim: (kernel.blocks, 1, 1),
            block_dim: (kernel.threads, 1, 1),
            shared_mem_bytes: kernel.shared_bytes,
        };
        Cooperative { kernel, config }
    }
}

impl Strategy for Cooperative {
    fn launches_per_step(&self) -> u32 {
        1
    }

    unsafe fn launch(&self, stream: &Arc<CudaStream>, args: &StepArgs) -> Result<(), EngineError> {
        let param = Param(*args);
        let mut launch = stream.launch_builder(&self.kernel.function);
        launch.arg(&param);
        // SAFETY: the parameter is the kernel's one parameter, its layout asserted on both sides;
        // the caller answers for what its addresses point to. Cooperative: all blocks are resident,
        // or the launch is refused.
        unsafe { launch.launch_cooperative(self.config) }.map_err(gpu_error)?;
        Ok(())
    }
}
