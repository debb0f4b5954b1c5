//! The KV cache of one layer.

use half::bf16;
use ndarray::{ArrayRef2, ArrayView2, s};

/// The format of keys and values in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFormat {
    /// f32, as computed.
    F32,
    /// Rounded to bf16 on writing (keys after QK-norm and RoPE), as the engines' cache does;
    /// attention reads the rounded values, also those of the current position.
    Bf16,
}

/// Keys (after QK-norm and RoPE) and values of one layer, one row a position.
#[derive(Clone, Debug)]
pub struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
    kv_dim: usize,
    format: KvFormat,
}

impl LayerCache {
    /// An empty cache of rows of `kv_dim` elements.
    pub fn new(kv_dim: usize, format: KvFormat) -> LayerCache {
        LayerCache { keys: Vec::new(), values: Vec::new(), kv_dim, format }
    }

    /// Positions held.
    pub fn positions(&self) -> usize {
        self.keys.len() / self.kv_dim
    }

    /// Keys, `[positions, kv_dim]`.
    pub fn keys(&self) -> ArrayView2<'_, f32> {
        self.view(&self.keys)
    }

    /// Values, `[positions, kv_dim]`.
    pub fn values(&self) -> ArrayView2<'_, f32> {
        self.view(&self.values)
    }

    /// Forgets every position from `positions` on.
    pub fn truncate(&mut self, positions: usize) {
        self.keys.truncate(positions * self.kv_dim);
        self.values.truncate(positions * self.kv_dim);
    }

    /// Appends rows of keys and values, rounded as the format says.
    pub(crate) fn append(&mut self, keys: &ArrayRef2<f32>, values: &ArrayRef2<f32>) {
        let format = self.format;
        let stored = |&x: &f32| match format {
            KvFormat::F32 => x,
            KvFormat::Bf16 => bf16::from_f32(x).to_f32(),
        };
        self.keys.extend(keys.iter().map(stored));
        self.values.extend(values.iter().map(stored));
    }

    /// Keys and values of one kv head, `[positions, head_dim]` each.
    pub(crate) fn head(
        &self,
        head: usize,
        head_dim: usize,
    ) -> (ArrayView2<'_, f32>, ArrayView2<'_, f32>) {
        let columns = s![.., head * head_dim..(head + 1) * head_dim];
        (self.keys().slice_move(columns), self.values().slice_move(columns))
    }

    fn view<'a>(&self, rows: &'a [f32]) -> ArrayView2<'a, f32> {
        ArrayView2::from_shape((self.positions(), self.kv_dim), rows)
            .expect("rows are appended whole")
    }
}
