//! FP8 checkpoints of compressed-tensors: codes and scales are taken over as they are.

use crate::support::{self, config, ordinary, source};
use half::{bf16, f16};
use monolith_abi::WeightFormat;
use monolith_model::{Checkpoint, Config, StoredView, Tensor, Weights, e4m3};
use monolith_pack::{Formats, Pack, PackError, pack_to_bytes_as, write_checkpoint};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use std::path::Path;

type Entry = (String, Dtype, Vec<usize>, Vec<u8>);

fn quantization(weights: &Value) -> Value {
    json!({
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "ignore": ["lm_head"],
        "kv_cache_scheme": null,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    })
}

fn channel() -> Value {
    json!({"type": "float", "num_bits": 8, "strategy": "channel", "symmetric": true})
}

fn model() -> Config {
    config([24, 20, 2, 1, 2, 4, 37], false)
}

/// A code for every place that is a number.
fn code(row: usize, col: usize) -> u8 {
    let code = (row * 31 + col * 7) as u8;
    if e4m3::is_nan(code) { 0 } else { code }
}

fn scale(row: usize) -> f32 {
    // Exact in f16 and bf16.
    (row % 5 + 1) as f32 / 64.0
}

/// The layers' matrices in FP8, everything else in bf16.
fn entries(config: &Config, scales: Dtype) -> Vec<Entry> {
    let weights = ordinary(config, 5);
    let mut entries = Vec::new();
    for tensor in Tensor::all(config) {
        let (rows, cols) = tensor.shape(config);
        let name = tensor.name();
        if tensor.is_norm() || !matches!(tensor, Tensor::Layer(..)) {
            let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
            entries.push((name, Dtype::BF16, shape, weights.view(tensor).bytes().to_vec()));
            continue;
        }
        let codes = (0..rows * cols).map(|at| code(at / cols, at % cols)).collect();
        let bytes = |row: usize| match scales {
            Dtype::F32 => scale(row).to_le_bytes().to_vec(),
            Dtype::F16 => f16::from_f32(scale(row)).to_le_bytes().to_vec(),
            _ => bf16::from_f32(scale(row)).to_le_bytes().to_vec(),
        };
        let scale_bytes = (0..rows).flat_map(bytes).collect();
        entries.push((format!("{name}_scale"), scales, vec![rows, 1], scale_bytes));
        entries.push((name, Dtype::F8_E4M3, vec![rows, cols], codes));
    }
    entries
}

fn folder(config: &Config, quantization: Value, entries: &[Entry]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut json: Value = serde_json::from_str(&config.to_json()).unwrap();
    json["quantization_config"] = quantization;
    std::fs::write(dir.path().join("config.json"), json.to_string()).unwrap();
    let views = entries.iter().map(|(name, dtype, shape, bytes)| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &dir.path().join("model.safetensors")).unwrap();
    dir
}

fn opened(dir: &Path) -> Checkpoint {
    Checkpoint::open_quantized(dir).unwrap()
}

fn refusal(config: &Config, quantization: Value, entries: &[Entry]) -> String {
    let dir = folder(config, quantization, entries);
    Checkpoint::open_quantized(dir.path()).unwrap_err().to_string()
}

fn packed(checkpoint: &Checkpoint, formats: Formats) -> Result<Pack, PackError> {
    Pack::from_bytes(pack_to_bytes_as(checkpoint, source(), formats)?, "the.pack")
}

#[test]
fn codes_and_scales_are_taken_over() {
    let config = model();
    for scales in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let dir = folder(&config, quantization(&channel()), &entries(&config, scales));
        let checkpoint = opened(dir.path());
        assert_eq!(Formats::as_stored(&checkpoint), Formats::FP8_HEAD_BF16);
        let pack = packed(&checkpoint, Formats::FP8_HEAD_BF16).unwrap();
        let unpacked = pack.unpacked();
        for tensor in Tensor::all(&config) {
            match (unpacked.stored(tensor), checkpoint.stored(tensor)) {
                (StoredView::Bf16(seen), StoredView::Bf16(given)) => {
                    assert_eq!(seen.bytes(), given.bytes());
                }
                (StoredView::Fp8(seen), StoredView::Fp8(_)) => {
                    for row in 0..seen.rows {
                        let codes: Vec<u8> = (0..seen.cols).map(|col| code(row, col)).collect();
                        assert_eq!(seen.row_codes(row), codes, "{} {row}", tensor.name());
                        assert_eq!(seen.scale(row), scale(row));
                    }
                }
                _ => panic!("{} has another format", tensor.name()),
            }
        }
        for report in pack.header().quantization_by_kind() {
            let rows = match &*report.kind {
                "qkv" => 2 * 32,
                "gate_up" => 2 * 40,
                _ => 2 * 24,
            };
            assert_eq!((report.rows_taken_over, report.rows_quantized), (rows, 0), "{report:?}");
            assert_eq!((report.worst_error, report.zeros), (0.0, 0));
        }
    }
}

