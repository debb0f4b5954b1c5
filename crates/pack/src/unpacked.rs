//! A pack's weights in the order of a checkpoint.

use crate::formats::{self, StoredBytes};
use crate::layout::{Place, Section};
use crate::read::Pack;
use monolith_abi::WeightFormat;
use monolith_model::{Config, StoredView, Tensor, Weights};
use rayon::prelude::*;
use std::collections::HashMap;

/// Every tensor of a pack, row-major in memory and in the pack's format. The oracle computes from
/// it, so that it uses exactly the values that the engines use.
///
/// [`Weights::stored`] returns every tensor, [`Weights::view`] only those in bf16, since the
/// product of an E4M3 code and its scale is not a bf16 value.
#[derive(Clone, Debug)]
pub struct Unpacked {
    config: Config,
    tensors: HashMap<Tensor, (WeightFormat, StoredBytes)>,
}

impl Pack {
    /// Copies all weights out of the tiles. This takes as much memory as the pack.
    pub fn unpacked(&self) -> Unpacked {
        let config = self.config().clone();
        let tensors = Tensor::all(&config).into_par_iter().map(|tensor| {
            let (section, place) = Section::of_tensor(&config, tensor);
            let format = self.header().formats.of(section);
            if let Place::Vector(_) = place {
                let values = self.tensor_bytes(tensor);
                return (tensor, (format, StoredBytes { values, scales: Vec::new() }));
            }
            let mut rows = (0..tensor.shape(&config).0).map(|row| place.row(row));
            let bytes = formats::of(format).unpack(&self.matrix(section), &mut rows);
            (tensor, (format, bytes))
        });
        Unpacked { tensors: tensors.collect(), config }
    }
}

impl Weights for Unpacked {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stored(&self, tensor: Tensor) -> StoredView<'_> {
        let tensor = tensor.stored(&self.config);
        let (rows, cols) = tensor.shape(&self.config);
        let (format, bytes) = &self.tensors[&tensor];
        formats::of(*format).view([rows, cols], bytes)
    }
}
