//! Finds each tensor's place in the files, and checks its type and shape.

use super::shard::Shard;
use super::{INDEX, quantized};
use crate::stored::{bf16, fp8};
use crate::{Config, ModelError, ScaleType, Tensor, WideType};
use safetensors::tensor::Dtype;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// A file, and bytes of it.
pub(super) type Place = (usize, Range<usize>);

/// The place of a tensor's values, and their type; bf16 unless stated otherwise.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) values: Place,
    /// The stored type, if values are rounded to bf16.
    pub(super) wide: Option<WideType>,
    /// The scales of an FP8 tensor.
    pub(super) scales: Option<(Place, ScaleType)>,
}

/// Finds every tensor of this configuration.
///
/// # Errors
/// A tensor that is missing, of another shape or type, or that the model does not have (named).
pub(super) fn of_tensors(
    config: &Config,
    shards: &[Shard],
    listed_in: &BTreeMap<String, String>,
    quantized: bool,
) -> Result<HashMap<Tensor, Stored>, ModelError> {
    let mut places = HashMap::new();
    let mut known = BTreeSet::new();
    for tensor in Tensor::all(config) {
        let name = tensor.name();
        let shard = shard_of(&name, shards, listed_in)?;
        let stored = if quantized && quantized::is_fp8(&shards[shard], tensor)? {
            let values = (shard, place(&shards[shard], tensor, config, &[fp8::DTYPE])?.0);
            let scale_name = fp8::scale_name(&name);
            let scale_shard = shard_of(&scale_name, shards, listed_in)?;
            let scales = quantized::place_scales(shards, scale_shard, tensor, config)?;
            known.insert(scale_name);
            Stored { values, wide: None, scales: Some(scales) }
        } else {
            let (range, dtype) = place(&shards[shard], tensor, config, &bf16::DTYPES)?;
            Stored { values: (shard, range), wide: WideType::of(dtype), scales: None }
        };
        places.insert(tensor, stored);
        known.insert(name);
    }
    refuse_unknown(shards, &known, quantized)?;
    Ok(places)
}

/// The tensors with their places, in order of use.
pub(super) fn in_order<'a>(
    config: &Config,
    places: &'a HashMap<Tensor, Stored>,
) -> impl Iterator<Item = (Tensor, &'a Stored)> {
    let all = Tensor::all(config).into_iter();
    all.filter_map(|tensor| places.get(&tensor).map(|stored| (tensor, stored)))
}

/// Refuses tensors with other names: a bias, for instance, would change the result.
fn refuse_unknown(
    shards: &[Shard],
    known: &BTreeSet<String>,
    quantized: bool,
) -> Result<(), ModelError> {
    for shard in shards {
        for name in shard.names() {
            let ignored = name.ends_with("rotary_emb.inv_freq")
                || (quantized && fp8::is_for_activations(&name));
            if !ignored && !known.contains(&name) {
                let what = "not part of the model that config.json describes".into();
                return Err(shard.tensor_error(&name, what));
            }
        }
    }
    Ok(())
}

/// Returns the bytes of a tensor that has one of these types and the configuration's shape.
fn place(
    shard: &Shard,
    tensor: Tensor,
    config: &Config,
    types: &[Dtype],
) -> Result<(Range<usize>, Dtype), ModelError> {
    let name = tensor.name();
    let Some(info) = shard.info(&name) else {
        return Err(shard.tensor_error(&name, "missing".into()));
    };
    let (rows, cols) = tensor.shape(config);
    let wanted = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
    if !types.contains(&info.dtype) {
        let types: Vec<String> = types.iter().map(|dtype| format!("{dtype:?}")).collect();
        let what = format!("dtype {:?} ({} can be read)", info.dtype, types.join(", "));
        return Err(shard.tensor_error(&name, what));
    }
    if info.shape != wanted {
        let what = format!("shape {:?} (config.json asks for {wanted:?})", info.shape);
        return Err(shard.tensor_error(&name, what));
    }
    Ok((shard.bytes_of(info), info.dtype))
}

/// Returns the file that holds a tensor.
fn shard_of(
    name: &str,
    shards: &[Shard],
    listed_in: &BTreeMap<String, String>,
) -> Result<usize, ModelError> {
    if listed_in.is_empty() {
        return Ok(0);
    }
    let Some(file) = listed_in.get(name) else {
        let path = shards[0].path.with_file_name(INDEX);
        let what = "missing from the index".into();
        return Err(ModelError::Tensor { path, name: name.into(), what });
    };
    let at = shards.iter().position(|shard| shard.path.ends_with(file));
    Ok(at.expect("every file that the index names was opened"))
}
