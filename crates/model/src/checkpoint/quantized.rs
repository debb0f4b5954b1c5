//! FP8 checkpoints: which of them are read, and where their scales are.
//!
//! Read are those of compressed-tensors (llm-compressor) with a scale for each output channel:
//! `weight` in E4M3 `[rows, cols]` beside `weight_scale` `[rows, 1]`. What is not a row's scale
//! (blocks, one scale a tensor, groups) is refused by name.

use super::{Checkpoint, Dtype, Place, Shard, Tensor};
use crate::{Config, ModelError, ScaleType};
use serde_json::Value;
use std::path::Path;

/// What to do with a checkpoint whose scales are not those of rows.
const CURE: &str = "only one scale for each row is read: name the bf16 checkpoint and pack it \
                    with `--format fp8`";

/// The configuration of a folder, and whether its tensors may be FP8.
///
/// # Errors
/// Those of [`Config::read`], and [`ModelError::Unsupported`] for a way of quantizing that is not
/// read.
fn read_config(path: &Path) -> Result<(Config, bool), ModelError> {
    let text = std::fs::read(path).map_err(ModelError::io(path))?;
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(&text) else {
        // It says what is wrong.
        return Ok((Config::parse(&text, path)?, false));
    };
    let Some(quantization) = fields.remove("quantization_config").filter(|value| !value.is_null())
    else {
        return Ok((Config::parse(&text, path)?, false));
    };
    check_quantization(&quantization).map_err(|what| ModelError::Unsupported {
        path: path.to_owned(),
        what: format!("quantization_config: {what}"),
    })?;
    let text = Value::Object(fields).to_string();
    Ok((Config::parse(text.as_bytes(), path)?, true))
}

/// Whether this is E4M3 with a scale a row.
fn check_quantization(value: &Value) -> Result<(), String> {
    let shown = |name: &str| value.get(name).unwrap_or(&Value::Null).to_string();
    if let Some(size) = value.get("weight_block_size").filter(|size| !size.is_null()) {
        return Err(format!(
            "quant_method {} with scales for blocks of {size} (weight_scale_inv): {CURE}",
            shown("quant_method")
        ));
    }
    if value.get("quant_method").and_then(Value::as_str) != Some("compressed-tensors") {
        return Err(format!(
            "quant_method {} (compressed-tensors is read): {CURE}",
            shown("quant_method")
        ));
    }
    if value.get("format").and_then(Value::as_str) != Some("float-quantized") {
        return Err(format!("format {} (float-quantized is read): {CURE}", shown("format")));
    }
    if value.get("kv_cache_scheme").is_some_and(|scheme| !scheme.is_null()) {
        return Err("kv_cache_scheme: the KV cache is bf16, its scales are not read".into());
    }
    let groups = value.get("config_groups").and_then(Value::as_object);
    let groups = groups.filter(|groups| !groups.is_empty()).ok_or("config_groups is missing")?;
    groups.iter().try_for_each(|(name, group)| {
        check_weights(group.get("weights").unwrap_or(&Value::Null))
            .map_err(|what| format!("config_groups.{name}.weights: {what}: {CURE}"))
    })
}

fn check_weights(weights: &Value) -> Result<(), String> {
    for (field, wanted) in [
        ("type", Value::from("float")),
        ("num_bits", Value::from(8)),
        ("strategy", Value::from("channel")),
    ] {
        let found = weights.get(field).unwrap_or(&Value::Null);
        if *found != wanted {
            return Err(format!("{field} {found} ({wanted} is read)"));
        }
    }
    match weights.get("symmetric") {
        Some(Value::Bool(false)) => Err("symmetric false (true is read)".into()),
        _ => Ok(()),
    }
}

/// The name of a tensor's scales.
pub(super) fn scale_name(tensor: &str) -> String {
    format!("{tensor}_scale")
}

/// Whether a tensor of this name may be there and is not read: scales for activations, which are
/// never quantized here.
pub(super) fn is_for_activations(name: &str) -> bool {
    name.ends_with(".input_scale")
}

/// Whether the tensor is stored in FP8. Block scales are told by their own name, whatever
/// `config.json` says.
pub(super) fn is_fp8(shard: &Shard, tensor: Tensor) -> Result<bool, ModelError> {
    let name = tensor.name();
    let blocks = format!("{name}_scale_inv");
    if shard.metadata.info(&blocks).is_some() {
        return Err(shard.tensor_error(&blocks, format!("scales for blocks: {CURE}")));
    }
    let dtype = shard.metadata.info(&name).map(|info| info.dtype);
    Ok(dtype == Some(Dtype::F8_E4M3) && !tensor.is_norm())
}

/// Checks type and shape of the scales of an FP8 tensor, and gives their place.
pub(super) fn place_scales(
    shards: &[Shard],
    shard: usize,
    tensor: Tensor,
    config: &Config,
) -> Result<(Place, ScaleType), ModelError> {
    let (name, rows, at) = (scale_name(&tensor.name()), tensor.shape(config).0, &shards[shard]);
    let Some(info) = at.metadata.info(&name) else {
        return Err(at.tensor_error(&name, "missing: an FP8 tensor has a scale a row".into()));
    };
    let scale_type = match info.dtype {
        Dtype::F32 => ScaleType::F32,
        Dtype::F16 => ScaleType::F16,
        Dtype::BF16 => ScaleType::Bf16,
        other => {
            let what = format!("dtype {other:?} (F32, F16 or BF16 is wanted)");
            return Err(at.tensor_error(&name, what));
        }
    };
    if info.shape != [rows, 1] && info.shape != [rows] {
        let what = format!("shape {:?} ([{rows}, 1] is wanted): {CURE}", info.shape);
        return Err(at.tensor_error(&name, what));
    }
    Ok(((shard, at.bytes_of(info)), scale_type))
}

impl Checkpoint {
    /// The configuration of a folder that [`Checkpoint::open_quantized`] opens.
    ///
    /// # Errors
    /// Those of [`Config::read`], and a way of quantizing that is not read (named).
    pub fn read_config(dir: &Path) -> Result<Config, ModelError> {
        Ok(read_config(&dir.join("config.json"))?.0)
    }

    /// Opens a checkpoint whose matrices may be FP8, as [`Checkpoint::open`] opens one in bf16.
    /// [`crate::Weights::stored`] gives its tensors; [`crate::Weights::view`] panics for one that
    /// is FP8.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`], and a way of quantizing that is not read (named).
    pub fn open_quantized(dir: &Path) -> Result<Checkpoint, ModelError> {
        let (config, quantized) = read_config(&dir.join("config.json"))?;
        Checkpoint::open_with(dir, config, quantized)
    }
}
