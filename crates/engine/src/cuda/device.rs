//! Finds the GPU, loads the kernel, and holds the host memory for a fault record.

use crate::EngineError;
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, PinnedHostSlice};
use cudarc::nvrtc::Ptx;
use monolith_abi::kernel::{FAULT_FILLED, FaultRecord};
use monolith_abi::step::{Step, shared_bytes};
use monolith_kernels::{Arch, KernelError, Shape, Variant};
use monolith_model::Config;
use std::sync::Arc;

/// A GPU with the kernel loaded.
pub(super) struct Gpu {
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
    /// The row's kernels, in its order.
    pub(super) kernels: Vec<CudaFunction>,
    pub(super) kernel_key: String,
    pub(super) cubin_sha256: String,
    pub(super) nvrtc: Option<String>,
    pub(super) name: String,
    pub(super) multiprocessors: usize,
    pub(super) clock_hz: u64,
    pub(super) step: Step,
}

/// Converts an error of the driver to ours.
pub(super) fn gpu_error(error: DriverError) -> EngineError {
    EngineError::Driver(error)
}

/// Returns the CUDA version that the driver supports (13000 is 13.0), or `None` without a driver.
pub(super) fn driver_version() -> Option<i32> {
    // SAFETY: only tries to open the library by name.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let mut version = 0;
    // SAFETY: the library is there, and the call writes one integer.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(version)
}

/// A supported GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableGpu {
    /// Its name, as the driver reports it.
    pub name: String,
    /// The architecture that kernels are compiled for, for example `sm_90a`.
    pub arch: &'static str,
    /// The CUDA version that the driver supports (13000 is 13.0).
    pub driver_cuda: i32,
}

/// Finds the driver, the GPU and whether there are kernels for it; compiles and allocates nothing.
///
/// # Errors
/// The message says what is missing, and what helps.
pub fn usable(device: usize) -> Result<UsableGpu, EngineError> {
    let (context, name, arch) = find(device)?;
    drop(context);
    Ok(UsableGpu { name, arch: arch.name(), driver_cuda: driver_version().unwrap_or(0) })
}

/// Returns the GPU's context, its name, and the architecture of the kernels that run on it.
fn find(device: usize) -> Result<(Arc<CudaContext>, String, Arch), EngineError> {
    monolith_kernels::check_driver(driver_version())?;
    let context = CudaContext::new(device).map_err(EngineError::Gpu)?;
    let name = context.name().map_err(EngineError::Gpu)?;
    let (major, minor) = context.compute_capability().map_err(EngineError::Gpu)?;
    let arch = Arch::of_gpu(&name, major as u32, minor as u32)?;
    Ok((context, name, arch))
}

/// A multiprocessor's memory, in percent of what can be shared memory.
const CARVEOUT_ALL_SHARED: i32 = 100;

/// Finds the GPU and loads the kernel for it.
pub(super) fn open(device: usize, variant: &Variant, config: &Config) -> Result<Gpu, EngineError> {
    let shape = Shape::of(config).map_err(KernelError::from)?;
    let (context, name, arch) = find(device)?;
    let cubin = monolith_kernels::load(arch, &shape, variant)?;
    let step = variant.step(arch, &shape);
    let module = context.load_module(Ptx::from_binary(cubin.bytes.to_vec())).map_err(gpu_error)?;
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let carveout = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    let find = |name: &&str| {
        let kernel = module.load_function(name)?;
        kernel.set_attribute(dynamic, shared_bytes(&step) as i32)?;
        if variant.is_by_phase() {
            // The same of all kernels, or an SM would have to be empty between two of them.
            kernel.set_attribute(carveout, CARVEOUT_ALL_SHARED)?;
        }
        Ok(kernel)
    };
    let kernels: Result<Vec<_>, _> = variant.kernels().iter().map(find).collect();
    let kernels = kernels.map_err(gpu_error)?;
    let count = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let multiprocessors = context.attribute(count).map_err(gpu_error)? as usize;
    let rate = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
    let clock_khz = context.attribute(rate).map_err(gpu_error)?;
    Ok(Gpu {
        clock_hz: 1000 * u64::from(clock_khz.unsigned_abs()),
        stream: context.new_stream().map_err(gpu_error)?,
        kernels,
        cubin_sha256: cubin.sha256(),
        nvrtc: cubin.info.compiler,
        kernel_key: cubin.key,
        name,
        multiprocessors,
        step,
        context,
    })
}

/// Words of a fault record.
const RECORD_WORDS: usize = size_of::<FaultRecord>() / 4;

/// Host memory to which the kernel writes a fault.
#[derive(Debug)]
pub(super) struct FaultWords(PinnedHostSlice<u32>);

impl FaultWords {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<FaultWords, EngineError> {
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the memory is written to before it is read, two lines below.
        let mut memory =
            unsafe { context.alloc_pinned_with_flags(RECORD_WORDS, flags) }.map_err(gpu_error)?;
        memory.as_mut_slice().map_err(gpu_error)?.fill(0);
        Ok(FaultWords(memory))
    }

    /// With unified addressing, which every supported GPU has, host and device addresses are equal.
    pub(super) fn device_address(&self) -> u64 {
        self.0.as_ptr().map_or(0, |address| address as u64)
    }

    /// Returns the record, once the kernel has filled it.
    pub(super) fn read(&self) -> Option<FaultRecord> {
        let memory = self.0.as_slice().ok()?;
        let mut words = [0_u32; RECORD_WORDS];
        for (to, from) in words.iter_mut().zip(memory) {
            // SAFETY: the reference is valid; the read is volatile since a kernel writes there.
            *to = unsafe { std::ptr::from_ref(from).read_volatile() };
        }
        let record: FaultRecord = zerocopy::transmute!(words);
        (record.state == FAULT_FILLED).then_some(record)
    }
}

/// Uploads cosine and sine of every angle, `[context][head_dim / 2][2]`, computed in f64 and
/// rounded once.
pub(super) fn rope_table(config: &Config, context: usize) -> Vec<f32> {
    let table = crate::rope::RopeTable::new(config, context);
    table.angles().iter().flat_map(|&(cos, sin)| [cos, sin]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    /// The messages themselves are the driver's, which may not be there.
    #[test]
    fn what_the_driver_said_is_the_source() {
        let said = DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE);
        let (no_gpu, refused) = (EngineError::Gpu(said), gpu_error(said));
        assert!(no_gpu.is_no_engine() && !refused.is_no_engine());
        for error in [no_gpu, refused] {
            let source = error.source().and_then(|source| source.downcast_ref::<DriverError>());
            assert!(source == Some(&said));
        }
    }
}
