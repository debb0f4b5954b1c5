//! From what the user asks for to a loaded engine.

use crate::args::{EngineArgs, EngineChoice};
use crate::exit::{Code, Exit, OrExit};
use monolith_engine::cpu::simd::Simd;
use monolith_engine::{CpuEngine, CpuOptions, Engine, EngineError};
use monolith_pack::Pack;
use std::sync::Arc;

/// Why the CUDA engine cannot run.
pub const NO_CUDA: &str = "this build has no CUDA engine: use --engine cpu";

/// Chooses the engine, before anything is read or computed.
///
/// # Errors
/// Code 3 for an engine that cannot run here, code 2 for a SIMD level that this processor lacks.
pub fn options(args: &EngineArgs) -> Result<CpuOptions, Exit> {
    if args.engine == EngineChoice::Cuda {
        return Err(Exit::message(Code::NoEngine, NO_CUDA));
    }
    let mut options = CpuOptions { context: args.context, ..CpuOptions::default() };
    if let Some(threads) = args.threads {
        options.threads = threads;
    }
    if let Some(name) = &args.simd {
        options.simd = simd(name)?;
    }
    Ok(options)
}

/// Loads the engine.
///
/// # Errors
/// Code 2 for a context that this model does not have.
pub fn load(options: &CpuOptions, pack: Arc<Pack>) -> Result<Box<dyn Engine>, Exit> {
    let engine = CpuEngine::load(pack, options).map_err(|error| {
        let code = match error {
            EngineError::ContextSize { .. } | EngineError::ThreadCount { .. } => Code::Usage,
            _ => Code::Failure,
        };
        Exit::new(code, error)
    })?;
    Ok(Box::new(engine))
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
