//! What a pack does with weights of each format: a trait, and a file for each format.

mod bf16;
mod fp8;

use crate::PackError;
use crate::layout::Section;
use crate::matrix::MatrixView;
use crate::quantize::Sums;
use crate::scales::ScaleSearch;
use monolith_abi::WeightFormat;
use monolith_model::{Config, StoredView, Tensor, Weights};

/// What depends on the format. A call does a whole row or more, so that loops over elements stand
/// in the format's own file and are compiled for it alone.
pub(crate) trait Format: Sync {
    /// Puts a tensor's row into a row of a tile of zeros: codes and scales as they are if the
    /// checkpoint stores the tensor in this format, else converted. Returns the row's part of the
    /// quantization error.
    ///
    /// # Errors
    /// [`PackError::Row`] and [`PackError::NotBf16`] for a row that the format cannot hold.
    fn put_row(
        &self,
        weights: &dyn Weights,
        from: (Tensor, usize),
        to: (usize, &mut [u8]),
        search: ScaleSearch,
    ) -> Result<Sums, PackError>;

    /// Checks a matrix section's bytes beyond their sha256, since a kernel multiplies any bytes.
    ///
    /// # Errors
    /// Describes the fault, with row and column as stored.
    fn check(&self, section: Section, config: &Config, bytes: &[u8]) -> Result<(), String>;

    /// Fills `out`, as wide as the matrix, with the values of one stored row.
    fn read_row(&self, matrix: &MatrixView, row: usize, out: &mut [f32]);

    /// Copies stored rows out of their tiles, in this order.
    fn unpack(&self, matrix: &MatrixView, rows: &mut dyn Iterator<Item = usize>) -> StoredBytes;

    /// A view of rows that [`Format::unpack`] copied; `shape` is rows and columns.
    fn view<'a>(&self, shape: [usize; 2], bytes: &'a StoredBytes) -> StoredView<'a>;
}

/// Rows in the order of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct StoredBytes {
    /// Values or codes, row after row.
    pub(crate) values: Vec<u8>,
    /// Scales; empty for a format without.
    pub(crate) scales: Vec<u8>,
}

/// What a pack does with weights of this format.
pub(crate) fn of(format: WeightFormat) -> &'static dyn Format {
    match format {
        WeightFormat::Bf16 => &bf16::Bf16,
        WeightFormat::Fp8 => &fp8::Fp8,
    }
}
