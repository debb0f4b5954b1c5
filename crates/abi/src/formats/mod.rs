//! The formats of weights: how an element is encoded, which weights share a scale, and how a tile
//! lies in memory for the instructions that multiply by it.
//!
//! A format is a row of [`WeightFormat`] and a file of the same name in each layer: here, and in
//! `formats` of `pack`, of `engine::cpu` and of the kernel, and in `stored` of `model`.

pub mod bf16;
pub mod fp8;
mod map;

pub use map::{FormatMap, MatrixKind};

wire_enum! {
    /// How a matrix's weights are encoded.
    WeightFormat {
        /// As in the checkpoint.
        Bf16 = 0, "bf16";
        /// E4M3 (four bits of exponent, three of mantissa, no infinities), and an f32 scale a row.
        Fp8 = 1, "fp8";
    }
}

wire_enum! {
    /// How the kernel multiplies: the instructions decide in which order a tile's elements lie.
    ProductPath {
        /// `mma.sync.m16n8k16`, one fragment a warp.
        MmaSync = 0, "mma.sync";
    }
}

/// Rows of a tile (and of the `m16n8k16` A operand).
pub const TILE_ROWS: usize = 16;

/// The weights that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// There are no scales: a code is its value.
    None,
    /// All weights of a row.
    Row,
    /// This many successive weights of a row.
    Columns(usize),
}

/// The place of the scales of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// There are none.
    None,
    /// One f32 a row, in order of the rows, behind the tile's fragments. The weight stream skips
    /// them; the epilogue reads them.
    RowBehindTile,
    /// In the weight stream: the last bytes of each fragment, this many, counted in
    /// [`TileGeometry::fragment_bytes`]. It is the place for scales of a group of columns, which
    /// are needed while the fragment is multiplied.
    InFragment(usize),
}

/// The layout of a tile in memory: whole fragments one after the other, then what is behind them.
#[derive(Clone, Copy, Debug)]
pub struct TileGeometry {
    /// Bits of an element.
    pub bits: usize,
    /// Columns of a fragment, of which each has [`TILE_ROWS`] rows.
    pub fragment_cols: usize,
    /// Bytes of a fragment, including scales in it.
    pub fragment_bytes: usize,
    /// Position, in elements, of (row, column) inside a fragment.
    pub order: fn(usize, usize) -> usize,
    /// The order's name in a pack's header.
    pub order_name: &'static str,
    /// The place of the scales.
    pub scales: Scales,
}

/// Bytes of an f32 scale.
const ROW_SCALE_BYTES: usize = 4;

impl TileGeometry {
    /// Number of fragments in a tile of this many columns.
    pub const fn fragments(&self, cols: usize) -> usize {
        cols.div_ceil(self.fragment_cols)
    }

    /// Columns, rounded up to whole fragments.
    pub const fn padded_cols(&self, cols: usize) -> usize {
        self.fragments(cols) * self.fragment_cols
    }

    /// Bytes behind a tile's fragments.
    pub const fn behind_bytes(&self) -> usize {
        match self.scales {
            Scales::RowBehindTile => TILE_ROWS * ROW_SCALE_BYTES,
            Scales::None | Scales::InFragment(_) => 0,
        }
    }

    /// Bytes of a tile of this many columns.
    pub const fn tile_bytes(&self, cols: usize) -> usize {
        self.fragments(cols) * self.fragment_bytes + self.behind_bytes()
    }

    /// Bytes of one row's elements and scales, without padding columns: the cost of reading a
    /// single row. Parts of a byte count as a byte.
    pub const fn row_bytes(&self, cols: usize) -> usize {
        let scales = match self.scales {
            Scales::None => 0,
            Scales::RowBehindTile => ROW_SCALE_BYTES,
            // In proportion to the columns: a row's part of a fragment's scales.
            Scales::InFragment(bytes) => (cols * bytes).div_ceil(self.fragment_cols * TILE_ROWS),
        };
        (cols * self.bits).div_ceil(8) + scales
    }

    /// The first bit of an element, from the start of its tile.
    pub fn bit_of(&self, row: usize, col: usize) -> usize {
        let fragment = col / self.fragment_cols * self.fragment_bytes;
        8 * fragment + self.bits * (self.order)(row, col % self.fragment_cols)
    }
}

