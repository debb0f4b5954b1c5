//! Weights held in memory: small models made by tests and tools.

use crate::{Bf16View, Config, StoredView, Tensor, Weights};
use half::bf16;
use std::collections::HashMap;

/// A model whose tensors live in memory and can be changed.
#[derive(Clone, Debug)]
pub struct MemoryWeights {
    config: Config,
    tensors: HashMap<Tensor, Vec<u8>>,
}

impl MemoryWeights {
    /// A model whose every value is `value(tensor, row, col)`, rounded to bf16.
    pub fn from_fn(
        config: &Config,
        mut value: impl FnMut(Tensor, usize, usize) -> f32,
    ) -> MemoryWeights {
        let tensors = Tensor::all(config).into_iter().map(|tensor| {
            let (rows, cols) = tensor.shape(config);
            let bytes = (0..rows * cols)
                .flat_map(|at| bf16::from_f32(value(tensor, at / cols, at % cols)).to_le_bytes())
                .collect();
            (tensor, bytes)
        });
        MemoryWeights { config: config.clone(), tensors: tensors.collect() }
    }

    /// Sets one element, rounded to bf16.
    ///
    /// # Panics
    /// If the tensor or the element does not exist.
    pub fn set(&mut self, tensor: Tensor, row: usize, col: usize, value: f32) {
        let (rows, cols) = tensor.shape(&self.config);
        assert!(row < rows && col < cols, "{}: no element {row}, {col}", tensor.name());
        let at = (row * cols + col) * 2;
        let bytes = self.tensors.get_mut(&tensor).expect("every tensor of the config is held");
        bytes[at..at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes());
    }

    /// The configuration; only what does not change shapes may be changed (theta, eps).
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }
}

impl Weights for MemoryWeights {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stored(&self, tensor: Tensor) -> StoredView<'_> {
        let tensor = tensor.stored(&self.config);
        let (rows, cols) = tensor.shape(&self.config);
        StoredView::Bf16(Bf16View::new(rows, cols, &self.tensors[&tensor]))
    }
}
