//! FP8 checkpoints: which kinds are supported, and where their scales are.
//!
//! Supported are those of compressed-tensors (llm-compressor) with one scale per output channel:
//! `weight` in E4M3 `[rows, cols]` and `weight_scale` `[rows, 1]`. Other scales (per block, tensor
//! or group) are refused by name.

use super::places::Place;
use super::{Checkpoint, Shard, Tensor};
use crate::stored::fp8;
use crate::{Config, ModelError, ScaleType, config, small_file};
use serde_json::Value;
use std::path::Path;

/// The advice for a checkpoint whose scales are not per row.
const CURE: &str = "only one scale per row is supported: name the bf16 checkpoint and pack it \
                    with `--format fp8`";

/// The configuration of a folder, and whether its tensors may be FP8.
///
/// # Errors
/// Those of [`Config::read`], and [`ModelError::Unsupported`] for an unsupported quantization.
fn read_config(path: &Path) -> Result<(Config, bool), ModelError> {
    parse_config(&small_file::read(path)?, path)
}

/// The same of a `config.json`'s text; `path` is only for messages.
///
/// # Errors
/// Those of [`Config::parse`], and an unsupported quantization (named).
pub fn parse_config(text: &[u8], path: &Path) -> Result<(Config, bool), ModelError> {
    let mut fields = config::fields(text, path)?;
    let unsupported = |what| ModelError::Unsupported { path: path.to_owned(), what };
    // The name before transformers 4.45, for the same object.
    if let Some(value) = fields.get("compression_config").filter(|value| !value.is_null()) {
        let method = value.get("quant_method").unwrap_or(&Value::Null);
        return Err(unsupported(format!(
            "compression_config with quant_method {method} (only quantization_config is read)"
        )));
    }
    let quantization = fields.remove("quantization_config").filter(|value| !value.is_null());
    if let Some(value) = &quantization {
        check_quantization(value)
            .map_err(|what| unsupported(format!("quantization_config: {what}")))?;
    }
    Ok((Config::from_fields(&fields, path)?, quantization.is_some()))
}

/// Keys that an object may also have, since they do not change the values of codes and scales.
const IDLE: [&str; 6] = [
    "quant_method",
    "quantization_status",
    "global_compression_ratio",
    "ignore",
    "version",
    "format",
];
/// The same for a group; activations are never quantized here.
const IDLE_OF_GROUP: [&str; 2] = ["targets", "input_activations"];
/// The same for a group's weights: how their scales were found.
const IDLE_OF_WEIGHTS: [&str; 4] = ["observer", "observer_kwargs", "scale_dtype", "zp_dtype"];

/// Checks that this is E4M3 with one scale per row, and nothing more.
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
            "quant_method {} (only compressed-tensors is supported): {CURE}",
            shown("quant_method")
        ));
    }
    if value.get("format").and_then(Value::as_str) != Some(fp8::LAYOUT) {
        return Err(format!(
            "format {} (only {} is supported): {CURE}",
            shown("format"),
            fp8::LAYOUT
        ));
    }
    for (key, value) in said(value) {
        match key.as_str() {
            "config_groups" => check_groups(value)?,
            "kv_cache_scheme" => {
                return Err("kv_cache_scheme: the KV cache is bf16, its scales are not read".into());
            }
            "transform_config" => check_transform(value)?,
            "sparsity_config" => check_sparsity(value)?,
            key if IDLE.contains(&key) => {}
            key => return Err(not_understood(key, value)),
        }
    }
    match value.get("config_groups").and_then(Value::as_object) {
        Some(groups) if !groups.is_empty() => Ok(()),
        _ => Err("config_groups is missing".into()),
    }
}

/// Returns the keys of an object whose values are not empty.
fn said(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
}

fn not_understood(key: &str, value: &Value) -> String {
    format!(
        "{} {value}: not understood, and it may change what the weights mean: {CURE}",
        key.escape_debug()
    )
}

/// Rotations: weights that are stored rotated, which need rotated activations.
fn check_transform(value: &Value) -> Result<(), String> {
    let groups = value.get("config_groups").unwrap_or(value);
    match groups.as_object().and_then(|groups| groups.keys().next()) {
        Some(name) => Err(format!(
            "transform_config {}: the weights are stored rotated, which is not undone here: {CURE}",
            name.escape_debug()
        )),
        None if groups.is_object() => Ok(()),
        None => Err(not_understood("transform_config", value)),
    }
}

