//! `monolith ids`

use crate::exit::Exit;
use crate::kinds::{Kind, check_output};
use crate::measure::input_exit;
use crate::options::ModelArgs;
use crate::progress::Progress;
use crate::source;
use crate::text_out::say;
use monolith_harness::prompts::write_ids;
use std::path::PathBuf;

/// Write the token ids of the benchmark's prompts
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The prompts, one JSON object per line
    #[arg(long, value_name = "FILE", default_value = "data/prompts/bench.jsonl")]
    pub prompts: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:
  monolith ids -o ids.json
  monolith ids -m synthetic -o ids.json

The model's tokenizer makes the ids. Without one, the ids follow a rule that the file states.";

/// Writes the prompts' token ids.
///
/// # Errors
/// A missing model or prompt set, or a file that cannot be written.
pub fn run(args: &Args) -> Result<(), Exit> {
    let _progress = Progress::new("ids");
    let model = source::find(&args.model.model)?;
    check_output(&args.out, Kind::Ids)?;
    let vocab = model.config()?.vocab;
    let ids = write_ids(&args.prompts, &model.dir, vocab, &args.out).map_err(input_exit)?;
    let count: usize = ids.ids.iter().map(Vec::len).sum();
    let (prompts, out) = (ids.ids.len(), args.out.display());
    say(&format!("{out}: {prompts} prompts, {count} ids ({})", ids.rule));
    Ok(())
}
