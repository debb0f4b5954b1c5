//! Feeds mutated inputs to every parser of the project, and reports the inputs that panic, abort,
//! or take too long or too much memory.
//!
//! ```sh
//! cargo run --release -p monolith-fuzz -- --inputs 10000000 --seed 1 --out fuzz
//! ```
//!
//! The seed, the parser and the input's number determine an input: `--parser NAME --from N
//! --inputs 1` reproduces a finding. Inputs run in child processes, so that an input that aborts or
//! hangs costs only itself. Exit code 1 if there was any finding.

#![forbid(unsafe_code)]

mod corpus;
mod mutate;
mod parsers;
mod random;
mod run;
mod worker;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Feeds mutated inputs to every parser.
#[derive(Parser, Clone, Debug)]
#[command(version, about)]
struct Options {
    /// Inputs over all parsers; each parser gets the share that `--list` shows
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    /// Start no new batch after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Give all inputs to this parser
    #[arg(long)]
    parser: Option<String>,
    /// Number of the first input, to reproduce a finding
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Folder for the inputs that are findings
    #[arg(long, default_value = "fuzz-out")]
    out: PathBuf,
    /// Number of processes at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Milliseconds after which an input counts as slow
    #[arg(long, default_value_t = 500)]
    slow_ms: u64,
    /// Seconds after which an input counts as hanging
    #[arg(long, default_value_t = 20)]
    hang_s: u64,
    /// Limit on a process's address space, in megabytes
    #[arg(long, default_value_t = 4096)]
    memory_mb: u64,
    /// List the parsers and their shares, and run nothing
    #[arg(long)]
    list: bool,
    /// Run one batch in this process (internal)
    #[arg(long, hide = true)]
    worker: bool,
    /// Print the number of each input before it runs
    #[arg(long, hide = true)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.worker { worker::run(&options) } else { run::run(&options) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("monolith-fuzz: {error:#}\n").as_bytes(),
            );
            ExitCode::from(2)
        }
    }
}
