//! The options that several commands share.

use crate::values;
use clap::{Args, ValueEnum};
use monolith_pack::{Formats, ScaleSearch};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The model that commands use if none is named.
pub const DEFAULT_MODEL: &str = "Qwen/Qwen3-0.6B";

/// Which model.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A model folder, a pack, or a name in the hub's cache (NAME@REVISION pins a revision)
    #[arg(short, long, value_name = "MODEL", default_value = DEFAULT_MODEL)]
    pub model: OsString,
}

/// The weight format.
#[derive(Debug, Args)]
pub struct FormatArgs {
    /// Weights: bf16, fp8 (E4M3, one scale per row) or fp8-head-bf16 (the LM head and the embedding
    /// stay bf16) [default: as in the model]
    #[arg(long, value_name = "FORMAT", value_parser = values::formats())]
    #[arg(hide_possible_values = true)]
    pub format: Option<Formats>,
    /// How the scale of an FP8 row is chosen: amax (the largest weight maps to the largest code)
    /// or mse (least squared error over a grid of scales) [default: amax, or as in the pack]
    #[arg(long, value_name = "HOW", value_parser = values::scale_search())]
    #[arg(hide_possible_values = true)]
    pub scale_search: Option<ScaleSearch>,
}

/// How the engine is loaded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// The engine: auto (the fastest that can run here), cuda or cpu
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto, hide_possible_values = true)]
    pub engine: EngineChoice,
    /// Threads of the CPU engine [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = values::threads())]
    #[arg(allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Positions in the KV cache [default: 4096, or the model's maximum if lower]
    #[arg(short, long, value_name = "N", value_parser = values::at_least_1())]
    #[arg(allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// SIMD level of the CPU engine [default: the best one that this processor supports]
    #[arg(long, value_name = "LEVEL", value_parser = ["avx512", "avx2", "neon", "scalar"])]
    pub simd: Option<String>,
    /// Kernel of the CUDA engine, a name in `kernels list` [default: the first one for the weights'
    /// format]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["threads", "simd"])]
    pub variant: Option<String>,
    /// Blocks of the CUDA engine [default: as many as the kernel is
    /// tuned for, at most one per multiprocessor]
    #[arg(long, value_name = "N", conflicts_with_all = ["threads", "simd"])]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub blocks: Option<usize>,
}

/// The engine that the user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// The fastest that can run here
    Auto,
    /// The GPU
    Cuda,
    /// The processor
    Cpu,
}

/// The folder that holds the measuring runs.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// The folder that holds a folder for each measuring run [default: results]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
}

impl ResultsArgs {
    /// Returns the named folder, or the default.
    pub fn folder(&self) -> &Path {
        self.results.as_deref().unwrap_or(Path::new("results"))
    }
}
