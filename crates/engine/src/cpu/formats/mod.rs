//! What the CPU's products know of each format: how lanes hold weights, and how codes are widened.
//!
//! The format is chosen once for each product of tiles ([`multiply`]) and each activation
//! ([`spread`]); the loops below that are compiled for each format.

mod bf16;
mod fp8;

use super::matvec::{MatVec, Spread};
use super::simd::{LANES, Registers};
use monolith_abi::WeightFormat;
use monolith_abi::formats::{TILE_ROWS, bf16::FRAGMENT_COLS, fp8::FRAGMENT_COLS as FP8_COLS};

/// A set of instructions, and how it widens each format's codes.
pub(crate) trait Level: Registers + fp8::Widen {}

impl<S: Registers + fp8::Widen> Level for S {}

/// Lane groups of a fragment: group `g` holds rows `g` and `g + 8`.
pub(crate) const GROUPS: usize = TILE_ROWS / 2;

/// 16 words: what one lane group of a fragment holds.
pub(crate) type Group = [u8; 4 * LANES];

/// How lanes hold the weights of a lane group.
///
/// This is a trait and not a closure: a closure that the compiler does not inline is compiled
/// without the level's instructions, and then every vector instruction in it is a call.
pub(crate) trait Lanes<const WEIGHTS: usize> {
    /// Sums that two registers for 16 lanes leave room for, beside what a product needs.
    const SUMS: usize;

    /// Multiplies a group's weights by their columns' values and adds the products to the sums of
    /// `M` registers of lanes, beginning with the register `first`.
    fn add<S: Level, const M: usize>(
        simd: S,
        sums: &mut [S::f32s; M],
        group: &Group,
        first: usize,
        x: &[[S::f32s; M]; WEIGHTS],
    );

    /// The sums of the upper and the lower row of four neighbouring lanes.
    fn rows(lanes: [f32; 4]) -> [f32; 2];
}

/// Spreads an activation for weights of this format.
pub(crate) fn spread(format: WeightFormat, x: &[f32], out: &mut Spread) {
    match format {
        WeightFormat::Bf16 => out.fill::<{ bf16::PAIR }, FRAGMENT_COLS>(x, &bf16::COLUMNS),
        WeightFormat::Fp8 => out.fill::<{ fp8::QUAD }, FP8_COLS>(x, &fp8::COLUMNS),
    }
}

/// Multiplies tiles of this format.
#[inline(always)]
pub(crate) fn multiply<S: Level, const R: usize>(format: WeightFormat, simd: S, of: MatVec<'_>) {
    match format {
        WeightFormat::Bf16 => bf16::product::<S, R>(simd, of),
        WeightFormat::Fp8 => fp8::product::<S, R>(simd, of),
    }
}
