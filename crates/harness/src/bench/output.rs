//! Rows as text: Markdown, CSV, JSON, JSON lines.

use super::Row;
use serde_json::Value;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A table.
    Md,
    /// Comma-separated values with a line of names; lists are joined by `;`, objects left out.
    Csv,
    /// One array.
    Json,
    /// One object a line.
    Jsonl,
}

impl Output {
    /// Every form, by the name that `-o` takes.
    pub const ALL: [(&'static str, Output); 4] = [
        ("md", Output::Md),
        ("csv", Output::Csv),
        ("json", Output::Json),
        ("jsonl", Output::Jsonl),
    ];

    /// The form with this name.
    pub fn from_name(name: &str) -> Option<Output> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, output)| *output)
    }
}

/// The rows as text, with a line end at its end.
pub fn rendered(rows: &[Row], output: Output) -> String {
    match output {
        Output::Md => markdown(rows),
        Output::Csv => csv(rows),
        Output::Json => serde_json::to_string_pretty(rows).expect("rows are JSON") + "\n",
        Output::Jsonl => rows
            .iter()
            .map(|row| serde_json::to_string(row).expect("rows are JSON") + "\n")
            .collect(),
    }
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| engine | variant | format | test | t/s | median | min | max | GB/s | roofline \
         | predicted | scope |\n|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n",
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
            row.scope.clone(),
        ];
        text += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share))
}

fn csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let objects = rows.iter().map(|row| serde_json::to_value(row).expect("rows are JSON"));
    // An object that is absent in one row may be there in another: names are of all rows.
    let nested = ["roofline", "prediction", "telemetry", "energy"];
    for (index, object) in objects.enumerate() {
        let Value::Object(fields) = object else { continue };
        let flat: Vec<(String, String)> = fields
            .into_iter()
            .filter(|(name, _)| !nested.contains(&name.as_str()))
            .map(|(name, value)| (name, cell(&value)))
            .collect();
        if index == 0 {
            writer.write_record(flat.iter().map(|(name, _)| name)).expect("memory is written to");
        }
        writer.write_record(flat.iter().map(|(_, text)| text)).expect("memory is written to");
    }
    String::from_utf8(writer.into_inner().expect("memory is written to")).expect("cells are UTF-8")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    }
}
