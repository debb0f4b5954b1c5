//! The command line's grammar.

use crate::{examples, exit, values};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The model that is run where none is named.
pub const DEFAULT_MODEL: &str = "Qwen/Qwen3-0.6B";

/// A batch-1 decoder for Qwen3: one persistent step yields one token.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = examples::overview(exit::TABLE))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a prompt: stream text to stdout, statistics to stderr
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Write a model's weights in the order in which they are streamed
    #[command(after_help = examples::PACK)]
    Pack(PackArgs),
    /// Show what a pack holds, what a token reads of it, and the roofline
    #[command(after_help = examples::INSPECT)]
    Inspect(InspectArgs),
    /// Make a model of synthetic weights, the same for the same seed
    #[command(after_help = examples::SYNTH)]
    Synth(SynthArgs),
    /// Download a model from a Hugging Face compatible hub
    #[command(after_help = examples::PULL)]
    Pull(PullArgs),
    /// Compare two engines phase by phase; show the first element that differs
    #[command(after_help = examples::DIFF)]
    Diff(DiffArgs),
    /// Tell which engines this machine can run, and why not the others
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = examples::MAN)]
    Man,
}

/// Which model.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A model folder, a pack, or a name in the hub's cache (NAME@REVISION pins a revision)
    #[arg(short, long, value_name = "MODEL", default_value = DEFAULT_MODEL)]
    pub model: OsString,
}

/// How the engine is loaded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Which engine: auto (the fastest that can run here), cuda or cpu
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto, hide_possible_values = true)]
    pub engine: EngineChoice,
    /// Threads of the CPU engine [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = values::threads())]
    #[arg(allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Positions in the KV cache [default: 4096, or the model's maximum if lower]
    #[arg(short, long, value_name = "N", value_parser = values::at_least_1())]
    #[arg(allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// SIMD level of the CPU engine [default: the best there is]
    #[arg(long, value_name = "LEVEL", value_parser = ["avx512", "avx2", "neon", "scalar"])]
    pub simd: Option<String>,
}

/// An engine, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// The fastest that can run here
    Auto,
    /// The GPU
    Cuda,
    /// The processor
    Cpu,
}

/// `monolith run`
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The prompt [default: standard input]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<OsString>,
    /// Read the prompt from a file, to its last byte
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Tokens to generate at most
    #[arg(short, long = "tokens", value_name = "N", default_value_t = 256)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub n: usize,
    /// Do not stop at the model's end-of-text tokens
    #[arg(long)]
    pub ignore_eos: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    pub json: bool,
    /// No statistics
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub chat: ChatArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub xray: XrayArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// How the prompt is put to a model that was trained to chat.
#[derive(Debug, Args)]
#[command(next_help_heading = "Chat")]
pub struct ChatArgs {
    /// Wrap the prompt in the model's chat template
    #[arg(long)]
    pub chat: bool,
    /// System message of the chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Tell the chat template that the model is not to think first
    #[arg(long, requires = "chat")]
    pub no_think: bool,
}

/// How the next token is chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Sampling temperature; 0 is greedy, and the options below then have no effect
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    #[arg(value_parser = values::temperature)]
    pub temperature: f32,
    /// Keep the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    #[arg(value_parser = values::share)]
    pub top_p: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: usize,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// Which step is recorded, and where to.
#[derive(Debug, Args)]
#[command(next_help_heading = "X-ray")]
pub struct XrayArgs {
    /// Record one step and write its trace, as the page reads it
    #[arg(id = "xray", long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Which generated token's step to record, from 1; the last one if the text ends before
    #[arg(long = "xray-at", value_name = "N", default_value_t = 16, requires = "xray")]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub at: usize,
}

/// `monolith pack`
#[derive(Debug, Args)]
pub struct PackArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

/// `monolith inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The pack, a file that `monolith pack` wrote
    pub pack: PathBuf,
    /// Memory bandwidth for the roofline, in GB/s
    #[arg(long, value_name = "X", value_parser = values::speed, allow_negative_numbers = true)]
    pub gb_s: Option<f64>,
    /// Positions cached, for the KV bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub position: usize,
    /// List every section
    #[arg(long)]
    pub sections: bool,
    /// Print the header as JSON
    #[arg(long)]
    pub json: bool,
}

/// `monolith synth`
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// A named shape (qwen3-0.6b, tiny), or the path of a config.json
    #[arg(long, value_name = "SHAPE", default_value = "qwen3-0.6b")]
    pub shape: OsString,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The folder to make; it must be new, or empty
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

/// `monolith pull`
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The model's name on the hub, ORGANISATION/NAME
    #[arg(default_value = DEFAULT_MODEL)]
    pub model: String,
    /// Branch, tag or commit
    #[arg(long, value_name = "REVISION", default_value = "main")]
    pub revision: String,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `monolith diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Token ids to run, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', default_value = "1,2,3,4")]
    pub tokens: Vec<u32>,
    /// Layers to compare [default: all]
    #[arg(long, value_name = "N", value_parser = values::at_least_1())]
    #[arg(allow_negative_numbers = true)]
    pub layers: Option<usize>,
    /// The last phase to compare [default: lm_head after all layers, down after fewer]
    #[arg(long, value_name = "PHASE")]
    #[arg(value_parser = ["qkv", "attention", "o_proj", "gate_up", "down", "lm_head"])]
    pub stop_after: Option<String>,
    /// Largest difference that counts as equal, relative to the row's largest value; a bf16 key or
    /// value that rounds the other way moves by 0.004
    #[arg(long, value_name = "X", default_value_t = 1e-2, allow_negative_numbers = true)]
    #[arg(value_parser = values::tolerance)]
    pub tolerance: f32,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `monolith doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The engine that must be able to run (auto, cuda or cpu); the exit code is 3 if it is not
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto, hide_possible_values = true)]
    pub engine: EngineChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
