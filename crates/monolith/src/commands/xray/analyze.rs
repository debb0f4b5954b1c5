//! `monolith xray analyze`: where a recorded step's time went.

use super::read;
use crate::exit::Exit;
use crate::text_out::{put, show};
use monolith_xray::Analysis;
use std::path::PathBuf;

/// Print where the step's time went: phases, waits, hand-offs, the critical path
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A dump (.xray), or a trace as the page reads it (.json.gz)
    pub file: PathBuf,
    /// Print JSON: every sum, every block, every segment of the critical path
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  monolith xray analyze step.xray
  monolith xray analyze step.json.gz      a page's trace: no loaders, no single copies
  monolith xray analyze step.xray --json | jq .path.totals

Every nanosecond of every block is work, a named wait, or unrecorded. The critical path is the
chain of work and hand-offs that ends in the argmax; its classes add up to the token.";

/// Prints the analysis of a recorded step.
///
/// # Errors
/// Those of [`read`]; the reader closed the pipe.
pub fn run(args: &Args) -> Result<(), Exit> {
    let analysis = Analysis::of(&read(&args.file)?);
    if args.json {
        put(&format!("{}\n", serde_json::to_string(&analysis)?))?;
    } else {
        show(&analysis.to_string())?;
    }
    Ok(())
}
