//! The commands. Each has a file: its options (`Args`, whose first line is its help), its examples
//! and `run`. A new command is a file, its `mod` line, and its row in the list below, which has the
//! help's order.

use crate::exit::Exit;

/// Makes the enum of commands, of which the command line names one, and its dispatch.
macro_rules! commands {
    ($($name:ident($file:ident)),* $(,)?) => {
        /// What to do.
        #[derive(Debug, clap::Subcommand)]
        pub enum Command {
            $($name($file::Args)),*
        }

        impl Command {
            /// Runs the command.
            ///
            /// # Errors
            /// The command's own.
            pub fn run(&self) -> Result<(), Exit> {
                match self {
                    $(Command::$name(args) => $file::run(args)),*
                }
            }
        }
    };
}

pub mod bench;
mod completions;
mod diff;
mod doctor;
mod gate;
mod ids;
mod inspect;
mod kernels;
mod man;
mod pack;
mod predict;
mod pull;
mod quality;
mod report;
mod run;
mod soak;
mod synth;
mod unpack;
mod xray;

commands! {
    Run(run),
    Pack(pack),
    Inspect(inspect),
    Unpack(unpack),
    Synth(synth),
    Pull(pull),
    Diff(diff),
    Ids(ids),
    Gate(gate),
    Bench(bench),
    Predict(predict),
    Soak(soak),
    Quality(quality),
    Report(report),
    Kernels(kernels),
    Xray(xray),
    Doctor(doctor),
    Completions(completions),
    Man(man),
}
