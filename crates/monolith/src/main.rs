//! The command line: data on stdout, everything else on stderr.

mod args;
mod commands;
mod engine;
mod examples;
mod exit;
mod fault_file;
mod interrupt;
mod losses;
mod measure;
mod overhead;
mod packing;
mod progress;
mod prompt;
mod room;
mod sample;
mod source;
mod text_out;
mod values;

use args::{Cli, Command};
use clap::Parser;
use exit::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    interrupt::install();
    let cli =
        Cli::try_parse_from(args::given(std::env::args_os())).unwrap_or_else(|error| usage(&error));
    monolith_harness::identity::name_commit(env!("MONOLITH_COMMIT"));
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) if exit.is_broken_pipe() => ExitCode::SUCCESS,
        Err(exit) => {
            text_out::say(&format!("monolith: {exit}"));
            if let Some(dump) = exit.fault() {
                fault_file::keep(dump);
            }
            exit.exit_code()
        }
    }
}

/// Prints the help, the version, or what is wrong with the command line. It escapes control
/// characters: a shell's `*` may have put any file's name there.
fn usage(error: &clap::Error) -> ! {
    let plain = error.render().to_string();
    if let std::borrow::Cow::Owned(safe) = monolith_text::printable(&plain) {
        text_out::say(safe.trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

fn dispatch(command: Command) -> Result<(), Exit> {
    match command {
        Command::Run(args) => commands::run::run(&args),
        Command::Pack(args) => commands::pack::run(&args),
        Command::Unpack(args) => commands::unpack::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Synth(args) => commands::synth::run(&args),
        Command::Pull(args) => commands::pull::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Ids(args) => commands::ids::run(&args),
        Command::Gate(args) => commands::gate::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Quality(args) => commands::quality::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Kernels { command } => commands::kernels::run(&command),
        Command::Xray { command } => commands::xray::run(&command),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man => commands::shell::man(),
    }
}
