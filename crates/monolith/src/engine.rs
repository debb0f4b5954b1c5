//! From what the user asks for to a loaded engine.

use crate::exit::{Code, Exit, OrExit};
use crate::options::{EngineArgs, EngineChoice};
use crate::progress::Progress;
use crate::text_out::say;
use monolith_engine::cpu::simd::Simd;
use monolith_engine::cuda::{self, UsableGpu};
use monolith_engine::{CpuEngine, CpuOptions, CudaEngine, CudaOptions, Engine, EngineError};
use monolith_kernels::Variant;
use monolith_pack::Pack;
use std::sync::Arc;

/// The engines to try, in order.
#[derive(Clone)]
pub struct Options {
    cuda: Option<(CudaOptions, UsableGpu)>,
    cpu: Option<CpuOptions>,
}

/// Chooses the engine, before anything is read or computed. With `--engine auto`, an option of one
/// engine chooses that engine.
///
/// # Errors
/// Code 3 for an engine that cannot run here; code 2 for a SIMD level that this processor does not
/// support, for an unknown variant, and for options of another engine.
pub fn options(args: &EngineArgs) -> Result<Options, Exit> {
    let for_cuda = args.variant.is_some() || args.blocks.is_some();
    if for_cuda && args.engine == EngineChoice::Cpu {
        let what = "--variant and --blocks are options of the CUDA engine";
        return Err(Exit::message(Code::Usage, what));
    }
    let mut cuda_options = CudaOptions { context: args.context, ..CudaOptions::default() };
    if let Some(name) = &args.variant {
        cuda_options.variant = Some(Variant::find(name).or_exit(Code::Usage)?);
    }
    cuda_options.blocks = args.blocks;
    let must_be_cuda = for_cuda || args.engine == EngineChoice::Cuda;
    let for_cpu = args.threads.is_some() || args.simd.is_some();
    let gpu = match args.engine {
        _ if must_be_cuda => Some(cuda::usable(0).or_exit(Code::NoEngine)?),
        EngineChoice::Auto if !for_cpu => cuda::usable(0).ok(),
        _ => None,
    };
    let cpu = if must_be_cuda { None } else { Some(cpu_options(args)?) };
    Ok(Options { cuda: gpu.map(|gpu| (cuda_options, gpu)), cpu })
}

impl Options {
    /// Keeps only the first engine: a measurement must not fall back to another one.
    pub fn only_first(mut self) -> Options {
        if self.cuda.is_some() {
            self.cpu = None;
        }
        self
    }

    /// Returns the same engines, able to record steps. The CPU engine always can.
    pub fn recording(mut self) -> Options {
        if let Some((cuda, _)) = &mut self.cuda {
            cuda.records = true;
        }
        self
    }

    /// Returns the GPU, if the first engine runs on one.
    pub fn gpu(&self) -> Option<&UsableGpu> {
        self.cuda.as_ref().map(|(_, gpu)| gpu)
    }

    /// Loads the first engine, with another context if one is given.
    ///
    /// # Errors
    /// The engine's own.
    pub fn load_first(
        &self,
        pack: Arc<Pack>,
        context: Option<usize>,
    ) -> Result<Box<dyn Engine>, EngineError> {
        let _progress = Progress::new("loading the engine");
        if let Some((options, _)) = &self.cuda {
            let context = context.or(options.context);
            let options = CudaOptions { context, ..options.clone() };
            return Ok(Box::new(CudaEngine::load(pack, &options)?));
        }
        let options = self.cpu.clone().unwrap_or_default();
        let context = context.or(options.context);
        Ok(Box::new(CpuEngine::load(pack, &CpuOptions { context, ..options })?))
    }
}

fn cpu_options(args: &EngineArgs) -> Result<CpuOptions, Exit> {
    let mut options = CpuOptions { context: args.context, ..CpuOptions::default() };
    if let Some(threads) = args.threads {
        options.threads = threads;
    }
    if let Some(name) = &args.simd {
        options.simd = simd(name)?;
    }
    Ok(options)
}

/// Loads the first engine that can be loaded.
///
/// # Errors
/// Code 2 for a context longer than the model's, code 3 for a GPU that cannot run the model.
pub fn load(options: &Options, pack: Arc<Pack>) -> Result<Box<dyn Engine>, Exit> {
    let _progress = Progress::new("loading the engine");
    if let Some((cuda, _)) = &options.cuda {
        match (CudaEngine::load(pack.clone(), cuda), &options.cpu) {
            (Ok(engine), _) => return Ok(Box::new(engine)),
            (Err(why), Some(_)) if another_can(&why) => {
                say(&format!("monolith: using the CPU engine: {why}"));
            }
            (Err(error), _) => return Err(exit_of(error)),
        }
    }
    let cpu = options.cpu.clone().unwrap_or_default();
    Ok(Box::new(CpuEngine::load(pack, &cpu).map_err(exit_of)?))
}

/// Returns an engine's error with its exit code.
pub fn exit_of(error: EngineError) -> Exit {
    let code = match &error {
        EngineError::ContextSize { .. }
        | EngineError::ThreadCount { .. }
        | EngineError::BlockCount { .. } => Code::Usage,
        EngineError::Interrupted { .. } => Code::Interrupted,
        error if error.is_no_engine() => Code::NoEngine,
        _ => Code::Failure,
    };
    Exit::new(code, error)
}

/// Whether the CPU engine may run a model that the CUDA engine could not load.
fn another_can(error: &EngineError) -> bool {
    let no_kernel = matches!(
        error,
        EngineError::Kernel(_) | EngineError::Driver(_) | EngineError::UnfitPack(_)
    );
    no_kernel || error.is_no_engine()
}

fn simd(name: &str) -> Result<Simd, Exit> {
    let available = Simd::available();
    let names: Vec<&str> = available.iter().map(|level| level.name()).collect();
    available
        .iter()
        .find(|level| level.name() == name)
        .copied()
        .ok_or_else(|| anyhow::anyhow!("--simd {name}: this processor has {}", names.join(", ")))
        .or_exit(Code::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_kernels::{KernelError, Shape};
    use monolith_model::Config;

    /// An unfit pack or number has another exit code than a machine without a GPU.
    #[test]
    fn every_reason_has_its_code() {
        let narrow = Config { hidden: 100, ..Config::qwen3_0_6b() };
        let shape = Shape::of(&narrow).expect_err("no kernel runs this shape");
        let gpu = || String::from("a GPU");
        for (error, code) in [
            (KernelError::NoDriver.into(), 3),
            (KernelError::DriverTooOld { found: 12000 }.into(), 3),
            (KernelError::NoKernelForGpu { gpu: gpu(), major: 8, minor: 0 }.into(), 3),
            (KernelError::from(shape).into(), 1),
            (KernelError::Compile { log: String::new() }.into(), 1),
            (EngineError::UnfitPack("another format".into()), 1),
            (EngineError::BlockCount { blocks: 500, max: 132, gpu: gpu() }, 2),
            (EngineError::ContextSize { context: 0, max: 8 }, 2),
            (EngineError::ThreadCount { threads: 9999, max: 4096 }, 2),
            (EngineError::Interrupted { done: 3, all: 9 }, 130),
            (EngineError::NotANumber, 1),
        ] {
            let said = error.to_string();
            assert_eq!(exit_of(error).code() as i32, code, "{said}");
        }
    }
}
