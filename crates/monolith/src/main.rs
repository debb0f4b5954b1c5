//! The command line: data on stdout, everything else on stderr.

mod cache;
mod cli;
mod commands;
mod engine;
mod exit;
mod fault_file;
mod file_out;
mod hub;
mod interrupt;
mod kinds;
mod losses;
mod measure;
mod options;
mod packing;
mod progress;
mod room;
mod source;
mod text_out;
mod values;

use cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    interrupt::install();
    let cli = Cli::given(std::env::args_os()).unwrap_or_else(|error| usage(&error));
    monolith_harness::identity::name_commit(env!("MONOLITH_COMMIT"));
    match cli.command.run() {
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
