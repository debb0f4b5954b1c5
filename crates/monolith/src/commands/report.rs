//! `monolith report`

use crate::args::ReportArgs;
use crate::exit::Exit;
use crate::measure::exit_of;
use crate::progress::Progress;
use crate::text_out::show;
use monolith_harness::report::render;

/// Prints every processor's tables.
///
/// # Errors
/// A results folder that cannot be read.
pub fn run(args: &ReportArgs) -> Result<(), Exit> {
    let progress = Progress::new("report");
    let tables = render(&args.results.results).map_err(exit_of)?;
    drop(progress);
    show(&tables)?;
    Ok(())
}
