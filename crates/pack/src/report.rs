//! The quantization error, one line for each kind of matrix.

use crate::header::Header;

/// The quantized matrices of one kind, all layers together.
#[derive(Clone, Debug, PartialEq)]
pub struct KindReport {
    /// `qkv`, `o_proj`, `gate_up`, `down`, `lm_head` or `embedding`.
    pub kind: String,
    /// The format's name.
    pub format: String,
    /// Number of matrices.
    pub matrices: usize,
    /// Mean of the matrices' relative errors (Frobenius norms).
    pub mean_error: f32,
    /// The largest of them.
    pub worst_error: f32,
    /// The section of the largest error.
    pub worst_section: String,
    /// The largest relative error of a single row.
    pub worst_row_error: f32,
    /// Weights that were clipped to the largest code's value.
    pub saturated: u64,
    /// Nonzero weights that became 0.
    pub zeros: u64,
    /// Total number of weights.
    pub weights: u64,
    /// Rows that were quantized here.
    pub rows_quantized: u64,
    /// Rows that were copied from the checkpoint.
    pub rows_taken_over: u64,
}

impl Header {
    /// The report of [`crate::Quantization`]s by kind of matrix, in order of use; empty for a pack
    /// without quantized matrices.
    pub fn quantization_by_kind(&self) -> Vec<KindReport> {
        let mut kinds: Vec<KindReport> = Vec::new();
        for entry in &self.sections {
            let Some(numbers) = &entry.quantization else { continue };
            let kind = entry.name.rsplit('.').next().unwrap_or(&entry.name);
            let one = KindReport {
                kind: kind.to_owned(),
                format: entry.format.clone(),
                matrices: 1,
                mean_error: numbers.relative_error,
                worst_error: numbers.relative_error,
                worst_section: entry.name.clone(),
                worst_row_error: numbers.worst_row_error,
                saturated: numbers.saturated,
                zeros: numbers.zeros,
                weights: (numbers.rows_quantized + numbers.rows_taken_over) * entry.cols as u64,
                rows_quantized: numbers.rows_quantized,
                rows_taken_over: numbers.rows_taken_over,
            };
            match kinds.iter_mut().find(|report| report.kind == kind) {
                Some(report) => report.add(one),
                None => kinds.push(one),
            }
        }
        kinds
    }
}

impl KindReport {
    fn add(&mut self, other: KindReport) {
        let count = self.matrices as f32;
        self.mean_error = (self.mean_error * count + other.mean_error) / (count + 1.0);
        self.matrices += 1;
        if other.worst_error > self.worst_error {
            self.worst_error = other.worst_error;
            self.worst_section = other.worst_section;
        }
        self.worst_row_error = self.worst_row_error.max(other.worst_row_error);
        self.saturated += other.saturated;
        self.zeros += other.zeros;
        self.weights += other.weights;
        self.rows_quantized += other.rows_quantized;
        self.rows_taken_over += other.rows_taken_over;
    }
}
