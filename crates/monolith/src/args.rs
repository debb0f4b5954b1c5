//! The command line's grammar.

use crate::{examples, exit, values};
use clap::{Args, Parser, Subcommand, ValueEnum};
use monolith_harness::bench::Output;
use monolith_kernels::Arch;
use monolith_pack::{Formats, ScaleSearch};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The model that commands use if none is named.
pub const DEFAULT_MODEL: &str = "Qwen/Qwen3-0.6B";

/// A batch-1 decoder for Qwen3: one persistent step yields one token.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = examples::overview(exit::TABLE))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Returns the arguments, with llama-bench's `-oe` spelled out: the parser would read it as `-o e`.
pub fn given(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|command| command == "bench") {
        for arg in args.iter_mut().filter(|arg| *arg == "-oe") {
            *arg = "--output-err".into();
        }
    }
    args
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a prompt: stream text to stdout, statistics to stderr
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Write a model's weights in streaming order
    #[command(after_help = examples::PACK)]
    Pack(PackArgs),
    /// Show what a pack holds, how many bytes a token reads, and the roofline
    #[command(after_help = examples::INSPECT)]
    Inspect(InspectArgs),
    /// Write the values of a pack's weights as a checkpoint, for programs that do not read packs
    #[command(after_help = examples::UNPACK)]
    Unpack(UnpackArgs),
    /// Make a model with synthetic weights; the same seed gives the same weights
    #[command(after_help = examples::SYNTH)]
    Synth(SynthArgs),
    /// Download a model from a Hugging Face compatible hub
    #[command(after_help = examples::PULL)]
    Pull(PullArgs),
    /// Compare an engine with the reference phase by phase; show the first element that differs
    #[command(after_help = examples::DIFF)]
    Diff(DiffArgs),
    /// Write the token ids of the benchmark's prompts
    #[command(after_help = examples::IDS)]
    Ids(IdsArgs),
    /// Check an engine against a reference, token by token
    #[command(after_help = examples::GATE)]
    Gate(GateArgs),
    /// Measure the speed of an engine; the speed is verified if a gate has passed before
    #[command(after_help = examples::BENCH)]
    Bench(BenchArgs),
    /// Measure what a weight format costs, against the same model in bf16
    #[command(after_help = examples::QUALITY)]
    Quality(QualityArgs),
    /// Print the tables of all verified measurements
    #[command(after_help = examples::REPORT)]
    Report(ReportArgs),
    /// List or compile the GPU kernels
    #[command(after_help = examples::KERNELS)]
    Kernels {
        /// What to do with them.
        #[command(subcommand)]
        command: KernelsCommand,
    },
    /// Show where a recorded step's time went, or export it for a viewer
    #[command(after_help = examples::XRAY)]
    Xray {
        /// What to do with it.
        #[command(subcommand)]
        command: XrayCommand,
    },
    /// Show which engines can run on this machine, and what the others need
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
    /// Blocks of the CUDA engine [default: one per multiprocessor]
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

/// `monolith run`
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The prompt [default: standard input]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<OsString>,
    /// Read the prompt from a file, including the newline at its end
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Read special tokens in the prompt (<|im_end|>) as text; a chat template still writes its own
    #[arg(long)]
    pub literal: bool,
    /// Largest number of tokens to generate
    #[arg(short, long = "tokens", value_name = "N", default_value_t = 256)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub n: usize,
    /// Do not stop at the model's end-of-text tokens
    #[arg(long)]
    pub ignore_eos: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    pub json: bool,
    /// Print no statistics
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

/// How the prompt is passed to a chat model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Chat")]
pub struct ChatArgs {
    /// Wrap the prompt in the model's chat template
    #[arg(long)]
    pub chat: bool,
    /// System message of the chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Ask the chat template to turn the model's thinking off
    #[arg(long, requires = "chat")]
    pub no_think: bool,
}

