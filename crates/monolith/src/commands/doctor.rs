//! `monolith doctor`

use crate::args::{DEFAULT_MODEL, DoctorArgs, EngineChoice};
use crate::engine::NO_CUDA;
use crate::exit::{Code, Exit};
use crate::source;
use crate::text_out::put;
use monolith_engine::cpu::simd::Simd;

/// Tells which engines can run.
///
/// # Errors
/// Code 3 if the engine that was asked for cannot run.
pub fn run(args: &DoctorArgs) -> Result<(), Exit> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let levels: Vec<&str> = Simd::available().iter().map(|level| level.name()).collect();
    let model = source::find(DEFAULT_MODEL.as_ref());
    let model = model.map(|model| model.dir).map_err(|exit| exit.to_string());
    let text = if args.json {
        let value = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "engines": [
                {"engine": "cpu", "usable": true, "device": monolith_engine::cpu::device_name(),
                 "threads": cores, "simd": levels},
                {"engine": "cuda", "usable": false, "reason": NO_CUDA},
            ],
            "default_model": {
                "name": DEFAULT_MODEL,
                "here": model.is_ok(),
                "reason": model.err(),
            },
        });
        format!("{value:#}\n")
    } else {
        format!(
            "monolith {}\ncpu    can run: {}, {cores} threads, {}\ncuda   cannot run: {NO_CUDA}\n\
             model  {}\n",
            env!("CARGO_PKG_VERSION"),
            monolith_engine::cpu::device_name(),
            levels.join(", "),
            model.map_or_else(|reason| reason, |dir| format!("{DEFAULT_MODEL}: {}", dir.display())),
        )
    };
    put(&text)?;
    match args.engine {
        EngineChoice::Cuda => Err(Exit::message(Code::NoEngine, NO_CUDA)),
        EngineChoice::Auto | EngineChoice::Cpu => Ok(()),
    }
}
