//! `monolith report`

use crate::args::ReportArgs;
use crate::exit::{Code, Exit};
use crate::measure::exit_of;
use crate::progress::Progress;
use crate::text_out::show;
use monolith_harness::report::Report;

/// Prints every processor's tables.
///
/// # Errors
/// Code 2 for a results folder that was named and is not there; a folder that cannot be read; after
/// the tables of the other runs, records that are damaged or contradict each other.
pub fn run(args: &ReportArgs) -> Result<(), Exit> {
    if let Some(folder) = args.results.results.as_ref().filter(|folder| !folder.is_dir()) {
        let what = format!("--results {}: no such folder", folder.display());
        return Err(Exit::message(Code::Usage, what));
    }
    let progress = Progress::new("report");
    let Report { text, problems } = Report::of(args.results.folder()).map_err(exit_of)?;
    drop(progress);
    show(&text)?;
    if problems.is_empty() {
        return Ok(());
    }
    Err(Exit::message(Code::Failure, format!("report: {}", problems.join("; "))))
}