/// How the next token is chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Sampling temperature; 0 is greedy, and the other sampling options then have no effect
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    #[arg(value_parser = values::temperature)]
    pub temperature: f32,
    /// Nucleus sampling: keep the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    #[arg(value_parser = values::share)]
    pub top_p: f32,
    /// Keep only the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: usize,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// Which step is recorded, and into which file.
#[derive(Debug, Args)]
#[command(next_help_heading = "X-ray")]
pub struct XrayArgs {
    /// Record one step and write its trace for the page, or its dump if FILE ends in .xray
    #[arg(id = "xray", long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Number of the generated token whose step is recorded, from 1; if the text ends earlier, the
    /// last step is recorded
    #[arg(long = "xray-at", value_name = "N", default_value_t = 16, requires = "xray")]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub at: usize,
}

/// `monolith pack`
#[derive(Debug, Args)]
pub struct PackArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

/// `monolith unpack`
#[derive(Debug, Args)]
pub struct UnpackArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The folder to make; it must not exist
    #[arg(short, long, value_name = "DIR")]
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
    /// Number of cached positions, for the bytes of the KV cache
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
    /// Rebuild the trained model from the deltas in this folder (data/standin), and check its hash
    #[arg(long, value_name = "DIR", conflicts_with_all = ["shape", "seed"])]
    pub deltas: Option<PathBuf>,
    /// The folder to make; if it exists, it must be empty
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
    /// Print no progress
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
    /// Largest difference that counts as equal, relative to the row's largest value; one bf16
    /// rounding of a key or value is 0.004
    #[arg(long, value_name = "X", default_value_t = 1e-2, allow_negative_numbers = true)]
    #[arg(value_parser = values::tolerance)]
    pub tolerance: f32,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `monolith ids`
#[derive(Debug, Args)]
pub struct IdsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The prompts, one JSON object per line
    #[arg(long, value_name = "FILE", default_value = "data/prompts/bench.jsonl")]
    pub prompts: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
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

/// `monolith gate`
#[derive(Debug, Args)]
pub struct GateArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The folder that tools/reference.py wrote [default: the one in data/golden for these weights]
    #[arg(long, value_name = "DIR")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `monolith bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The prompts' token ids, as written by `monolith ids` [default: the benchmark's own prompts,
    /// encoded by the model's tokenizer]
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Exit with code 5 if no gate has passed, instead of printing unverified numbers
    #[arg(long)]
    pub require_gate: bool,
    /// Prompt lengths to time, one test for each; 0 is none. Lists and ranges as in llama-bench:
    /// 16,64 or 16-64+16 or 16-128*2
    #[arg(short = 'p', long = "n-prompt", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "0", allow_negative_numbers = true)]
    pub prompt_lengths: Vec<Vec<usize>>,
    /// Numbers of tokens to decode (with the prompts: after each prompt), one test for each; 0 is
    /// none
    #[arg(short = 'n', long = "n-gen", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "256", allow_negative_numbers = true)]
    pub steps: Vec<Vec<usize>>,
    /// Numbers of positions cached before the first decoded token, one test for each
    #[arg(short = 'd', long = "n-depth", value_name = "N,...", value_parser = values::counts)]
    #[arg(default_value = "16,128,512,1024,2048", allow_negative_numbers = true)]
    pub depths: Vec<Vec<usize>>,
    /// Number of timed runs of each test
    #[arg(short = 'r', long = "repetitions", value_name = "N", default_value_t = 5)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub runs: usize,
    /// Skip the untimed warm-up run
    #[arg(long)]
    pub no_warmup: bool,
    /// Skip the tests that decode after each of the benchmark's prompts
    #[arg(long)]
    pub no_prompts: bool,
    /// After the timing, measure the energy at each depth while decoding for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::speed)]
    #[arg(allow_negative_numbers = true)]
    pub energy: Option<f64>,
    /// Format of the rows on stdout: md, csv, json, jsonl or sql
    #[arg(short, long, value_name = "FORM", default_value = "md", hide_possible_values = true)]
    #[arg(value_parser = values::output())]
    pub output: Output,
    /// Print the rows in this format on stderr too; -oe for short
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    #[arg(value_parser = values::output())]
    pub output_err: Option<Output>,
    #[command(flatten)]
    pub roofline: RooflineArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// The bandwidth that a speed is compared with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Roofline")]