#[test]
fn what_the_checkpoint_left_in_bf16_is_quantized_and_told() {
    let config = model();
    let dir = folder(&config, quantization(&channel()), &entries(&config, Dtype::F32));
    let pack = packed(&opened(dir.path()), Formats::FP8).unwrap();
    let kinds = pack.header().quantization_by_kind();
    for report in kinds.iter().filter(|report| ["lm_head", "embedding"].contains(&&*report.kind)) {
        assert_eq!((report.rows_taken_over, report.rows_quantized), (0, 37));
        assert!(report.worst_error > 0.01, "{report:?}");
    }
    assert_eq!(kinds.len(), 6);
    assert_eq!(pack.matrix(monolith_pack::Section::Embedding).format, WeightFormat::Fp8);
}

#[test]
fn fp8_does_not_become_bf16() {
    let config = model();
    let dir = folder(&config, quantization(&channel()), &entries(&config, Dtype::F32));
    let error = packed(&opened(dir.path()), Formats::BF16).unwrap_err().to_string();
    assert!(error.contains("layers.0.self_attn.q_proj.weight: FP8 in the checkpoint"), "{error}");
    // Whoever asks for bf16 alone is not given something else.
    let error = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("quantization_config"), "{error}");
}

#[test]
fn a_tied_checkpoint_and_scales_of_activations_are_read() {
    let config = Config { tied: true, ..model() };
    let mut all = entries(&config, Dtype::BF16);
    let activations = "model.layers.0.mlp.down_proj.input_scale";
    all.push((activations.into(), Dtype::F32, vec![1], vec![0; 4]));
    let dir = folder(&config, quantization(&channel()), &all);
    packed(&opened(dir.path()), Formats::FP8).unwrap();
    // An LM head of its own is FP8 here, where the embedding is bf16.
    all.push(("lm_head.weight".into(), Dtype::F8_E4M3, vec![37, 24], vec![0x38; 37 * 24]));
    let scales = 0.5f32.to_le_bytes().repeat(37);
    all.push(("lm_head.weight_scale".into(), Dtype::F32, vec![37, 1], scales));
    let dir = folder(&config, quantization(&channel()), &all);
    let checkpoint = opened(dir.path());
    assert!(!checkpoint.config().tied && checkpoint.remarks().len() == 1);
    let pack = packed(&checkpoint, Formats::FP8).unwrap();
    assert_eq!(pack.tensor_f32(Tensor::LmHead), vec![0.5; 37 * 24]);
    assert!(
        pack.matrix(monolith_pack::Section::Embedding).row_f32(0).iter().any(|&value| value != 0.5)
    );
}

#[test]
fn an_unquantized_checkpoint_opens_too() {
    let config = model();
    let weights = ordinary(&config, 5);
    let all: Vec<Entry> = Tensor::all(&config)
        .into_iter()
        .map(|tensor| {
            let (rows, cols) = tensor.shape(&config);
            let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
            (tensor.name(), Dtype::BF16, shape, weights.view(tensor).bytes().to_vec())
        })
        .collect();
    let dir = folder(&config, Value::Null, &all);
    assert_eq!(Formats::as_stored(&opened(dir.path())), Formats::BF16);
    // Without a word of it in config.json, FP8 is a wrong type.
    let message = refusal(&config, Value::Null, &entries(&config, Dtype::F32));
    assert!(message.contains("F8_E4M3 (BF16, F32, F16 can be read)"), "{message}");
}

