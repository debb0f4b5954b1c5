//! `monolith kernels`: the variant table, and its compilation.

use crate::exit::Exit;
use comfy_table::Table;

mod build;
mod list;

/// List or compile the GPU kernels
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to do with them.
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  monolith kernels list
  monolith kernels build --arch sm_90a --shape qwen3-0.6b --out kernels";

commands! {
    List(list),
    Build(build),
}

/// Shows or compiles the kernels.
///
/// # Errors
/// Code 2 for a shape that no kernel runs; code 1 where NVRTC is not found, or a kernel does not
/// compile.
pub fn run(args: &Args) -> Result<(), Exit> {
    args.command.run()
}

/// Renders a table without spaces at the ends of its lines.
fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
