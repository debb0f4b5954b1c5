//! `monolith xray export`: a recorded step as a file for a viewer.

use super::read;
use crate::exit::{Code, Exit};
use crate::file_out::write_file;
use crate::kinds::{Kind, check_output};
use crate::text_out::{put, say};
use clap::ValueEnum;
use monolith_xray::export::{self, GanttOptions};
use monolith_xray::page;
use std::path::{Path, PathBuf};

/// Write the step for the page or for another viewer
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A dump (.xray), or a trace as the page reads it (.json.gz)
    pub file: PathBuf,
    /// What to write: page, perfetto, chrome, speedscope, csv or png
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub to: ExportFormat,
    /// The file to write [default: beside FILE, with the format's extension]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  monolith xray export step.xray --to perfetto        for ui.perfetto.dev: step.pftrace
  monolith xray export step.xray --to png -o step.png
  monolith xray export step.json.gz --to csv

The command prints the file's name on stdout. It replaces no file of another kind.";

/// The formats of an exported step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The page's gzipped JSON
    Page,
    /// TrackEvent protobuf, for ui.perfetto.dev
    Perfetto,
    /// Chrome's JSON
    Chrome,
    /// speedscope's JSON
    Speedscope,
    /// One row per span
    Csv,
    /// A Gantt chart
    Png,
}

/// Writes a recorded step in another format, and prints the file's name.
///
/// # Errors
/// Those of [`read`]; code 2 if the output is the input; an output that cannot be written, or that
/// would replace a file of another kind.
pub fn run(args: &Args) -> Result<(), Exit> {
    let path = args.out.clone().unwrap_or_else(|| beside(&args.file, args.to));
    if same_file(&path, &args.file) {
        let what = format!("{} is the input file: name another with -o", path.display());
        return Err(Exit::message(Code::Usage, what));
    }
    check_output(&path, kind(args.to))?;
    let trace = read(&args.file)?;
    let bytes = match args.to {
        ExportFormat::Page => page::write(&trace),
        ExportFormat::Perfetto => export::perfetto(&trace),
        ExportFormat::Chrome => export::chrome(&trace),
        ExportFormat::Speedscope => export::speedscope(&trace),
        ExportFormat::Csv => export::csv(&trace),
        ExportFormat::Png => export::gantt(&trace, &GanttOptions::default())?,
    };
    write_file(&path, &bytes)?;
    if trace.is_reduced() {
        let lacks = "a page's trace has no loader spans and no single copies";
        say(&format!("monolith: {lacks}: {} has none either", path.display()));
    }
    put(&format!("{}\n", path.display()))?;
    Ok(())
}

/// Returns the file's name with the format's extension, in the same folder.
fn beside(file: &Path, to: ExportFormat) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let endings = [".xray", ".json.gz", ".json", ".gz"];
    let stem = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    file.with_file_name(format!("{stem}{}", ending(to)))
}

fn ending(to: ExportFormat) -> &'static str {
    match to {
        ExportFormat::Page => ".json.gz",
        ExportFormat::Perfetto => ".pftrace",
        // Not `.chrome.json`: speedscope mistakes that for a CPU profile from Chrome.
        ExportFormat::Chrome => ".chrome-trace.json",
        ExportFormat::Speedscope => ".speedscope.json",
        ExportFormat::Csv => ".csv",
        ExportFormat::Png => ".png",
    }
}

fn kind(to: ExportFormat) -> Kind {
    match to {
        ExportFormat::Page => Kind::Trace,
        ExportFormat::Perfetto => Kind::Perfetto,
        ExportFormat::Chrome => Kind::Chrome,
        ExportFormat::Speedscope => Kind::Speedscope,
        ExportFormat::Csv => Kind::Csv,
        ExportFormat::Png => Kind::Png,
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
