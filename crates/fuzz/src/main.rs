//! Feeds mutated inputs to every parser of the project, and says which of them panic, abort, take
//! too long or too much memory.
//!
//! ```sh
//! cargo run --release -p monolith-fuzz -- --inputs 10000000 --seed 1 --out fuzz
//! ```
//!
//! An input follows from the seed, the parser and its number alone: a finding is made again with
//! `--parser NAME --from N --inputs 1`. Inputs run in processes of their own, so that one that
//! aborts or does not end costs only itself. Exit code 1 if there was any finding.

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
    /// Start no further batch after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// What inputs follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this parser; all inputs are its own
    #[arg(long)]
    parser: Option<String>,
    /// Number of the first input, to make a finding again
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Folder for the inputs of findings
    #[arg(long, default_value = "fuzz-out")]
    out: PathBuf,
    /// Processes at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Milliseconds after which an input counts as slow
    #[arg(long, default_value_t = 500)]
    slow_ms: u64,
    /// Seconds after which an input counts as one that does not end
    #[arg(long, default_value_t = 20)]
    hang_s: u64,
    /// Megabytes of address space that a process may take
    #[arg(long, default_value_t = 4096)]
    memory_mb: u64,
    /// Names the parsers and their shares, and runs none
    #[arg(long)]
    list: bool,
    /// Runs one batch in this process: what the processes are started with
    #[arg(long, hide = true)]
    worker: bool,
    /// Says the number of each input before it runs
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
