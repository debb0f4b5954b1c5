//! Renders tables from run records. Nothing in them is typed by hand, and no table mixes two GPUs.

mod page;
mod predictions;
mod quality;
mod race;
mod readme;
mod speeds;

pub use page::PageResults;
pub use predictions::{Compared, Forecast, calibrated, compared, comparison, forecast};
pub use race::{PageRaces, Race, RaceError};
pub use readme::{run_readme, write_readme};
pub use speeds::{KeptGate, SortedRows, row_refusals, sorted_rows};

use crate::HarnessError;
use crate::environment::Environment;
use crate::markdown::cell;
use crate::runs::{Index, RunFolder};
use predictions::forecasts;
use quality::quality_table;
use speeds::{engine_key, tables};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

/// Every GPU's tables, and the problems with the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The tables, and the problems at their end.
    pub text: String,
    /// Records that are missing, damaged or contradictory. Their runs have no table.
    pub problems: Vec<String>,
}

/// Returns the text of [`Report::of`].
///
/// # Errors
/// Those of [`Report::of`].
pub fn render(results: &Path) -> Result<String, HarnessError> {
    Ok(Report::of(results)?.text)
}

impl Report {
    /// Reads every run; returns the tables of each GPU's fullest run, the newest among equals.
    ///
    /// An unreadable run is listed as a problem; the others still have their tables.
    ///
    /// # Errors
    /// A results folder or an index that cannot be read.
    pub fn of(results: &Path) -> Result<Report, HarnessError> {
        let (runs, problems) = runs(results)?;
        let mut gpus: Vec<(&str, &str)> = Vec::new();
        for run in &runs {
            let gpu = run.processor();
            if !gpus.contains(&gpu) {
                gpus.push(gpu);
            }
        }
        // GPUs first, then CPUs.
        gpus.sort_by_key(|(kind, _)| *kind != "gpu");
        let mut text = String::new();
        for gpu in &gpus {
            let gpu = *gpu;
            let own: Vec<&Run> = runs.iter().filter(|run| run.processor() == gpu).collect();
            text += &gpu_section(gpu.1, &own)?;
        }
        if text.is_empty() {
            text.push_str("Nothing was measured yet.\n");
        } else {
            let measured: Vec<&str> = gpus.iter().map(|(_, name)| *name).collect();
            text += &forecasts(&measured)?;
        }
        if !problems.is_empty() {
            text += "\nProblems with the records:\n\n";
            for problem in &problems {
                let _ = writeln!(text, "- {}", cell(problem));
            }
        }
        Ok(Report { text, problems })
    }
}

/// A run that could be read.
struct Run {
    folder: RunFolder,
    environment: Environment,
    rows: SortedRows,
}

impl Run {
    fn processor(&self) -> (&str, &str) {
        (&self.environment.kind, &self.environment.gpu)
    }
}

/// Returns every readable run, the newest first, and the problems of the others.
fn runs(results: &Path) -> Result<(Vec<Run>, Vec<String>), HarnessError> {
    let index = Index::read(results)?;
    let (mut runs, mut problems): (Vec<Run>, Vec<String>) = (Vec::new(), Vec::new());
    for (at, entry) in index.runs.iter().enumerate().rev() {
        if index.runs[at + 1..].iter().any(|other| other.folder == entry.folder) {
            problems.push(format!("index.json lists {} twice", entry.folder));
            continue;
        }
        let read = || -> Result<Run, HarnessError> {
            let (folder, environment) = entry.open(results)?;
            folder.commands()?;
            let rows = sorted_rows(&folder)?;
            Ok(Run { folder, environment, rows })
        };
        match read() {
            Ok(run) => {
                let run_id = &run.environment.run_id;
                match runs.iter().find(|other| other.environment.run_id == *run_id) {
                    Some(other) => problems.push(format!(
                        "{} and {} are both of run {run_id}: the first has no table",
                        run.folder.name, other.folder.name
                    )),
                    None => runs.push(run),
                }
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    problems.extend(index.unlisted(results)?);
    Ok((runs, problems))
}

/// Returns the run with the most engines and models to show a speed of, the newest among equals: a
/// run that measured one format again does not take the others out of the table.
fn fullest<'a>(runs: &[&'a Run]) -> Option<&'a Run> {
    let shown = |run: &&&Run| run.rows.shown.iter().map(engine_key).collect::<HashSet<_>>().len();
    // Of equals `max_by_key` takes the last.
    runs.iter().rev().max_by_key(shown).copied()
}

/// Renders the section of one GPU; `runs` has the newest first.
fn gpu_section(gpu: &str, runs: &[&Run]) -> Result<String, HarnessError> {
    let mut text = format!("### {}\n\n", cell(gpu));
    let Some(chosen) = fullest(runs) else { return Ok(text) };
    let qualities = chosen.folder.qualities()?;
    text += &tables(&chosen.rows, &qualities);
    text += &quality_table(&qualities, &chosen.environment.run_id);
    let link = |run: &Run| format!("[results/{0}](results/{0}/)", run.folder.name);
    let _ = writeln!(text, "Measured in {}, all in one run.", link(chosen));
    let others = runs.iter().filter(|run| run.folder.name != chosen.folder.name);
    let others: Vec<String> = others.map(|run| link(run)).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "Other runs: {}.", others.join(", "));
    }
    text.push('\n');
    Ok(text)
}
