//! A pack's weights in the order of a checkpoint.

use crate::layout::{Place, Section};
use crate::read::Pack;
use monolith_abi::WeightFormat;
use monolith_model::{Bf16View, Config, Fp8View, ScaleType, StoredView, Tensor, Weights};
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
    tensors: HashMap<Tensor, (Vec<u8>, Option<Vec<u8>>)>,
}

impl Pack {
    /// Copies all weights out of the tiles. This takes as much memory as the pack.
    pub fn unpacked(&self) -> Unpacked {
        let config = self.config().clone();
        let tensors = Tensor::all(&config).into_par_iter().map(|tensor| {
            let (section, place) = Section::of_tensor(&config, tensor);
            if self.header().formats.of(section) == WeightFormat::Bf16 {
                return (tensor, (self.tensor_bytes(tensor), None));
            }
            (tensor, self.codes_and_scales(tensor, section, place))
        });
        Unpacked { tensors: tensors.collect(), config }
    }

    fn codes_and_scales(
        &self,
        tensor: Tensor,
        section: Section,
        place: Place,
    ) -> (Vec<u8>, Option<Vec<u8>>) {
        let matrix = self.matrix(section);
        let rows = || (0..tensor.shape(self.config()).0).map(|row| place.row(row));
        let codes = rows().flat_map(|row| matrix.row_codes(row)).collect();
        let scales = rows().flat_map(|row| matrix.scale(row).to_le_bytes()).collect();
        (codes, Some(scales))
    }
}

impl Weights for Unpacked {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stored(&self, tensor: Tensor) -> StoredView<'_> {
        let tensor = tensor.stored(&self.config);
        let (rows, cols) = tensor.shape(&self.config);
        let (bytes, scales) = &self.tensors[&tensor];
        match scales {
            None => StoredView::Bf16(Bf16View::new(rows, cols, bytes)),
            Some(scales) => {
                StoredView::Fp8(Fp8View::new([rows, cols], bytes, scales, ScaleType::F32))
            }
        }
    }
}
