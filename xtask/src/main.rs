//! Developer tasks: `cargo xtask demo | test | kernels | page-data | report | seal | generate |
//! tidy`.
//!
//! Every task starts from a bare checkout: it installs what it needs, says so, and works
//! without the network the second time. It writes to the target folder, `web/node_modules`,
//! `web/public/data` and `web/dist` only.

mod command;
mod demo;
mod generate;
mod install;
mod kernels;
mod node;
mod page;
mod page_data;
mod repo;
mod report;
mod sass;
mod say;
mod seal;
mod test;
mod tidy;
mod traces;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

use repo::Repo;

/// Developer tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Decode a prompt with the small model in data/tiny, X-ray one token, show it on a page.
    Demo(demo::Options),
    /// Install what the tests need, and run every test that needs no GPU.
    Test(test::Options),
    /// Compile every GPU kernel without a GPU, and check its machine code.
    Kernels,
    /// Write everything that the page reads into web/public/data, from results/.
    PageData,
    /// Write the tables of all measurements into the README, between its markers.
    Report(report::Options),
    /// Seal runs in results/: their files are never changed afterwards.
    Seal(seal::Options),
    /// Write the files that are generated from crates/abi.
    Generate {
        /// Write nothing; fail if a generated file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Check the structure of the repository: floors, limits, generated files, forbidden text.
    Tidy,
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            say::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    let repo = Repo::find()?;
    match task {
        Task::Demo(options) => demo::run(&repo, &options)?,
        Task::Test(options) => return Ok(test::run(&repo, &options)),
        Task::Kernels => kernels::run(&repo, &kernels::tools(&repo)?)?,
        Task::PageData => page_data::run(&repo)?,
        Task::Report(options) => report::run(&repo, &options)?,
        Task::Seal(options) => seal::run(&repo, &options)?,
        Task::Generate { check: true } => generate::check(&repo)?,
        Task::Generate { check: false } => generate::write(&repo)?,
        Task::Tidy => tidy::run(&repo)?,
    }
    Ok(ExitCode::SUCCESS)
}
