//! `monolith report`

use crate::exit::{Code, Exit};
use crate::measure::exit_of;
use crate::options::ResultsArgs;
use crate::progress::Progress;
use crate::text_out::{put, show};
use monolith_harness::report::{PageRaces, PageResults, Report};

/// Print the tables of all verified measurements
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Print JSON: every run's rows whose speed may be shown, as the page reads them
    #[arg(long)]
    pub json: bool,
    /// Print JSON: the token streams that may race, each processor's and model's, as the page reads
    /// them
    #[arg(long, conflicts_with = "json")]
    pub race: bool,
}

const EXAMPLES: &str = "Examples:
  monolith report
  cargo xtask report                      the same, into the README
  monolith report --json                  every run, for the page (cargo xtask page-data)
  monolith report --race                  token streams of one run, for the page's race

A row has a speed only if its folder holds the passed gate; tables never mix GPUs.";

/// Prints every processor's tables.
///
/// # Errors
/// Code 2 if the named results folder does not exist; a folder that cannot be read. Damaged or
/// contradictory records are reported after the tables of the other runs.
pub fn run(args: &Args) -> Result<(), Exit> {
    if let Some(folder) = args.results.results.as_ref().filter(|folder| !folder.is_dir()) {
        let what = format!("--results {}: no such folder", folder.display());
        return Err(Exit::message(Code::Usage, what));
    }
    let progress = Progress::new("report");
    let problems = if args.json {
        let page = PageResults::of(args.results.folder()).map_err(exit_of)?;
        drop(progress);
        put(&format!("{}\n", serde_json::to_string(&page)?))?;
        page.problems
    } else if args.race {
        let page = PageRaces::of(args.results.folder()).map_err(exit_of)?;
        drop(progress);
        put(&format!("{}\n", serde_json::to_string(&page)?))?;
        page.problems
    } else {
        let Report { text, problems } = Report::of(args.results.folder()).map_err(exit_of)?;
        drop(progress);
        show(&text)?;
        problems
    };
    if problems.is_empty() {
        return Ok(());
    }
    Err(Exit::message(Code::Failure, format!("report: {}", problems.join("; "))))
}
