//! A kernel a phase: all of a step's in a graph, or launched one after the other. What differs from
//! step to step lies in device memory, and a step makes it the next step's, so that a token is one
//! launch of a graph.

use super::super::device::gpu_error;
use super::super::epoch;
use super::super::params::PhaseParam;
use super::{Param, Strategy};
use crate::EngineError;
use cudarc::driver::sys::{
    self, CUgraphInstantiate_flags, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchConfig, CUstreamCaptureMode,
};
use cudarc::driver::{
    CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
};
use monolith_abi::kernel::{PhaseArgs, StepArgs, StepWords};
use monolith_abi::step::Step;
use std::fmt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The kernels of a step, and how they are launched.
pub(super) struct Chain {
    /// Of qkv, attention and the O projection of short texts, the same of long ones, gate and up,
    /// down, and the head.
    pub(super) kernels: [CudaFunction; 8],
    pub(super) config: LaunchConfig,
    pub(super) layers: u32,
    /// Whether attention is a phase of its own: for short texts, too.
    pub(super) is_apart: bool,
    /// Whether a kernel's blocks may start before the kernel before it has ended.
    pub(super) overlaps: bool,
    /// Whether a step is a launch of a graph.
    pub(super) is_graph: bool,
}

/// The steps of a row.
pub(super) struct Phases {
    chain: Chain,
    /// What the kernels were given, or are: all but what steps change.
    args: StepArgs,
    /// Of short texts and of long ones; empty if the kernels are launched one after the other.
    graphs: Vec<CudaGraph>,
    words: CudaSlice<u8>,
    /// What the words are before the next launch, if that is known.
    held: Option<StepWords>,
    step: Step,
}

// SAFETY: the graphs' handles may be used by any thread, one at a time; cudarc binds the context to
// the calling thread before it uses them, and `&mut self` is needed to launch.
unsafe impl Send for Phases {}

impl fmt::Debug for Phases {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Phases").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Phases {
    /// Captures the graphs. Nothing runs.
    pub(super) fn new(
        chain: Chain,
        step: &Step,
        stream: &Arc<CudaStream>,
        args: &StepArgs,
    ) -> Result<Phases, EngineError> {
        let words = stream.alloc_zeros(size_of::<StepWords>()).map_err(gpu_error)?;
        let address = words.device_ptr(stream).0;
        let texts: &[bool] = if chain.is_graph { &[false, true] } else { &[] };
        let capture = |&is_long| chain.capture(stream, args, address, is_long).map_err(gpu_error);
        let graphs = texts.iter().map(capture).collect::<Result<_, _>>()?;
        Ok(Phases { chain, args: *args, graphs, words, held: None, step: *step })
    }
}

/// What a step needs in device memory.
fn words_of(args: &StepArgs) -> StepWords {
    StepWords {
        logits: args.logits,
        epoch: args.epoch,
        position: args.position,
        flags: args.flags,
        eos_count: args.eos_count,
        eos: args.eos,
        arrived: 0,
        reserved: 0,
    }
}

/// What a step leaves there, `head::advance` in the kernels' sources.
fn words_behind(words: &StepWords) -> Option<StepWords> {
    let epoch = epoch::next(words.epoch)?;
    Some(StepWords { epoch, position: words.position + 1, ..*words })
}

impl Strategy for Phases {
    /// Of short texts.
    fn launches_per_step(&self) -> u32 {
        self.chain.layers * (4 + u32::from(self.chain.is_apart)) + 1
    }

