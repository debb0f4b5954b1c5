//! A kernel that fills the shared memory of every SM with NaN. What a launch finds in shared memory
//! is what launches before it left there: a kernel that reads what it did not write meets the NaN.

use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use monolith_kernels::nvrtc::{Nvrtc, Search};
use monolith_kernels::source::ENTRY;
use monolith_kernels::{Arch, Sources};
use std::sync::Arc;

/// The largest SM id that is counted.
const SM_IDS: usize = 1024;

/// The kernel, loaded.
pub struct Poison {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    config: LaunchConfig,
    marks: CudaSlice<u32>,
}

impl Poison {
    /// Compiles and loads the kernel for the first GPU.
    pub fn new() -> Poison {
        let context = CudaContext::new(0).expect("a GPU");
        let (major, minor) = context.compute_capability().expect("a capability");
        let name = context.name().expect("a name");
        let arch = Arch::of_gpu(&name, major as u32, minor as u32).expect("a known architecture");
        let nvrtc = Nvrtc::load(&Search::from_env());
        let nvrtc = nvrtc.unwrap_or_else(|error| panic!("{}", error.wanted("the poison kernel")));
        let sources = Sources::new([(ENTRY.to_owned(), include_str!("poison.cu").to_owned())]);
        let options = [format!("-arch={arch}"), "-default-device".to_owned()];
        let compiled = nvrtc.compile(&sources, arch, &options).expect("it compiles");
        let module = context.load_module(Ptx::from_binary(compiled.cubin)).expect("it loads");
        let kernel = module.load_function("poison_shared").expect("the kernel");
        let attribute = |which| context.attribute(which).expect("an attribute") as u32;
        let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let bytes = attribute(most);
        let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        kernel.set_attribute(dynamic, bytes as i32).expect("it fits");
        // A block has all shared memory of an SM, and all blocks are resident at the same time
        // (cooperative launch): so every SM has one.
        let blocks = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        let stream = context.new_stream().expect("a stream");
        let marks = stream.alloc_zeros(SM_IDS).expect("memory");
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (512, 1, 1),
            shared_mem_bytes: bytes,
        };
        Poison { stream, kernel, config, marks }
    }

    /// Fills the shared memory of every SM with NaN.
    pub fn fill(&mut self) {
        let words = self.config.shared_mem_bytes / 4;
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(&mut self.marks).arg(&words);
        // SAFETY: the kernel's parameters are a buffer with room for every SM's id, and the number
        // of words of shared memory that the launch gives a block.
        unsafe { launch.launch_cooperative(self.config) }.expect("it is launched");
        self.stream.synchronize().expect("it ends");
    }

    /// SMs that were filled at least `times` times.
    pub fn filled(&self, times: u32) -> usize {
        let marks = self.stream.clone_dtoh(&self.marks).expect("memory can be read");
        marks.iter().filter(|&&mark| mark >= times).count()
    }

    /// SMs of the GPU.
    pub fn multiprocessors(&self) -> usize {
        self.config.grid_dim.0 as usize
    }
}
