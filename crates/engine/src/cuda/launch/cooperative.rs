//! One launch a step, all blocks resident: a launch whose blocks do not all fit is refused.

use super::super::device::gpu_error;
use super::{Param, Strategy};
use crate::EngineError;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use monolith_abi::kernel::StepArgs;
use std::sync::Arc;

/// The strategy.
#[derive(Debug)]
pub(super) struct Cooperative {
    pub(super) function: CudaFunction,
    pub(super) config: LaunchConfig,
}

impl Strategy for Cooperative {
    fn launches_per_step(&self) -> u32 {
        1
    }

    unsafe fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        args: &StepArgs,
    ) -> Result<(), EngineError> {
        let param = Param(*args);
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&param);
        // SAFETY: the parameter is the kernel's one parameter, its layout asserted on both sides;
        // the caller answers for what its addresses point to. Cooperative: all blocks are resident,
        // or the launch is refused.
        unsafe { launch.launch_cooperative(self.config) }.map_err(gpu_error)?;
        Ok(())
    }
}
