//! The X-ray's buffers in device memory; [`decode`] says what lies in them.

mod decode;

pub(super) use decode::{blocks_from, timer_step_ns};

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use monolith_abi::xray::XrayBlock;
use std::sync::Arc;

/// The buffers of recording steps: one set for the chosen step, a second set that all other steps
/// share, so that every step of a loop does the same work. Words of 64 bits, the alignment of
/// [`XrayBlock`].
#[derive(Debug)]
pub(super) struct Recording {
    chosen: CudaSlice<u64>,
    others: CudaSlice<u64>,
}

impl Recording {
    pub(super) fn new(stream: &Arc<CudaStream>, blocks: usize) -> Result<Recording, DriverError> {
        let words = blocks * size_of::<XrayBlock>() / size_of::<u64>();
        Ok(Recording { chosen: stream.alloc_zeros(words)?, others: stream.alloc_zeros(words)? })
    }

    /// Returns the buffers' address for a step.
    pub(super) fn address(&self, stream: &Arc<CudaStream>, chosen: bool) -> u64 {
        let buffer = if chosen { &self.chosen } else { &self.others };
        buffer.device_ptr(stream).0
    }

    /// Reads the chosen step's buffers.
    pub(super) fn words(&self, stream: &Arc<CudaStream>) -> Result<Vec<u64>, DriverError> {
        stream.clone_dtoh(&self.chosen)
    }
}
