//! Writes rows as SQL: a table and its rows, for `sqlite3 FILE < rows.sql` and other databases.

use super::Row;
use super::output::flat;
use serde_json::Value;

/// The table's name.
const TABLE: &str = "monolith_bench";

/// Columns of whole numbers; truth values are 0 and 1.
const INTEGERS: [&str; 11] = [
    "schema_version",
    "position",
    "n_prompt",
    "n_gen",
    "n_depth",
    "blocks",
    "context",
    "gate_passed",
    "gate_rows",
    "xray",
    "throttled",
];

/// Columns of other numbers.
const REALS: [&str; 20] = [
    "tok_s_median",
    "tok_s_min",
    "tok_s_max",
    "avg_ts",
    "stddev_ts",
    "cv",
    "avg_ns",
    "stddev_ns",
    "launches_per_token",
    "bytes_per_token",
    "gb_s",
    "roofline_share",
    "predicted_tok_s",
    "prediction_error",
    "predicted_weights_us",
    "predicted_hand_offs_us",
    "predicted_compute_us",
    "predicted_head_us",
    "predicted_argmax_us",
    "predicted_launch_us",
];

/// Returns a statement that makes the table if there is none, and one that adds each row.
pub fn sql(rows: &[Row]) -> String {
    let rows: Vec<_> = rows.iter().map(flat).collect();
    let Some(first) = rows.first() else { return String::new() };
    let columns: Vec<String> =
        first.iter().map(|(name, _)| format!("  \"{name}\" {}", type_of(name))).collect();
    let mut text = format!("CREATE TABLE IF NOT EXISTS {TABLE} (\n{}\n);\n", columns.join(",\n"));
    for row in &rows {
        // Quoted, since `commit` is an SQL keyword.
        let names: Vec<String> = row.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let values: Vec<String> = row.iter().map(|(_, value)| literal(value)).collect();
        text += &format!(
            "INSERT INTO {TABLE} ({}) VALUES ({});\n",
            names.join(", "),
            values.join(", ")
        );
    }
    text
}

fn type_of(name: &str) -> &'static str {
    match name {
        _ if INTEGERS.contains(&name) => "INTEGER",
        _ if REALS.contains(&name) => "REAL",
        _ => "TEXT",
    }
}

/// Formats a value for SQL; a list becomes text with its items joined by `;`.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(truth) => u8::from(*truth).to_string(),
        Value::Number(number) => number.to_string(),
        other => format!("'{}'", super::output::cell(other).replace('\'', "''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_sql_reads_them() {
        for (value, text) in [
            (serde_json::json!(null), "NULL"),
            (serde_json::json!(true), "1"),
            (serde_json::json!(0.25), "0.25"),
            (serde_json::json!("it's"), "'it''s'"),
            (serde_json::json!([1.5, 2.5]), "'1.5;2.5'"),
        ] {
            assert_eq!(literal(&value), text);
        }
    }
}
