//! `monolith xray`: the analysis of a recorded step, and its files for other viewers.

use crate::args::{ExportFormat, XrayAnalyzeArgs, XrayCommand, XrayExportArgs};
use crate::exit::{Code, Exit, OrExit};
use crate::text_out::{Kind, check_output, put, say, show, write_file};
use anyhow::Context;
use monolith_xray::export::{self, GanttOptions};
use monolith_xray::{Analysis, Trace, TraceError, dump_file, page, trace_from_dump};
use std::path::{Path, PathBuf};

/// Records, analyzes or exports a step, or shows why a step timed out.
///
/// # Errors
/// Code 2 for a missing file, code 1 for one that is neither a dump nor a trace.
pub fn run(command: &XrayCommand) -> Result<(), Exit> {
    match command {
        XrayCommand::Analyze(args) => analyze(args),
        XrayCommand::Export(args) => export(args),
        XrayCommand::Record(args) => super::xray_record::run(args),
        XrayCommand::Fault(args) => super::xray_fault::run(args),
    }
}

fn analyze(args: &XrayAnalyzeArgs) -> Result<(), Exit> {
    let analysis = Analysis::of(&read(&args.file)?);
    if args.json {
        put(&format!("{}\n", serde_json::to_string(&analysis)?))?;
    } else {
        show(&analysis.to_string())?;
    }
    Ok(())
}

fn export(args: &XrayExportArgs) -> Result<(), Exit> {
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

/// Reads a recorded step from a dump or a page's trace, told apart by the first bytes.
fn read(path: &Path) -> Result<Trace, Exit> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).with_context(name);
    let bytes = match bytes {
        Err(error) if !path.exists() => return Err(Exit::new(Code::Usage, error)),
        other => other?,
    };
    if dump_file::is_dump(&bytes) {
        let dump = dump_file::read(&bytes).with_context(name)?;
        return trace_from_dump(&dump).with_context(name).or_exit(Code::Failure);
    }
    match page::read(&bytes) {
        Err(TraceError::Foreign(_)) => {
            let what = format!(
                "{} is neither a dump (.xray) nor a page's trace (.json.gz): it begins with the \
                 bytes {:02x?}",
                path.display(),
                &bytes[..bytes.len().min(4)]
            );
            Err(Exit::message(Code::Failure, what))
        }
        other => other.with_context(name).or_exit(Code::Failure),
    }
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
