//! The command line as a whole. Each command's own part is in its file in `commands/`.

use crate::commands::{Command, bench};
use crate::exit;
use clap::Parser;
use std::ffi::OsString;

/// A batch-1 decoder for Qwen3: one persistent step yields one token.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = overview())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line.
    ///
    /// # Errors
    /// A command or option that does not exist; the help and the version, which are texts to print.
    pub fn given(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut args: Vec<OsString> = args.collect();
        if args.get(1).is_some_and(|command| command == "bench") {
            bench::spell_out(&mut args);
        }
        Cli::try_parse_from(args)
    }
}

/// Returns the end of `monolith --help`: examples, and what a script needs to know.
fn overview() -> String {
    format!("{OVERVIEW}\n\n{}\n\n{ENVIRONMENT}", exit::TABLE)
}

const OVERVIEW: &str = "Examples:
  monolith pull                           download Qwen/Qwen3-0.6B (1.5 GB)
  monolith run -p 'The capital of France is' -n 32
  monolith run --chat -p 'Why is the sky blue?'
  monolith doctor                         what this machine can run
  monolith gate --help                    from a model to a speed, in five commands
  monolith run --help                     every option of a command, with examples

Data goes to stdout, everything else to stderr.";

/// The environment variables that the program reads.
pub const ENVIRONMENT: &str = "Environment:
  MONOLITH_CACHE  folder for packs [default: monolith in the user's cache folder]
  HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, XDG_CACHE_HOME, HF_ENDPOINT, HF_TOKEN,
  HUGGING_FACE_HUB_TOKEN, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
                  as huggingface_hub 2.4 reads them; token files are not read
  SSL_CERT_FILE, SSL_CERT_DIR
                  certificate authorities to trust in place of the system's
  NO_COLOR        no colours";
