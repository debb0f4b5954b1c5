//! Renders tables from run records. Nothing in them is typed by hand, and no table mixes two GPUs.

use crate::HarnessError;
use crate::bench::Row;
use crate::environment::Environment;
use crate::gate::{self, GateRecord, ROWS, Rule, refusals};
use crate::markdown::{cell, code};
use crate::quality::{Agreement, Kept, QualityRecord, Reading, Verdicts, mismatches, note};
use crate::record::{Index, RunFolder};
use monolith_text::printable;
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

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
    if row.engine != "monolith" {
        return reasons;
    }
    if row.gate_passed != Some(true) {
        reasons.push("no gate is said to have passed".into());
    }
    match gates.iter().map(|gate| gate_refusals(row, gate)).min_by_key(Vec::len) {
        None => reasons.push("no gate record".into()),
        Some(least) => reasons.extend(least),
    }
    reasons
}

/// Returns why a gate does not allow the row's speed; empty if it does.
fn gate_refusals(row: &Row, gate: &KeptGate) -> Vec<String> {
    let mut reasons = refusals(&gate.record, &row.subject(), &row.prompt_ids_sha256);
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
        let mut allowing = gates.iter().filter(|gate| gate_refusals(row, gate).is_empty());
        row.engine == "monolith" && allowing.all(|gate| !gate.has_reference)
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
        for gpu in gpus {
            let own: Vec<&Run> = runs.iter().filter(|run| run.processor() == gpu).collect();
            text += &gpu_section(gpu.1, &own)?;
        }
        if text.is_empty() {
            text.push_str("Nothing was measured yet.\n");
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

/// Renders a table of speeds and a list of the rows without one.
fn tables(sorted: &SortedRows, qualities: &[Kept]) -> String {
    let SortedRows { shown, hidden, notes } = sorted;
    let mut text = String::new();
    if !shown.is_empty() {
        text += &speeds(shown, qualities);
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
        let gate = match (first.gate_passed, first.gate_rule) {
            (Some(true), Some(Rule::F32Settles)) => "passed, not as written (f32 settles)",
            (Some(true), _) => "passed",
            _ => "another engine",
        };
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

/// Returns the quality record of the row's own run for the row's engine.
fn quality_of<'a>(row: &Row, qualities: &'a [Kept]) -> Option<&'a QualityRecord> {
    let subject = row.subject();
    let own = |kept: &&Kept| {
        kept.doubt.is_none() && mismatches(&kept.record.measured.candidate, &subject).is_empty()
    };
    qualities.iter().rev().find(own).map(|kept| &kept.record)
}

/// Renders both verdicts of a format in a few words, the gate as written first.
fn quality_cell(record: &QualityRecord) -> String {
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let agreement = &record.numbers.agreement;
    let share = |reading| format!("{:.1}%", 100.0 * agreement.share(reading));
    let asked = |failures: &[String], begin: &str, asked: &str| {
        let fails = failures.iter().any(|failure| failure.starts_with(begin));
        if fails { format!(" ({asked} asked)") } else { String::new() }
    };
    let holds = |passed: bool| if passed { "" } else { "not " };
    let experimental = if record.is_experimental() { "experimental; " } else { "" };
    format!(
        "{experimental}{}as written: {} of greedy tokens agree{}, {:+.2}% perplexity{}; {}after \
         the same text: {}",
        holds(as_written.passed),
        share(Reading::AsWritten),
        asked(&as_written.failures, "agreement: ", "90%"),
        100.0 * record.numbers.perplexity.rise,
        asked(&as_written.failures, "perplexity: ", "at most +2%"),
        holds(after_the_same_text.passed),
        share(Reading::AfterTheSameText),
    )
}

/// Returns the notes of these models' cards on such figures, one sentence each.
fn model_notes<'a>(records: impl Iterator<Item = &'a QualityRecord>) -> String {
    let mut said: Vec<String> = Vec::new();
    for record in records {
        let line = note(record).map(|note| format!("{}: {note}.", record.measured.model));
        said.extend(line.filter(|line| !said.contains(line)));
    }
    if said.is_empty() { String::new() } else { said.join(" ") + "\n\n" }
}

/// Renders the quality records of a run, one line each, and the rejected records with the reason.
/// Empty if there are none.
fn quality_table(records: &[Kept], run_id: &str) -> String {
    let doubt = |kept: &Kept| {
        let measured = &kept.record.measured;
        let elsewhere =
            [&measured.reference, &measured.candidate].iter().any(|own| own.run_id != run_id);
        kept.doubt.clone().or(elsewhere.then(|| "measured in another run".into()))
    };
    let (hidden, shown): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| doubt(record).is_some());
    let shown: Vec<&QualityRecord> = shown.into_iter().map(|kept| &kept.record).collect();
    let mut text = String::new();
    if !shown.is_empty() {
        text += QUALITY_HEAD;
    }
    text.extend(shown.iter().map(|record| quality_line(record)));
    if !text.is_empty() {
        text.push('\n');
    }
    // Once for both tables: the speeds' may hold a figure of a record that has no line here.
    let believed = records.iter().filter(|kept| kept.doubt.is_none());
    text += &model_notes(believed.map(|kept| &kept.record));
    let mut notes: Vec<String> = shown.into_iter().flat_map(quality_notes).collect();
    for kept in hidden {
        let reason = doubt(kept).unwrap_or_default();
        notes.push(format!("- not shown: {}: {reason}\n", quality_name(&kept.record)));
    }
    if !notes.is_empty() {
        text += &(notes.concat() + "\n");
    }
    text
}