#[test]
fn other_ways_of_quantizing_are_refused_by_name() {
    let config = model();
    let all = entries(&config, Dtype::F32);
    let changed = |field: &str, value: Value| {
        let mut whole = quantization(&channel());
        whole[field] = value;
        whole
    };
    let weights = |field: &str, value: Value| {
        let mut weights = channel();
        weights[field] = value;
        quantization(&weights)
    };
    let group = |field: &str, value: Value| {
        let mut whole = quantization(&channel());
        whole["config_groups"]["group_0"][field] = value;
        whole
    };
    let blocks = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    for (quantization, words) in [
        (blocks, ["weight_scale_inv", "--format fp8"]),
        (json!({"quant_method": "fbgemm_fp8"}), ["fbgemm_fp8", "--format fp8"]),
        (json!("fp8"), ["quant_method null", "--format fp8"]),
        (changed("format", "pack-quantized".into()), ["pack-quantized", "--format fp8"]),
        (changed("kv_cache_scheme", json!({"num_bits": 8})), ["kv_cache_scheme", "bf16"]),
        (changed("config_groups", json!({})), ["config_groups", "missing"]),
        (weights("strategy", "block".into()), ["group_0.weights", "strategy \"block\""]),
        (weights("strategy", "tensor".into()), ["strategy \"tensor\"", "--format fp8"]),
        (weights("num_bits", 4.into()), ["num_bits 4", "--format fp8"]),
        (weights("type", "int".into()), ["type \"int\"", "--format fp8"]),
        (weights("symmetric", false.into()), ["symmetric", "--format fp8"]),
        (weights("dynamic", true.into()), ["group_0.weights: dynamic true", "--format fp8"]),
        (weights("dynamic", "local".into()), ["dynamic \"local\"", "--format fp8"]),
        (weights("group_size", 128.into()), ["group_size 128", "--format fp8"]),
        (weights("block_structure", "2x4".into()), ["block_structure \"2x4\"", "--format fp8"]),
        (weights("actorder", "group".into()), ["actorder \"group\"", "--format fp8"]),
        (weights("zero_point", 3.into()), ["zero_point 3", "--format fp8"]),
        (changed("transform_config", rotation()), ["transform_config R4", "stored rotated"]),
        (changed("transform_config", json!({"R1": {}})), ["transform_config R1", "rotated"]),
        (changed("transform_config", json!("hadamard")), ["transform_config \"hadamard\"", "not"]),
        (
            changed("sparsity_config", json!({"format": "sparse-24-bitmask"})),
            ["sparsity_config", "sparse-24-bitmask"],
        ),
        (changed("sparsity_config", json!({"x": 1})), ["sparsity_config", "null"]),
        (changed("smooth\u{1b}[1m", 1.into()), ["smooth\\u{1b}[1m 1", "not understood"]),
        (group("output_activations", json!({"num_bits": 8})), ["output_activations", "num_bits"]),
        (group("format", "int-quantized".into()), ["config_groups.group_0.format", "int-quant"]),
        (group("offset", 1.into()), ["config_groups.group_0.offset 1", "not understood"]),
    ] {
        let message = refusal(&config, quantization, &all);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

/// An online rotation, as llm-compressor writes it.
fn rotation() -> Value {
    let at = |location: &str, inverse: bool| {
        let targets = ["re:.*down_proj$"];
        json!({"targets": targets, "location": location, "inverse": inverse})
    };
    let apply = [at("input", false), at("weight_input", true)];
    json!({"config_groups": {"R4": {"type": "hadamard", "apply": apply, "randomize": false}}})
}

#[test]
fn what_says_nothing_about_the_weights_is_taken() {
    let config = model();
    let mut whole = quantization(&channel());
    for (field, value) in [
        ("global_compression_ratio", json!(1.5)),
        ("ignore", json!(["lm_head"])),
        ("quantization_status", json!("compressed")),
        ("version", json!("0.12.2")),
        ("kv_cache_scheme", Value::Null),
        ("transform_config", json!({})),
        ("sparsity_config", json!({})),
    ] {
        whole[field] = value;
    }
    let group = &mut whole["config_groups"]["group_0"];
    group["input_activations"] = json!({"num_bits": 8, "strategy": "token", "dynamic": true});
    group["output_activations"] = Value::Null;
    group["format"] = json!("float-quantized");
    for (field, value) in [
        ("dynamic", json!(false)),
        ("group_size", Value::Null),
        ("block_structure", Value::Null),
        ("actorder", Value::Null),
        ("observer", json!("minmax")),
        ("observer_kwargs", json!({})),
        ("scale_dtype", Value::Null),
    ] {
        group["weights"][field] = value;
    }
    let dir = folder(&config, whole, &entries(&config, Dtype::F32));
    assert_eq!(opened(dir.path()).config(), &config);
}

#[test]
fn quantizing_told_under_its_older_name_is_refused_by_name() {
    let config = model();
    let mut json: Value = serde_json::from_str(&config.to_json()).unwrap();
    json["compression_config"] = quantization(&channel());
    let dir = folder(&config, Value::Null, &entries(&config, Dtype::F32));
    std::fs::write(dir.path().join("config.json"), json.to_string()).unwrap();
    let message = Checkpoint::open_quantized(dir.path()).unwrap_err().to_string();
    assert!(message.contains("compression_config with quant_method \"compressed-tensors\""));
}

#[test]
fn scales_are_checked_by_name() {
    let config = model();
    let good = entries(&config, Dtype::F32);
    let name = "model.layers.1.mlp.down_proj.weight_scale";
    let at = good.iter().position(|entry| entry.0 == name).unwrap();
    let with = |edit: &dyn Fn(&mut Vec<Entry>)| {
        let mut all = good.clone();
        edit(&mut all);
        all
    };
    for (all, words) in [
        (with(&|all| drop(all.remove(at))), [name, "missing"]),
        (with(&|all| all[at].1 = Dtype::I32), [name, "I32"]),
        (with(&|all| all[at].2 = vec![24, 1, 1]), [name, "shape [24, 1, 1]"]),
        (with(&|all| all[at].2 = vec![1, 24]), [name, "shape [1, 24]"]),
        (
            with(&|all| all[at].0 = name.replace("scale", "scale_inv")),
            ["weight_scale_inv", "blocks"],
        ),
        (
            with(&|all| all.push(("model.k_scale".into(), Dtype::F32, vec![1], vec![0; 4]))),
            ["model.k_scale", "not part"],
        ),
    ] {
        let message = refusal(&config, quantization(&channel()), &all);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[test]
fn codes_and_scales_that_are_no_numbers_are_refused_by_row() {
    let config = model();
    let good = entries(&config, Dtype::F32);
    let name = "model.layers.1.mlp.down_proj.weight";
    let find = |name: &str| good.iter().position(|entry| entry.0 == name).unwrap();
    let (codes, scales) = (find(name), find(&format!("{name}_scale")));
    let mut cases = vec![(codes, 20 * 7 + 3, vec![0xff], "row 7: column 3 is NaN")];
    for bad in [0.0f32, -1.0, f32::INFINITY, f32::NAN, 1e-40] {
        cases.push((scales, 4 * 9, bad.to_le_bytes().to_vec(), "row 9: its scale is"));
    }
    for (entry, at, bytes, message) in cases {
        let mut all = good.clone();
        all[entry].3[at..at + bytes.len()].copy_from_slice(&bytes);
        let dir = folder(&config, quantization(&channel()), &all);
        let error = packed(&opened(dir.path()), Formats::FP8).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(message), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// What opens can be packed or is refused, and neither panics.
    #[test]
    fn a_mutated_checkpoint_never_panics(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        in_config in any::<bool>(),
        formats in prop::sample::select(Formats::NAMED.to_vec()),
    ) {
        let config = model();
        let dir = folder(&config, quantization(&channel()), &entries(&config, Dtype::F16));
        let name = if in_config { "config.json" } else { "model.safetensors" };
        let path = dir.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(checkpoint) = Checkpoint::open_quantized(dir.path())
            && let Ok(bytes) = pack_to_bytes_as(&checkpoint, source(), formats)
        {
            Pack::from_bytes(bytes, "the.pack").unwrap();
        }
    }
}

#[test]
fn a_pack_becomes_a_checkpoint_of_its_values() {
    let config = Config { tied: true, ..model() };
    let dir = tempfile::tempdir().unwrap();
    for formats in Formats::NAMED {
        let pack = support::opened(&ordinary(&config, 8), formats);
        let to = dir.path().join(&*formats.name());
        write_checkpoint(&pack, &to, |_, _| Ok(())).unwrap();
        let error = write_checkpoint(&pack, &to, |_, _| Ok(())).unwrap_err();
        assert!(matches!(&error, PackError::Io { .. }), "{error}");
        let file = std::fs::read(to.join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(tensors.len(), Tensor::all(&config).len());
        for tensor in Tensor::all(&config) {
            let view = tensors.tensor(&tensor.name()).unwrap();
            let expected = if pack.is_bf16(tensor) { Dtype::BF16 } else { Dtype::F32 };
            assert_eq!((view.dtype(), view.data()), (expected, &pack.value_bytes(tensor)[..]));
            if expected == Dtype::F32 {
                let values = view.data().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b));
                assert_eq!(values.collect::<Vec<f32>>(), pack.tensor_f32(tensor));
            }
        }
        if formats == Formats::BF16 {
            let again = Checkpoint::open(&to).unwrap();
            let bytes = pack_to_bytes_as(&again, source(), formats).unwrap();
            assert_eq!(Pack::from_bytes(bytes, "the.pack").unwrap().payload(), pack.payload());
        }
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 3);
}
