//! The quantization error, as `pack` and `inspect` show it.

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use monolith_pack::{Header, KindReport};

/// Renders a line for each kind of matrix, and below it which rows of an FP8 checkpoint were
/// quantized here; `None` for a pack without quantized matrices.
pub fn table(header: &Header) -> Option<String> {
    let kinds = header.quantization_by_kind();
    if kinds.is_empty() {
        return None;
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "quantized",
        "format",
        "matrices",
        "mean error",
        "worst",
        "in",
        "worst row",
        "saturated",
        "became 0",
    ]);
    for kind in &kinds {
        table.add_row(row(kind));
    }
    for column in [2, 3, 4, 6, 7, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.to_string();
    let lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
    Some([lines.join("\n"), taken_over(&kinds)].concat())
}

fn row(kind: &KindReport) -> [String; 9] {
    let share = |error: f32| format!("{:.3}%", 100.0 * error);
    [
        kind.kind.clone(),
        kind.format.clone(),
        kind.matrices.to_string(),
        share(kind.mean_error),
        share(kind.worst_error),
        kind.worst_section.clone(),
        share(kind.worst_row_error),
        kind.saturated.to_string(),
        format!("{:.3}%", 100.0 * kind.zeros as f64 / kind.weights as f64),
    ]
}

/// Renders, for an FP8 checkpoint, a line for each kind of matrix: rows copied and rows quantized.
fn taken_over(kinds: &[KindReport]) -> String {
    if kinds.iter().all(|kind| kind.rows_taken_over == 0) {
        return String::new();
    }
    let line = |kind: &KindReport| {
        let KindReport { kind, rows_taken_over, rows_quantized, .. } = kind;
        format!(
            "\n{kind}: {rows_taken_over} rows copied from the checkpoint's FP8, \
             {rows_quantized} quantized here"
        )
    };
    kinds.iter().map(line).collect()
}