/// Refuses sparse weights, of which only some are stored.
fn check_sparsity(value: &Value) -> Result<(), String> {
    match value.get("format").unwrap_or(&Value::Null) {
        Value::Null if value.as_object().is_some_and(serde_json::Map::is_empty) => Ok(()),
        Value::String(format) if format == "dense" => Ok(()),
        format => {
            Err(format!("sparsity_config with format {format} (only dense is supported): {CURE}"))
        }
    }
}

fn check_groups(value: &Value) -> Result<(), String> {
    for (name, group) in said(value) {
        let place = format!("config_groups.{}", name.escape_debug());
        check_weights(group.get("weights").unwrap_or(&Value::Null))
            .map_err(|what| format!("{place}.weights: {what}: {CURE}"))?;
        for (key, value) in said(group) {
            match key.as_str() {
                "weights" => {}
                "format" if value.as_str() == Some(fp8::LAYOUT) => {}
                key if IDLE_OF_GROUP.contains(&key) => {}
                key => return Err(format!("{place}.{}", not_understood(key, value))),
            }
        }
    }
    Ok(())
}

fn check_weights(weights: &Value) -> Result<(), String> {
    let fields = fp8::weights();
    for (field, wanted) in &fields {
        let found = weights.get(*field).unwrap_or(&Value::Null);
        if found != wanted {
            return Err(format!("{field} {found} (only {wanted} is supported)"));
        }
    }
    for (key, value) in said(weights) {
        match key.as_str() {
            key if fields.iter().any(|(field, _)| *field == key) => {}
            "symmetric" if *value == Value::Bool(true) => {}
            "symmetric" => return Err(format!("symmetric {value} (only true is supported)")),
            "dynamic" if *value == Value::Bool(false) => {}
            key if IDLE_OF_WEIGHTS.contains(&key) => {}
            key => return Err(format!("{} {value} (not supported)", key.escape_debug())),
        }
    }
    Ok(())
}

/// Returns whether the tensor is stored in FP8. Block scales have another name, which counts
/// regardless of `config.json`.
pub(super) fn is_fp8(shard: &Shard, tensor: Tensor) -> Result<bool, ModelError> {
    let name = tensor.name();
    let blocks = fp8::block_scale_name(&name);
    if shard.info(&blocks).is_some() {
        return Err(shard.tensor_error(&blocks, format!("scales for blocks: {CURE}")));
    }
    let dtype = shard.info(&name).map(|info| info.dtype);
    Ok(dtype == Some(fp8::DTYPE) && !tensor.is_norm())
}

/// Checks type and shape of the scales of an FP8 tensor, and returns their place.
pub(super) fn place_scales(
    shards: &[Shard],
    shard: usize,
    tensor: Tensor,
    config: &Config,
) -> Result<(Place, ScaleType), ModelError> {
    let (name, rows, at) =
        (fp8::scale_name(&tensor.name()), tensor.shape(config).0, &shards[shard]);
    let Some(info) = at.info(&name) else {
        return Err(at.tensor_error(&name, "missing: an FP8 tensor needs one scale per row".into()));
    };
    let Some(scale_type) = ScaleType::of(info.dtype) else {
        let what = format!("dtype {:?} (expected F32, F16 or BF16)", info.dtype);
        return Err(at.tensor_error(&name, what));
    };
    if info.shape != [rows, 1] && info.shape != [rows] {
        let what = format!("shape {:?} (expected [{rows}, 1]): {CURE}", info.shape);
        return Err(at.tensor_error(&name, what));
    }
    Ok(((shard, at.bytes_of(info)), scale_type))
}

impl Checkpoint {
    /// The configuration of a folder that [`Checkpoint::open_quantized`] opens.
    ///
    /// # Errors
    /// Those of [`Config::read`], and an unsupported quantization (named).
    pub fn read_config(dir: &Path) -> Result<Config, ModelError> {
        Ok(read_config(&dir.join("config.json"))?.0)
    }

    /// Opens a checkpoint whose matrices may be FP8, as [`Checkpoint::open`] opens one in bf16.
    /// [`crate::Weights::stored`] returns its tensors; [`crate::Weights::view`] panics for a tensor
    /// that is not bf16.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`], and an unsupported quantization (named).
    pub fn open_quantized(dir: &Path) -> Result<Checkpoint, ModelError> {
        let (config, quantized) = read_config(&dir.join("config.json"))?;
        Checkpoint::open_with(dir, &config, quantized)
    }
}
