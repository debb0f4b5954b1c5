//! `monolith pack`

use crate::exit::Exit;
use crate::kinds::{Kind, check_output};
use crate::options::{FormatArgs, ModelArgs};
use crate::source::find;
use crate::text_out::say;
use crate::{losses, packing};
use std::path::PathBuf;

/// Write a model's weights in streaming order
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:
  monolith pack -o qwen3.pack
  monolith pack -m data/tiny -o tiny.pack
  monolith pack --format fp8 -o qwen3-fp8.pack

FP8 is E4M3 with one scale per row, rounded to nearest even. The command prints the quantization
error, and the pack records it. With --scale-search mse a row's scale is the one with the least
squared error. The codes and scales of an FP8 checkpoint (compressed-tensors, one scale per row) are
copied. Weights in F32 and F16 are rounded to bf16 first.

A pack holds the weights and the end-of-text tokens. To run one, keep the model's tokenizer.json and
tokenizer_config.json beside it; the end-of-text tokens of a generation_config.json beside it
are used instead of the pack's. `monolith run` packs a model by itself and keeps the pack in its
cache.";

/// Packs a model folder into a file.
///
/// # Errors
/// A missing or damaged model, weights that the format cannot hold, or a folder that is not
/// writable.
pub fn run(args: &Args) -> Result<(), Exit> {
    let model = find(&args.model.model)?;
    check_output(&args.out, Kind::Pack)?;
    let header = packing::to_file(&model, &args.format, &args.out)?;
    if let Some(losses) = losses::table(&header) {
        say(&losses);
    }
    let (name, out) = (&model.name, args.out.display());
    say(&format!("packed {name} as {}: `monolith inspect {out}` shows it", header.formats.name()));
    Ok(())
}
