//! One launch a step, all blocks resident: a launch whose blocks do not all fit is refused.

use super::super::device::gpu_error;
use super::{Param, Strategy};
use crate::EngineError;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use monolith_abi::kernel::StepArgs;
use monolith_abi::step::Step;
use std::sync::Arc;

/// The strategy.
#[derive(Debug)]
pub(super) struct Cooperative {
    /// The kernel for texts so short that every block of a KV head attends to all positions.
    pub(super) local: CudaFunction,
    /// The one for longer texts.
    pub(super) split: CudaFunction,
    pub(super) config: LaunchConfig,
    pub(super) step: Step,
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
        let is_local = self.step.splits_at(args.position as usize) == 1;
        let kernel = if is_local { &self.local } else { &self.split };
        let mut launch = stream.launch_builder(kernel);
        launch.arg(&param);
        // SAFETY: the parameter is the kernel's one parameter, its layout asserted on both sides;
        // the caller answers for what its addresses point to. Cooperative: all blocks are resident,
        // or the launch is refused.
        unsafe { launch.launch_cooperative(self.config) }.map_err(gpu_error)?;
        Ok(())
    }
}
