//! The README of a run's folder: a report of its other files.

use super::quality::quality_table;
use super::speeds::{sorted_rows, tables};
use crate::HarnessError;
use crate::bench::{StreamRecord, signed_percent};
use crate::files::write_whole;
use crate::gate::{GateRecord, Rule};
use crate::markdown::{cell, code};
use crate::runs::RunFolder;
use monolith_text::printable;
use std::fmt::Write;

/// Writes the README of a run's folder, from its other files: after every file that is added.
///
/// # Errors
/// A file that cannot be read or written.
pub fn write_readme(folder: &RunFolder) -> Result<(), HarnessError> {
    write_whole(&folder.path.join("README.md"), &run_readme(folder)?)
}

/// Renders the README of a run's folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn run_readme(folder: &RunFolder) -> Result<String, HarnessError> {
    let environment = folder.environment()?;
    let sorted = sorted_rows(folder)?;
    let mut text = format!("# {}\n\nWritten from the files beside it.\n\n", folder.name);
    let (kind, gpu) = (cell(&environment.kind), cell(&environment.gpu));
    let _ = writeln!(text, "- {kind}: {gpu}");
    let (run_id, date) = (code(&environment.run_id), cell(&environment.date));
    let _ = writeln!(text, "- run: {run_id}, begun {date}");
    if let Some(gpu) = &environment.nvml {
        let (driver, cuda) = (gpu.driver.as_deref(), gpu.cuda.as_deref());
        let known = |value: Option<&str>| cell(value.unwrap_or("unknown"));
        let _ = writeln!(text, "- driver {}, CUDA up to {}", known(driver), known(cuda));
    }
    if let Some(reason) = &environment.nvml_absent {
        let _ = writeln!(text, "- no telemetry: {}", cell(reason));
    }
    text += "\n## Commands\n\n";
    for command in folder.commands()? {
        let versions = cell(&command.versions.join(", "));
        let _ = writeln!(text, "- {} ({versions})", code(&command.command));
    }
    text += "\n## Gates\n\n";
    for gate in folder.gates()?.0 {
        text += &gate_lines(&gate);
    }
    let qualities = folder.qualities()?;
    text += "\n## Speeds\n\n";
    text += &tables(&sorted, &qualities);
    let table = quality_table(&qualities, &environment.run_id);
    if !table.is_empty() {
        text += &format!("## Quality\n\n{table}");
    }
    let text = format!("{}{}", text.trim_end(), stream_lines(folder)?);
    Ok(printable(text.trim_end()).into_owned() + "\n")
}

/// Describes the token streams; empty without any.
fn stream_lines(folder: &RunFolder) -> Result<String, HarnessError> {
    let records = folder.streams()?.0;
    if records.is_empty() {
        return Ok(String::new());
    }
    let mut text: String =
        "\n\n## Token streams\n\nThe time of every token; of each prompt the median run.\n\n"
            .into();
    for StreamRecord { subject, model, test, n_gen, clock, pass, streams, .. } in &records {
        let _ = writeln!(
            text,
            "- {} ({}) on {}: {} of {} prompts, {n_gen} tokens each, {} after each step; the pass \
             made {:.0} tok/s, where the median of {} is {:.0}: {} a token",
            cell(&subject.variant),
            cell(&subject.format),
            cell(model),
            streams.len(),
            pass.prompts,
            cell(clock),
            pass.tok_s,
            cell(test),
            pass.headline_tok_s,
            signed_percent(Some(pass.cost())),
        );
    }
    Ok(text)
}

/// Describes a gate in words.
fn gate_lines(gate: &GateRecord) -> String {
    let (tokens, reference) = (&gate.checks.tokens, &gate.reference);
    let failures = gate.checks.failures(reference);
    let passed = if failures.is_empty() { "passed" } else { "failed" };
    let (variant, format) = (cell(&gate.subject.variant), cell(&gate.subject.format));
    let rule = match tokens.rule {
        Rule::Margin => "",
        Rule::F32Settles => ", not as written (f32 settles)",
    };
    let mut text = format!("- {variant} ({format}): {passed}{rule}; ");
    let _ = writeln!(
        text,
        "{} of {} tokens as {}; of {} others {} are excused by a top-2 margin below {:.4}, and {} \
         are what the reference says in f32",
        tokens.matches,
        tokens.positions,
        cell(&reference.engine),
        tokens.divergences.len(),
        tokens.exempt,
        reference.tolerance,
        tokens.as_f32
    );
    for failure in failures {
        let _ = writeln!(text, "  - {}", cell(&failure));
    }
    text
}