const QUALITY_HEAD: &str = "\
Quality against the same model in bf16. KL in nats. Greedy tokens that agree: each engine by
itself, up to the first difference, and teacher-forced. The gate is the verdict as written. The
last pairs are controls, nothing quantized: each by itself, and teacher-forced.

| model | variant | format | perplexity | in bf16 | rise | KL mean | KL 99% | by itself | prefix \
| forced | as written | after the same text | our bf16 and f32 | transformers' bf16 and f32 | text \
| tokens |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|--:|--:|---|--:|
";

fn quality_name(record: &QualityRecord) -> String {
    let measured = &record.measured;
    let variant = &measured.candidate.variant;
    let name = format!("{variant} ({}) on {}", measured.candidate_formats, measured.model);
    cell(&name)
}

/// Returns why a record fails, and which of its figures are less certain.
fn quality_notes(record: &QualityRecord) -> Vec<String> {
    let name = quality_name(record);
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let other = after_the_same_text.failures.iter();
    let other = other.filter(|failure| !as_written.failures.contains(failure));
    let all = as_written.failures.iter().chain(other);
    let mut notes: Vec<String> = all.map(|reason| format!("- {name}: {reason}\n")).collect();
    if record.tokens_sha256.is_none() {
        notes.push(format!("- {name}: the record keeps counts, not the tokens (version 1)\n"));
    }
    notes
}

fn quality_line(record: &QualityRecord) -> String {
    let measured = &record.measured;
    let (perplexity, kl) = (&record.numbers.perplexity, &record.numbers.kl);
    let agreement = &record.numbers.agreement;
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let pair = |agreement: Option<&Agreement>| match agreement {
        Some(Agreement { greedy, forced, .. }) => {
            format!("{}, {}", percent(*greedy), percent(*forced))
        }
        None => "not measured".into(),
    };
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let verdict = |passed: bool| if passed { "passed" } else { "failed" };
    let experimental = if record.is_experimental() { ", experimental" } else { "" };
    let cells = [
        cell(&measured.model),
        cell(&measured.candidate.variant),
        cell(&measured.candidate_formats),
        format!("{:.4}", perplexity.candidate),
        format!("{:.4}", perplexity.reference),
        format!("{:+.2}%", 100.0 * perplexity.rise),
        format!("{:.5}", kl.mean),
        format!("{:.5}", kl.p99),
        percent(agreement.greedy),
        percent(agreement.prefix),
        percent(agreement.forced),
        format!("**{}**{experimental}", verdict(as_written.passed)),
        verdict(after_the_same_text.passed).into(),
        pair(record.own_control.as_ref().map(|own| &own.agreement)),
        pair(record.control.as_ref().map(|control| &control.agreement)),
        cell(&measured.text.name),
        perplexity.scored.to_string(),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn engine_key(row: &Row) -> [&str; 4] {
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
    Ok(printable(text.trim_end()).into_owned() + "\n")
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
