//! Opens the GPU, loads kernels, and reads the record of a wait that timed out.

use crate::kernels::shared::WAITS;
use crate::kernels::{Module, Store};
use crate::{Options, ProbeError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DriverError, LaunchConfig,
};
use cudarc::nvrtc::Ptx;
use monolith_kernels::Arch;
use std::sync::Arc;

/// Timeout of a wait in a kernel: ten thousand times the usual duration.
pub(crate) const PATIENCE_NS: u64 = 1_000_000_000;

/// Words of bound.cuh's `Control`.
const CONTROL_WORDS: usize = 8;

pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) name: String,
    pub(crate) arch: Arch,
    pub(crate) multiprocessors: usize,
    pub(crate) l2_bytes: usize,
    pub(crate) origin: String,
    store: Store,
}

/// Returns the CUDA version that the driver supports (13000 is 13.0), or `None` without a driver.
pub(crate) fn driver_version() -> Option<i32> {
    // SAFETY: only tries to open the library by name.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let mut version = 0;
    // SAFETY: the library is there, and the call writes one integer.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(version)
}

impl Gpu {
    pub(crate) fn open(options: &Options) -> Result<Gpu, ProbeError> {
        monolith_kernels::check_driver(driver_version()).map_err(ProbeError::NoDriver)?;
        let device = options.device;
        let count = match CudaContext::device_count() {
            Ok(count) => count.max(0) as usize,
            // Without any GPU the driver fails to count them.
            Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
            Err(error) => return Err(error.into()),
        };
        if device >= count {
            return Err(ProbeError::NoGpu { device, count });
        }
        let context = CudaContext::new(device)?;
        let name = context.name()?;
        let (major, minor) = context.compute_capability()?;
        let arch = Arch::of_gpu(&name, major as u32, minor as u32).map_err(ProbeError::Kernels)?;
        let store = Store::open(options.cubins.as_deref(), arch)?;
        let attribute = |which| context.attribute(which).map(|value| value.max(0) as usize);
        Ok(Gpu {
            stream: context.new_stream()?,
            name,
            arch,
            multiprocessors: attribute(
                CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )?,
            l2_bytes: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            origin: store.describe(),
            context,
            store,
        })
    }

    pub(crate) fn load(&self, module: Module) -> Result<Arc<CudaModule>, ProbeError> {
        let cubin = self.store.get(module, self.arch)?;
        Ok(self.context.load_module(Ptx::from_binary(cubin))?)
    }

    /// Returns a launch with one block per multiprocessor: its dynamic shared memory, more than
    /// half of the multiprocessor's, leaves no room for a second block.
    pub(crate) fn one_block_each(
        &self,
        kernel: &CudaFunction,
        threads: u32,
    ) -> Result<LaunchConfig, ProbeError> {
        let bytes = self.arch.shared_bytes_max() / 2 + 4096;
        allow_shared(kernel, bytes)?;
        Ok(self.blocks(self.multiprocessors, threads, bytes))
    }

    pub(crate) fn blocks(&self, blocks: usize, threads: u32, shared_bytes: u32) -> LaunchConfig {
        LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: shared_bytes,
        }
    }

    pub(crate) fn control(&self) -> Result<Control, ProbeError> {
        Ok(Control(self.stream.alloc_zeros(CONTROL_WORDS)?))
    }
}

/// Allows the kernel this much dynamic shared memory.
pub(crate) fn allow_shared(kernel: &CudaFunction, bytes: u32) -> Result<(), ProbeError> {
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    Ok(kernel.set_attribute(dynamic, bytes as i32)?)
}

/// The device memory in which a kernel records the wait that timed out.
pub(crate) struct Control(pub(crate) CudaSlice<u32>);

impl Control {
    /// Waits for the launch; fails if one of its waits timed out.
    pub(crate) fn check(&self, stream: &Arc<CudaStream>) -> Result<(), ProbeError> {
        let words = stream.clone_dtoh(&self.0)?;
        stream.synchronize()?;
        match words[..] {
            [_, claimed, block, what, index, expected, seen, ..] if claimed != 0 => {
                let what = WAITS.get(what as usize).copied().unwrap_or("something unknown, number");
                Err(ProbeError::Stuck { block, what, index, expected, seen })
            }
            _ => Ok(()),
        }
    }
}