pub struct RooflineArgs {
    /// Measured read bandwidth of this processor, in GB/s
    #[arg(long, value_name = "X", requires = "bandwidth_source", allow_negative_numbers = true)]
    #[arg(value_parser = values::speed)]
    pub bandwidth_gb_s: Option<f64>,
    /// How the bandwidth was measured, in words
    #[arg(long, value_name = "TEXT", requires = "bandwidth_gb_s")]
    pub bandwidth_source: Option<String>,
    /// For the prediction: the time of a hand-off between phases, in microseconds
    #[arg(long, value_name = "X", requires = "bandwidth_gb_s", default_value_t = 0.0)]
    #[arg(value_parser = values::duration, allow_negative_numbers = true)]
    pub hand_off_us: f64,
    /// For the prediction: the time of a layer's arithmetic that overlaps with no read, in
    /// microseconds
    #[arg(long, value_name = "X", requires = "bandwidth_gb_s", default_value_t = 0.0)]
    #[arg(value_parser = values::duration, allow_negative_numbers = true)]
    pub compute_us: f64,
    /// For the prediction: the time of the argmax over all blocks, in microseconds
    #[arg(long, value_name = "X", requires = "bandwidth_gb_s", default_value_t = 0.0)]
    #[arg(value_parser = values::duration, allow_negative_numbers = true)]
    pub argmax_us: f64,
}