impl WeightFormat {
    /// The weights that share a scale.
    pub const fn group(self) -> Group {
        match self {
            WeightFormat::Bf16 => bf16::GROUP,
            WeightFormat::Fp8 => fp8::GROUP,
        }
    }

    /// The layout of a tile, for the instructions that multiply by it.
    pub const fn geometry(self, path: ProductPath) -> &'static TileGeometry {
        match (self, path) {
            (WeightFormat::Bf16, ProductPath::MmaSync) => &bf16::MMA_SYNC,
            (WeightFormat::Fp8, ProductPath::MmaSync) => &fp8::MMA_SYNC,
        }
    }

    /// Whether weights have scales, and so were quantized by somebody.
    pub const fn has_scales(self) -> bool {
        !matches!(self.group(), Group::None)
    }

    /// Bits of an element.
    pub const fn bits(self) -> usize {
        self.geometry(ProductPath::MmaSync).bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Like NVFP4: 4 bits, and a byte of scale for 16 columns of each row, in the fragment.
    const PRETEND: TileGeometry = TileGeometry {
        bits: 4,
        fragment_cols: 64,
        fragment_bytes: TILE_ROWS * 64 / 2 + TILE_ROWS * 4,
        order: |row, col| 64 * row + col,
        order_name: "pretend",
        scales: Scales::InFragment(TILE_ROWS * 4),
    };

    fn all() -> impl Iterator<Item = &'static TileGeometry> {
        let paths = |format: &WeightFormat| {
            let format = *format;
            ProductPath::ALL.iter().map(move |&path| format.geometry(path))
        };
        WeightFormat::ALL.iter().flat_map(paths).chain([&PRETEND])
    }

    #[test]
    fn the_order_of_elements_is_a_permutation_that_fits_the_fragment() {
        for geometry in all() {
            let cols = geometry.fragment_cols;
            let places = (0..TILE_ROWS).flat_map(|row| (0..cols).map(move |col| (row, col)));
            let seen: HashSet<_> = places.map(|(row, col)| (geometry.order)(row, col)).collect();
            assert_eq!(seen.len(), TILE_ROWS * cols, "{}", geometry.order_name);
            assert!(seen.into_iter().all(|at| at < TILE_ROWS * cols));
            let in_fragment = match geometry.scales {
                Scales::InFragment(bytes) => bytes,
                Scales::None | Scales::RowBehindTile => 0,
            };
            let elements = TILE_ROWS * cols * geometry.bits / 8;
            assert_eq!(geometry.fragment_bytes, elements + in_fragment);
        }
    }

    #[test]
    fn bytes_of_a_tile_and_of_a_row() {
        let [bf16, fp8] = [&bf16::MMA_SYNC, &fp8::MMA_SYNC];
        assert_eq!((bf16.tile_bytes(1024), bf16.tile_bytes(17)), (32_768, 1024));
        assert_eq!((fp8.tile_bytes(1024), fp8.tile_bytes(33)), (16_384 + 64, 1024 + 64));
        assert_eq!((bf16.row_bytes(1024), fp8.row_bytes(1024)), (2048, 1028));
        assert_eq!((bf16.padded_cols(17), fp8.padded_cols(33)), (32, 64));
    }

    #[test]
    fn elements_of_less_than_a_byte_have_bytes() {
        assert_eq!(PRETEND.row_bytes(1024), 512 + 64);
        assert_eq!(PRETEND.row_bytes(17), 9 + 2, "half a byte and part of a group count whole");
        assert_eq!(PRETEND.tile_bytes(1024), TILE_ROWS * PRETEND.row_bytes(1024));
        assert_eq!(PRETEND.tile_bytes(65), 2 * 576);
        assert_eq!(PRETEND.behind_bytes(), 0);
        assert_eq!(PRETEND.bit_of(1, 65), 8 * 576 + 4 * 65);
    }

    #[test]
    fn a_format_has_scales_where_it_has_a_group() {
        for &format in WeightFormat::ALL {
            for &path in ProductPath::ALL {
                let geometry = format.geometry(path);
                assert_eq!(geometry.bits, format.bits(), "{}", format.name());
                assert_eq!(format.has_scales(), geometry.scales != Scales::None);
            }
        }
    }
}
