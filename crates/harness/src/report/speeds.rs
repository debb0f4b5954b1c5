//! Which speeds of a run may be shown, and their table.

use super::quality::{quality_cell, quality_of};
use crate::HarnessError;
use crate::bench::{Row, predictions};
use crate::environment::Environment;
use crate::gate::{self, GateRecord, ROWS, Rule, refusals};
use crate::markdown::cell;
use crate::quality::Kept;
use crate::runs::RunFolder;
use crate::subject::{Ours, Subject};
use std::fmt::Write;

/// A gate's record, checked against its folder.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptGate {
    /// The record.
    pub record: GateRecord,
    /// Why the folder does not confirm the record; empty if it does.
    pub doubts: Vec<String>,
    /// Whether the reference's summary is in the folder. Older runs kept the last one only.
    pub has_reference: bool,
}

impl KeptGate {
    /// Compares a record with the reference's summary in its folder.
    pub fn of(folder: &RunFolder, record: GateRecord) -> KeptGate {
        let (doubts, has_reference) = match folder.reference(&record) {
            Ok(Some(reference)) => (gate::contradictions(&record, &reference), true),
            Ok(None) if record.schema_version <= gate::SCHEMA_VERSION_OLDEST => (Vec::new(), false),
            Ok(None) => (vec!["the gate's reference is not in the run's folder".into()], false),
            Err(error) => (vec![error.to_string()], false),
        };
        KeptGate { record, doubts, has_reference }
    }
}

/// Returns why a row's speed must not be shown; empty if it may be.
///
/// Our engine needs a gate record in the folder that allows the speed. Another engine's row may
/// state that its gate failed, or state nothing.
pub fn row_refusals(row: &Row, gates: &[KeptGate], environment: &Environment) -> Vec<String> {
    let mut reasons = Vec::new();
    if row.run_id != environment.run_id {
        reasons.push("measured in another run".into());
    }
    if row.gpu != environment.gpu {
        reasons.push(format!("measured on {}, not on {}", row.gpu, environment.gpu));
    }
    if row.gate_passed == Some(false) {
        reasons.push("its gate did not pass".into());
    }
    let Subject::Ours(subject) = row.subject() else { return reasons };
    if row.gate_passed != Some(true) {
        reasons.push("no gate is said to have passed".into());
    }
    match gates.iter().map(|gate| gate_refusals(row, &subject, gate)).min_by_key(Vec::len) {
        None => reasons.push("no gate record".into()),
        Some(least) => reasons.extend(least),
    }
    reasons
}

/// Returns why a gate does not allow the row's speed; empty if it does.
fn gate_refusals(row: &Row, subject: &Ours, gate: &KeptGate) -> Vec<String> {
    let mut reasons = refusals(&gate.record, subject, &row.prompt_ids_sha256);
    if row.gate_rule != Some(gate.record.checks.tokens.rule) {
        reasons.push("the gate had another rule".into());
    }
    if row.gate_rows.is_some_and(|rows| rows != gate.record.checks.logits.rows) {
        reasons.push("the gate compared another number of logits rows".into());
    }
    reasons.extend(gate.doubts.iter().cloned());
    reasons
}

/// A run's rows by whether their speed may be shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SortedRows {
    /// Rows whose speed may be shown.
    pub shown: Vec<Row>,
    /// The others, with the reason.
    pub hidden: Vec<(Row, String)>,
    /// Notes, one sentence each.
    pub notes: Vec<String>,
}

/// Sorts the rows of a run by whether their speed may be shown.
///
/// If a test was measured more than once, the last row counts.
///
/// # Errors
/// A folder that cannot be read.
pub fn sorted_rows(folder: &RunFolder) -> Result<SortedRows, HarnessError> {
    let environment = folder.environment()?;
    let (records, mut notes) = folder.gates()?;
    let gates = records.into_iter().map(|record| KeptGate::of(folder, record));
    let gates: Vec<KeptGate> = gates.collect();
    let key = |row: &Row| {
        let Row { engine, variant, format, model, test, .. } = row;
        [engine, variant, format, model, test].map(String::clone)
    };
    let mut last: Vec<Row> = Vec::new();
    for row in folder.rows()? {
        match last.iter_mut().find(|earlier| key(earlier) == key(&row)) {
            Some(earlier) => *earlier = row,
            None => last.push(row),
        }
    }
    let mut sorted = SortedRows::default();
    for row in last {
        let reasons = row_refusals(&row, &gates, &environment);
        if reasons.is_empty() {
            sorted.shown.push(row);
        } else {
            sorted.hidden.push((row, reasons.join("; ")));
        }
    }
    notes.extend(folder.torn());
    notes.extend(without_reference(&sorted.shown, &gates));
    sorted.notes = notes;
    Ok(sorted)
}

