//! `monolith completions`

use crate::cli::Cli;
use crate::exit::Exit;
use crate::text_out::put;
use clap::CommandFactory;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

const EXAMPLES: &str = "Examples:
  monolith completions bash > ~/.local/share/bash-completion/completions/monolith
  monolith completions zsh > ~/.zfunc/_monolith";

/// Prints a completion script.
///
/// # Errors
/// The reader closed the pipe.
pub fn run(args: &Args) -> Result<(), Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "monolith", &mut script);
    put(&String::from_utf8_lossy(&script))?;
    Ok(())
}
