//! From what the user asks for to a loaded engine.

use crate::args::{EngineArgs, EngineChoice};
use crate::exit::{Code, Exit, OrExit};
use crate::text_out::say;
use monolith_engine::cpu::simd::Simd;
use monolith_engine::{CpuEngine, CpuOptions, CudaEngine, CudaOptions, Engine, EngineError, cuda};
use monolith_pack::Pack;
use std::sync::Arc;

/// The engines to try, in order.
pub struct Options {
    cuda: Option<CudaOptions>,
    cpu: Option<CpuOptions>,
}

/// Chooses the engine, before anything is read or computed. Options of the CPU engine, and an
/// X-ray, choose it where the choice is ours.
///
/// # Errors
/// Code 3 for an engine that cannot run here, code 2 for a SIMD level that this processor lacks.
pub fn options(args: &EngineArgs, xray: bool) -> Result<Options, Exit> {
    let gpu = match args.engine {
        EngineChoice::Cuda => Some(cuda::usable(0).or_exit(Code::NoEngine)?),
        EngineChoice::Auto if args.threads.is_none() && args.simd.is_none() && !xray => {
            cuda::usable(0).ok()
        }
        EngineChoice::Auto | EngineChoice::Cpu => None,
    };
    if xray && gpu.is_some() {
        let what = "the CUDA engine records no X-ray yet: use --engine cpu";
        return Err(Exit::message(Code::NoEngine, what));
    }
    let cuda = gpu.map(|_| CudaOptions { context: args.context, ..CudaOptions::default() });
    let cpu = if args.engine == EngineChoice::Cuda { None } else { Some(cpu_options(args)?) };
    Ok(Options { cuda, cpu })
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
/// Code 2 for a context that this model does not have, code 3 for a GPU that cannot run it.
pub fn load(options: &Options, pack: Arc<Pack>) -> Result<Box<dyn Engine>, Exit> {
    if let Some(cuda) = &options.cuda {
        match (CudaEngine::load(pack.clone(), cuda), &options.cpu) {
            (Ok(engine), _) => return Ok(Box::new(engine)),
            (Err(EngineError::Gpu(why)), Some(_)) => {
                say(&format!("monolith: taking the CPU engine: {why}"));
            }
            (Err(error), _) => return Err(exit_of(error)),
        }
    }
    let cpu = options.cpu.clone().unwrap_or_default();
    Ok(Box::new(CpuEngine::load(pack, &cpu).map_err(exit_of)?))
}

fn exit_of(error: EngineError) -> Exit {
    let code = match error {
        EngineError::ContextSize { .. } | EngineError::ThreadCount { .. } => Code::Usage,
        EngineError::Gpu(_) => Code::NoEngine,
        _ => Code::Failure,
    };
    Exit::new(code, error)
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