/// Names the engines whose gate cannot be compared with its reference again.
fn without_reference(shown: &[Row], gates: &[KeptGate]) -> Option<String> {
    let lacks = |row: &&Row| {
        let Subject::Ours(subject) = row.subject() else { return false };
        let allows = |gate: &&KeptGate| gate_refusals(row, &subject, gate).is_empty();
        gates.iter().filter(allows).all(|gate| !gate.has_reference)
    };
    let mut names: Vec<String> = Vec::new();
    for row in shown.iter().filter(lacks) {
        let name = format!("{} ({}) on {}", row.variant, row.format, row.model);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let what = "The run kept no reference for the gate of";
    (!names.is_empty()).then(|| format!("{what} {}.", names.join(", ")))
}

/// Renders a table of speeds and a list of the rows without one.
pub(super) fn tables(sorted: &SortedRows, qualities: &[Kept]) -> String {
    let SortedRows { shown, hidden, notes } = sorted;
    let mut text = String::new();
    if !shown.is_empty() {
        text += &speeds(shown, qualities);
        let predictions = predictions(shown);
        if !predictions.is_empty() {
            text += &(predictions + "\n");
        }
    }
    if !hidden.is_empty() {
        text += "Measured but not shown, for want of a passed gate:\n\n";
        // One line per model and reason: a model's tests are hidden for the same reason.
        let mut lines: Vec<([&str; 4], &str, Vec<&str>)> = Vec::new();
        for (row, reason) in hidden {
            let key = engine_key(row);
            match lines.iter_mut().find(|line| (line.0, line.1) == (key, reason)) {
                Some(line) => line.2.push(&row.test),
                None => lines.push((key, reason, vec![&row.test])),
            }
        }
        for ([engine, variant, format, model], reason, tests) in lines {
            let tests = tests.join(", ");
            let line = format!("{engine} {variant} ({format}) on {model}, {tests}: {reason}");
            let _ = writeln!(text, "- {}", cell(&line));
        }
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "{}\n", cell(note));
    }
    text
}

/// Renders engines down and tests across: median and range in tok/s, and the quality if measured.
fn speeds(rows: &[Row], qualities: &[Kept]) -> String {
    let with_quality = rows.iter().any(|row| quality_of(row, qualities).is_some());
    let mut tests: Vec<(Option<usize>, &str)> =
        rows.iter().map(|row| (row.position, row.test.as_str())).collect();
    tests.sort_unstable();
    tests.dedup();
    let mut engines: Vec<[&str; 4]> = rows.iter().map(engine_key).collect();
    let mut seen = Vec::new();
    engines.retain(|engine| {
        !seen.contains(engine) && {
            seen.push(*engine);
            true
        }
    });
    let names: Vec<&str> = tests.iter().map(|(_, test)| *test).collect();
    let mut text = format!(
        "tok/s, median (min to max){}\n\n| engine | variant | format | model | {} | bytes/token \
         | of roofline | gate |{}\n|---|---|---|---|{}--:|--:|---|{}\n",
        if rows.iter().any(|row| row.throttled == Some(true)) {
            "; * clocks were held back"
        } else {
            ""
        },
        names.iter().map(|name| cell(name)).collect::<Vec<_>>().join(" | "),
        if with_quality { " quality |" } else { "" },
        "--:|".repeat(names.len()),
        if with_quality { "---|" } else { "" }
    );
    for engine in engines {
        let own: Vec<&Row> = rows.iter().filter(|row| engine_key(row) == engine).collect();
        let cells = names.iter().map(|test| {
            own.iter().find(|row| row.test == *test).map_or(String::new(), |row| speed(row))
        });
        let first = own.iter().min_by_key(|row| row.position).expect("an engine has rows");
        let gate = gate_words(first);
        let fewer = first.gate_rows.filter(|&rows| rows < ROWS && first.gate_passed == Some(true));
        let fewer = fewer.map_or(String::new(), |rows| format!(", {rows} of {ROWS} logits rows"));
        let quality = quality_of(first, qualities).map(quality_cell).unwrap_or_default();
        let quality = if with_quality { format!(" {quality} |") } else { String::new() };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {gate}{fewer} |{quality}",
            engine.map(cell).join(" | "),
            cells.collect::<Vec<_>>().join(" | "),
            first.bytes_per_token.map_or(String::new(), |bytes| format!("{:.0} MB", bytes / 1e6)),
            crate::bench::percent(first.roofline_share),
        );
    }
    let mut scopes: Vec<&str> = rows.iter().map(|row| row.scope.as_str()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let _ = write!(text, "\nScope: {}.\n\n", cell(&scopes.join("; ")));
    text
}

/// What a row's gate said, in words.
pub(super) fn gate_words(row: &Row) -> &'static str {
    match (row.gate_passed, row.gate_rule) {
        (Some(true), Some(Rule::F32Settles)) => "passed, not as written (f32 settles)",
        (Some(true), _) => "passed",
        _ => "another engine",
    }
}

pub(super) fn engine_key(row: &Row) -> [&str; 4] {
    [&row.engine, &row.variant, &row.format, &row.model]
}

fn speed(row: &Row) -> String {
    let number = |value: Option<f64>| match value {
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
        None => "?".into(),
    };
    let star = if row.throttled == Some(true) { "*" } else { "" };
    let (least, most) = (number(row.tok_s_min), number(row.tok_s_max));
    format!("{}{star} ({least} to {most})", number(row.tok_s_median))
}