/// `monolith quality`
#[derive(Debug, Args)]
pub struct QualityArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The candidate: a model folder, a pack, or a name in the hub's cache [default: the model]
    #[arg(long, value_name = "MODEL", required_unless_present = "candidate_format")]
    pub candidate: Option<OsString>,
    /// The candidate's weights: bf16, fp8 or fp8-head-bf16 [default: as in the candidate]
    #[arg(long, visible_alias = "format", value_name = "FORMAT", value_parser = values::formats())]
    #[arg(hide_possible_values = true)]
    pub candidate_format: Option<Formats>,
    /// How the candidate's FP8 scales are chosen: amax or mse [default: amax, or as in the pack]
    #[arg(long, value_name = "HOW", value_parser = values::scale_search())]
    #[arg(hide_possible_values = true)]
    pub scale_search: Option<ScaleSearch>,
    /// The text to score, UTF-8 [default: heldout.txt in the model's folder]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// The prompts to continue, one JSON object per line
    #[arg(long, value_name = "FILE", default_value = "data/prompts/quality.jsonl")]
    pub prompts: PathBuf,
    /// Tokens per window; each window starts with an empty cache
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub window: usize,
    /// Tokens from the start of one window to the start of the next; less than a window
    #[arg(long, value_name = "N", default_value_t = 512)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub stride: usize,
    /// Use only the first N tokens of the text [default: all]
    #[arg(long, value_name = "N", value_parser = values::at_least_1())]
    #[arg(allow_negative_numbers = true)]
    pub limit_tokens: Option<usize>,
    /// Number of positions, evenly spaced in the text, at which the distributions are compared
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub kl_positions: usize,
    /// Tokens to decode greedily after each prompt
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 64)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub new: usize,
    /// The file that tools/control.py wrote for the model: transformers' tokens in bf16 and in f32.
    /// The bf16 engine is then compared with f32 too, and the record holds both figures
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `monolith report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub results: ResultsArgs,
}

/// `monolith kernels`
#[derive(Debug, Subcommand)]
pub enum KernelsCommand {
    /// Show the variant table: one row per kernel
    List,
    /// Compile every variant into a folder, with a manifest; this needs NVRTC and no GPU
    #[command(after_help = examples::KERNELS_BUILD)]
    Build(KernelsBuildArgs),
}

/// `monolith kernels build`
#[derive(Debug, Args)]
pub struct KernelsBuildArgs {
    /// GPU architectures
    #[arg(long, value_name = "ARCH,...", value_delimiter = ',')]
    #[arg(default_value = "sm_90a,sm_120a", value_parser = values::arch)]
    pub arch: Vec<Arch>,
    /// Named shapes (qwen3-0.6b, tiny), or paths of a config.json
    #[arg(long, value_name = "SHAPE,...", value_delimiter = ',')]
    #[arg(default_value = "qwen3-0.6b,tiny")]
    pub shape: Vec<OsString>,
    /// The folder to write to
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

/// `monolith xray`
#[derive(Debug, Subcommand)]
pub enum XrayCommand {
    /// Print where the step's time went: phases, waits, hand-offs, the critical path
    #[command(after_help = examples::XRAY_ANALYZE)]
    Analyze(XrayAnalyzeArgs),
    /// Write the step for the page or for another viewer
    #[command(after_help = examples::XRAY_EXPORT)]
    Export(XrayExportArgs),
    /// Record a step in the middle of a decode loop, and what recording costs
    #[command(after_help = examples::XRAY_RECORD)]
    Record(XrayRecordArgs),
    /// Show which block waited for which in the last step that timed out
    #[command(after_help = examples::XRAY_FAULT)]
    Fault(XrayFaultArgs),
}

/// `monolith xray record`
#[derive(Debug, Args)]
pub struct XrayRecordArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// Positions of the steps to record, one file each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "16")]
    pub at: Vec<usize>,
    /// Steps of the loop; the step in its middle is recorded
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 64)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub steps: usize,
    /// Number of timed loops for each of the two builds, recording and headline
    #[arg(short = 'r', long = "repetitions", value_name = "N", default_value_t = 5)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub runs: usize,
    /// The prompts' token ids, as written by `monolith ids` [default: made-up ids]
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// The folder for the dumps; each file is named after its variant and position
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Print no analysis on stderr
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `monolith xray fault`
#[derive(Debug, Args)]
pub struct XrayFaultArgs {
    /// The fault's file [default: the last one, in the cache folder]
    pub file: Option<PathBuf>,
}

/// `monolith xray analyze`
#[derive(Debug, Args)]
pub struct XrayAnalyzeArgs {
    /// A dump (.xray), or a trace as the page reads it (.json.gz)
    pub file: PathBuf,
    /// Print JSON: every sum, every block, every segment of the critical path
    #[arg(long)]
    pub json: bool,
}

/// `monolith xray export`
#[derive(Debug, Args)]
pub struct XrayExportArgs {
    /// A dump (.xray), or a trace as the page reads it (.json.gz)
    pub file: PathBuf,
    /// What to write: page, perfetto, chrome, speedscope, csv or png
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub to: ExportFormat,
    /// The file to write [default: beside FILE, with the format's extension]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The formats of an exported step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The page's gzipped JSON
    Page,
    /// TrackEvent protobuf, for ui.perfetto.dev
    Perfetto,
    /// Chrome's JSON
    Chrome,
    /// speedscope's JSON
    Speedscope,
    /// One row per span
    Csv,
    /// A Gantt chart
    Png,
}

/// `monolith doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The engine that must be usable (auto, cuda or cpu); the exit code is 3 if it is not
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto, hide_possible_values = true)]
    pub engine: EngineChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Probe the GPU: conversions, clocks, bandwidth, hand-offs, counters
    #[arg(long)]
    pub probe: bool,
    /// Write the probes' report to this file, as JSON
    #[arg(long, value_name = "FILE", requires = "probe")]
    pub out: Option<PathBuf>,
    /// Run one small kernel, for Nsight Compute to profile
    #[arg(long, hide = true)]
    pub probe_child: bool,
}
