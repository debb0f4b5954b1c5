//! Writes rows as text: Markdown, CSV, JSON, JSON lines, SQL.

use super::{Row, sql::sql};
use crate::markdown;
use crate::predict::Basis;
use serde_json::Value;

/// The output formats of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A table.
    Md,
    /// Comma-separated values with a line of names; lists are joined by `;`, objects are omitted.
    Csv,
    /// One array.
    Json,
    /// One object per line.
    Jsonl,
    /// A table, and one statement per row; fields as in CSV.
    Sql,
}

impl Output {
    /// Every form, by the name that `-o` takes.
    pub const ALL: [(&'static str, Output); 5] = [
        ("md", Output::Md),
        ("csv", Output::Csv),
        ("json", Output::Json),
        ("jsonl", Output::Jsonl),
        ("sql", Output::Sql),
    ];

    /// The form with this name.
    pub fn from_name(name: &str) -> Option<Output> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, output)| *output)
    }
}

/// Returns the rows as text, with a newline at its end.
pub fn rendered(rows: &[Row], output: Output) -> String {
    match output {
        Output::Md => markdown(rows),
        Output::Csv => csv(rows),
        Output::Json => serde_json::to_string_pretty(rows).expect("rows are JSON") + "\n",
        Output::Jsonl => rows
            .iter()
            .map(|row| serde_json::to_string(row).expect("rows are JSON") + "\n")
            .collect(),
        Output::Sql => sql(rows),
    }
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| engine | variant | format | test | t/s | median | min | max | GB/s | roofline \
         | predicted | error | gate | scope |\n\
         |---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|\n",
    );
    for row in rows {
        let number = |value: Option<f64>, digits| {
            value.map_or("".into(), |value| format!("{value:.digits$}"))
        };
        let cells = [
            row.engine.clone(),
            row.variant.clone(),
            row.format.clone(),
            row.test.clone(),
            format!("{} ± {}", number(row.avg_ts, 2), number(row.stddev_ts, 2)),
            number(row.tok_s_median, 2),
            number(row.tok_s_min, 2),
            number(row.tok_s_max, 2),
            number(row.gb_s, 1),
            percent(row.roofline_share),
            number(row.predicted_tok_s, 0),
            signed_percent(row.predicted.prediction_error),
        ];
        let cells = cells.map(|text| markdown::cell(&text)).join(" | ");
        // The gate's cell is our own Markdown.
        text += &format!("| {cells} | {} | {} |\n", gate(row), markdown::cell(&row.scope));
    }
    let predictions = predictions(rows);
    if predictions.is_empty() { text } else { text + "\n" + &predictions }
}

/// Renders what was predicted for each row, part by part; empty if nothing was.
pub(crate) fn predictions(rows: &[Row]) -> String {
    let shown = rows.iter().filter(|row| row.predicted.prediction_error.is_some());
    let lines: String = shown.clone().map(prediction_line).collect();
    let mut bases: Vec<String> = Vec::new();
    for row in shown {
        let basis = row.prediction.as_ref().and_then(|prediction| prediction.basis.as_ref());
        let basis = basis.map(|basis| basis_words(basis, &row.gpu));
        bases.extend(basis.filter(|words| !bases.contains(words)));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "{PREDICTIONS_HEAD}{lines}\nError: how much longer a token took than predicted. {}\n",
        bases.join(" ")
    )
}

const PREDICTIONS_HEAD: &str = "\
us a token, and the parts of the prediction

| variant | format | model | test | measured | predicted | error | weights | hand-offs | compute \
| head | argmax | launch |
|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

fn prediction_line(row: &Row) -> String {
    let us = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
    let of_speed = |speed: Option<f64>| us(speed.map(|speed| 1e6 / speed));
    let cells = [
        row.variant.clone(),
        row.format.clone(),
        row.model.clone(),
        row.test.clone(),
        of_speed(row.tok_s_median),
        of_speed(row.predicted_tok_s),
        signed_percent(row.predicted.prediction_error),
        us(row.predicted.predicted_weights_us),
        us(row.predicted.predicted_hand_offs_us),
        us(row.predicted.predicted_compute_us),
        us(row.predicted.predicted_head_us),
        us(row.predicted.predicted_argmax_us),
        us(row.predicted.predicted_launch_us),
    ];
    format!("| {} |\n", cells.map(|text| markdown::cell(&text)).join(" | "))
}

/// Says what a prediction for a GPU is based on.
fn basis_words(basis: &Basis, gpu: &str) -> String {
    let run = markdown::cell(&basis.run);
    if basis.gpu == gpu {
        format!("The prediction's numbers were fitted to {run}.")
    } else {
        let own = markdown::cell(&basis.gpu);
        format!("The prediction's numbers are those of another GPU ({own}, {run}), scaled.")
    }
}

/// Describes the row's gate; empty for another engine.
fn gate(row: &Row) -> &'static str {
    match row.gate_passed {
        Some(true) => "passed",
        Some(false) => "*unverified*",
        None => "",
    }
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share))
}

pub(crate) fn signed_percent(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:+.1}%", 100.0 * share))
}

fn csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let fields = flat(row);
        if index == 0 {
            let names = fields.iter().map(|(name, _)| name);
            writer.write_record(names).expect("memory is written to");
        }
        let cells = fields.iter().map(|(_, value)| cell(value));
        writer.write_record(cells).expect("memory is written to");
    }
    String::from_utf8(writer.into_inner().expect("memory is written to")).expect("cells are UTF-8")
}

/// Returns a row's fields without its objects. Every row has the same fields, although an object
/// may be absent in one row and present in another.
pub(super) fn flat(row: &Row) -> Vec<(String, Value)> {
    const NESTED: [&str; 4] = ["roofline", "prediction", "telemetry", "energy"];
    match serde_json::to_value(row).expect("rows are JSON") {
        Value::Object(fields) => {
            fields.into_iter().filter(|(name, _)| !NESTED.contains(&name.as_str())).collect()
        }
        _ => Vec::new(),
    }
}

/// Formats a value for a cell.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    }
}