    unsafe fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        args: &StepArgs,
    ) -> Result<(), EngineError> {
        let words = words_of(args);
        if self.chain.is_graph && self.chain.overlaps {
            // Not two launches of such a graph at a time: with some in flight, the driver (580.159)
            // ended the process by SIGSEGV; one after the other they ran (notes/ablation.md).
            stream.synchronize().map_err(gpu_error)?;
        }
        if self.held.take() != Some(words) {
            stream.memcpy_htod(words.as_bytes(), &mut self.words).map_err(gpu_error)?;
        }
        let is_long = self.step.splits_at(args.position as usize) > 1;
        match self.graphs.get(usize::from(is_long)) {
            Some(graph) => graph.launch().map_err(gpu_error)?,
            None => {
                let address = self.words.device_ptr(stream).0;
                self.chain.launch_all(stream, &self.args, address, is_long).map_err(gpu_error)?;
            }
        }
        self.held = words_behind(&words);
        Ok(())
    }
}

impl Chain {
    /// Captures a step's launches.
    fn capture(
        &self,
        stream: &Arc<CudaStream>,
        args: &StepArgs,
        words: u64,
        is_long: bool,
    ) -> Result<CudaGraph, DriverError> {
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let launched = self.launch_all(stream, args, words, is_long);
        // Ended in any case, or the stream would capture what follows.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0));
        launched?;
        let none = DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        let graph = graph?.ok_or(none)?;
        graph.upload()?;
        Ok(graph)
    }

    /// Puts a step's kernels on the stream.
    fn launch_all(
        &self,
        stream: &Arc<CudaStream>,
        args: &StepArgs,
        words: u64,
        is_long: bool,
    ) -> Result<(), DriverError> {
        let [qkv, attention, o_proj, split_attention, split_o_proj, gate_up, down, head] =
            &self.kernels;
        let attends: &[&CudaFunction] = match (is_long, self.is_apart) {
            (true, _) => &[split_attention, split_o_proj],
            (false, true) => &[attention, o_proj],
            (false, false) => &[attention],
        };
        let mut is_first = true;
        let mut launch = |kernel: &CudaFunction, layer: u32| {
            let of = PhaseArgs { step: words, layer, reserved: 0 };
            self.launch(stream, kernel, args, of, self.overlaps && !std::mem::take(&mut is_first))
        };
        for layer in 0..self.layers {
            launch(qkv, layer)?;
            for kernel in attends.iter().copied().chain([gate_up, down]) {
                launch(kernel, layer)?;
            }
        }
        launch(head, self.layers)
    }

    /// Launches one kernel on the stream, which may capture it.
    fn launch(
        &self,
        stream: &Arc<CudaStream>,
        kernel: &CudaFunction,
        args: &StepArgs,
        of: PhaseArgs,
        overlaps: bool,
    ) -> Result<(), DriverError> {
        let LaunchConfig { grid_dim, block_dim, shared_mem_bytes } = self.config;
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: grid_dim.0,
            gridDimY: grid_dim.1,
            gridDimZ: grid_dim.2,
            blockDimX: block_dim.0,
            blockDimY: block_dim.1,
            blockDimZ: block_dim.2,
            sharedMemBytes: shared_mem_bytes,
            hStream: stream.cu_stream(),
            attrs: &mut attribute,
            numAttrs: u32::from(overlaps),
        };
        let (mut args, mut of) = (Param(*args), PhaseParam(of));
        let mut parameters = [(&raw mut args).cast(), (&raw mut of).cast()];
        stream.context().bind_to_thread()?;
        // SAFETY: the parameters are the kernel's two, their layouts asserted on both sides; the
        // call copies them and the attribute. What is captured runs when the graph does; the caller
        // of `Strategy::launch` answers for what the addresses point to.
        unsafe {
            sys::cuLaunchKernelEx(
                &config,
                kernel.cu_function(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_behind_a_step_are_the_next_steps() {
        let args = StepArgs { epoch: 0xfffe, position: 7, flags: 3, ..StepArgs::default() };
        let words = words_of(&args);
        let next = words_behind(&words).unwrap();
        assert_eq!(next, StepWords { epoch: 0xffff, position: 8, ..words });
        // The number whose 16 bits are zero is left out.
        assert_eq!(words_behind(&next).unwrap().epoch, 0x1_0001);
    }
}
