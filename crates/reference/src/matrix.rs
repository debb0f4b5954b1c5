//! The two operations that several phases share: a product with stored weights, and RMSNorm.

use monolith_model::{StoredView, Tensor, Weights};
use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayRef2, ArrayView2, ArrayViewMut2, Axis};

/// Weight rows that one task converts to f32 and multiplies: 1 MiB at 1,024 columns, which fits
/// in a core's L2 cache, and leaves enough tasks for every core even at 1,024 rows.
const CHUNK_ROWS: usize = 256;

/// `out = x * weights^T`: `x` is `[positions, cols]`, `out` is `[positions, rows]`.
pub(crate) fn product_into(x: &ArrayRef2<f32>, weights: StoredView, mut out: ArrayViewMut2<f32>) {
    let chunks = out.axis_chunks_iter_mut(Axis(1), CHUNK_ROWS);
    chunks.into_par_iter().enumerate().for_each(|(chunk, mut out)| {
        let begin = chunk * CHUNK_ROWS;
        let rows = weights.rows_f32(begin..begin + out.ncols());
        let rows = ArrayView2::from_shape((out.ncols(), weights.cols()), &rows)
            .expect("rows_f32 gives rows * cols values");
        general_mat_mul(1.0, x, &rows.t(), 0.0, &mut out);
    });
}

/// `x * weights^T` as a new array `[positions, rows]`.
pub(crate) fn product(x: &ArrayRef2<f32>, weights: StoredView) -> Array2<f32> {
    let mut out = Array2::zeros((x.nrows(), weights.rows()));
    product_into(x, weights, out.view_mut());
    out
}

/// RMSNorm of every row of `x` with the named weight.
pub(crate) fn norm(weights: &dyn Weights, tensor: Tensor, x: &ArrayRef2<f32>) -> Array2<f32> {
    let gains = weights.stored(tensor).row_f32(0);
    let mut out = x.to_owned();
    for mut row in out.rows_mut() {
        let row = row.as_slice_mut().expect("a new array's rows are contiguous");
        norm_row(row, &gains, weights.config().norm_eps);
    }
    out
}

/// `row[i] = gains[i] * (row[i] / sqrt(mean(row^2) + eps))`.
///
/// The mean is summed in f64, so that the order of summation hardly matters; the rest is f32.
pub(crate) fn norm_row(row: &mut [f32], gains: &[f32], eps: f64) {
    let squares: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let scale = (1.0 / (squares / row.len() as f64 + eps).sqrt()) as f32;
    for (x, &gain) in row.iter_mut().zip(gains) {
        *x = gain * (*x * scale);
    }
}
