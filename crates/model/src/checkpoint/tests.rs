use super::*;
use crate::MemoryWeights;
use half::{bf16, f16};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};

fn small() -> Config {
    Config {
        hidden: 8,
        intermediate: 12,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        vocab: 10,
        max_positions: 64,
        ..Config::qwen3_0_6b()
    }
}

type Entry = (String, Dtype, Vec<usize>, Vec<u8>);

fn entries(config: &Config) -> Vec<Entry> {
    let weights = MemoryWeights::from_fn(config, |tensor, row, col| {
        (tensor.name().len() * 100 + row * 10 + col) as f32
    });
    Tensor::all(config)
        .into_iter()
        .map(|tensor| {
            let (rows, cols) = tensor.shape(config);
            let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
            (tensor.name(), Dtype::BF16, shape, weights.view(tensor).bytes().to_vec())
        })
        .collect()
}

fn write_file(path: &Path, entries: &[Entry]) {
    let views = entries.iter().map(|(name, dtype, shape, bytes)| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn folder(config: &Config) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config.to_json()).unwrap();
    dir
}

fn single(config: &Config, entries: &[Entry]) -> tempfile::TempDir {
    let dir = folder(config);
    write_file(&dir.path().join(SINGLE), entries);
    dir
}

fn sharded(config: &Config, entries: &[Entry]) -> tempfile::TempDir {
    let dir = folder(config);
    let (left, right) = entries.split_at(entries.len() / 2);
    let mut map = serde_json::Map::new();
    for (file, part) in [("model-1.safetensors", left), ("model-2.safetensors", right)] {
        write_file(&dir.path().join(file), part);
        map.extend(part.iter().map(|entry| (entry.0.clone(), file.into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    std::fs::write(dir.path().join(INDEX), index.to_string()).unwrap();
    dir
}

#[test]
fn single_and_sharded_hold_the_same_values() {
    for tied in [true, false] {
        let config = Config { tied, ..small() };
        let entries = entries(&config);
        let (one, two) = (single(&config, &entries), sharded(&config, &entries));
        let (one, two) =
            (Checkpoint::open(one.path()).unwrap(), Checkpoint::open(two.path()).unwrap());
        assert_eq!(two.files().count(), 2);
        for (tensor, entry) in Tensor::all(&config).into_iter().zip(&entries) {
            assert_eq!(one.view(tensor).bytes(), entry.3, "{}", entry.0);
            assert_eq!(two.view(tensor).bytes(), entry.3, "{}", entry.0);
        }
        let head = if tied { Tensor::Embedding } else { Tensor::LmHead };
        assert_eq!(one.view(Tensor::LmHead).bytes(), one.view(head).bytes());
    }
}

#[test]
fn every_tensor_is_checked_by_name() {
    let config = Config { tied: false, ..small() };
    let good = entries(&config);
    for at in 0..good.len() {
        let name = &good[at].0;
        let mut missing = good.clone();
        missing.remove(at);
        let mut typed = good.clone();
        typed[at].1 = Dtype::I16;
        let mut shaped = good.clone();
        shaped[at].2 = vec![shaped[at].3.len() / 2, 1];
        for (broken, word) in [(missing, "missing"), (typed, "I16"), (shaped, "shape")] {
            for dir in [single(&config, &broken), sharded(&config, &broken)] {
                let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
                assert!(message.contains(name.as_str()) && message.contains(word), "{message}");
            }
        }
    }
}

#[test]
fn an_unexpected_tensor_is_named() {
    let config = small();
    let mut with_bias = entries(&config);
    with_bias.push((
        "model.layers.0.self_attn.q_proj.bias".into(),
        Dtype::BF16,
        vec![1],
        vec![0; 2],
    ));
    let dir = single(&config, &with_bias);
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains("q_proj.bias"), "{message}");
}

/// Entries of a model that says it is tied, with an LM head of these bf16 bytes all the same.
fn with_head(config: &Config, dtype: Dtype, head: Vec<u8>) -> Vec<Entry> {
    let mut entries = entries(config);
    entries.push(("lm_head.weight".into(), dtype, vec![config.vocab, config.hidden], head));
    entries
}

#[test]
fn a_tied_models_own_head_is_used_where_it_differs_and_said() {
    let config = small();
    let embedding = entries(&config)[0].3.clone();
    let mut own = embedding.clone();
    *own.last_mut().unwrap() ^= 1;
    let wide = |bytes: &[u8]| -> Vec<u8> {
        let pairs = bytes.as_chunks::<2>().0.iter();
        pairs.flat_map(|pair| bf16::from_le_bytes(*pair).to_f32().to_le_bytes()).collect()
    };
    for (dtype, copy, own) in
        [(Dtype::BF16, embedding.clone(), own.clone()), (Dtype::F32, wide(&embedding), wide(&own))]
    {
        for in_folder in [single, sharded] {
            let dir = in_folder(&config, &with_head(&config, dtype, copy.clone()));
            let copied = Checkpoint::open(dir.path()).unwrap();
            assert_eq!(copied.config(), &config);
            assert!(!copied.remarks().iter().any(|remark| remark.contains("lm_head")));
            assert_eq!(copied.view(Tensor::LmHead).bytes(), embedding);

            let dir = in_folder(&config, &with_head(&config, dtype, own.clone()));
            let untied = Checkpoint::open(dir.path()).unwrap();
            assert_eq!(untied.config(), &Config { tied: false, ..config.clone() });
            assert!(untied.remarks().iter().any(|remark| remark.contains("lm_head.weight")));
            let row = config.vocab - 1;
            assert_eq!(untied.view(Tensor::Embedding).bytes(), embedding);
            assert_ne!(
                untied.stored(Tensor::LmHead).row_bf16(row),
                untied.stored(Tensor::Embedding).row_bf16(row)
            );
        }
    }
    let shaped = with_head(&config, Dtype::BF16, embedding[2..].to_vec());
    let mut shaped = shaped;
    shaped.last_mut().unwrap().2 = vec![embedding.len() / 2 - 1, 1];
    let message = Checkpoint::open(single(&config, &shaped).path()).unwrap_err().to_string();
    assert!(message.contains("lm_head.weight") && message.contains("shape"), "{message}");
}

/// The entries with the values of some tensors in another type.
fn widened(entries: &[Entry], dtype: Dtype, which: impl Fn(&str) -> bool) -> Vec<Entry> {
    let widen = |bytes: &[u8]| -> Vec<u8> {
        let values = bytes.as_chunks::<2>().0.iter().map(|pair| bf16::from_le_bytes(*pair));
        match dtype {
            Dtype::F32 => values.flat_map(|value| value.to_f32().to_le_bytes()).collect(),
            _ => values.flat_map(|value| f16::from_f32(value.to_f32()).to_le_bytes()).collect(),
        }
    };
    let one = |(name, old, shape, bytes): &Entry| match which(name) {
        true => (name.clone(), dtype, shape.clone(), widen(bytes)),
        false => (name.clone(), *old, shape.clone(), bytes.clone()),
    };
    entries.iter().map(one).collect()
}

#[test]
fn f32_and_f16_are_read_as_bf16_and_said() {
    let config = Config { tied: false, ..small() };
    // Small whole numbers: exact in all three types.
    let exact = MemoryWeights::from_fn(&config, |_, row, col| (row * 10 + col) as f32 - 50.0);
    let entries: Vec<Entry> = entries(&config)
        .into_iter()
        .zip(Tensor::all(&config))
        .map(|((name, dtype, shape, _), tensor)| {
            (name, dtype, shape, exact.view(tensor).bytes().to_vec())
        })
        .collect();
    let all = entries.len();
    type Which = fn(&str) -> bool;
    let cases: [(Dtype, Which, usize); 4] = [
        (Dtype::F32, |_| true, all),
        (Dtype::F16, |_| true, all),
        (Dtype::F32, |name| name.contains("norm"), 9),
        (Dtype::F16, |name| name.contains("embed"), 1),
    ];
    for (dtype, which, count) in cases {
        let dir = single(&config, &widened(&entries, dtype, which));
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let said = format!("{count} of {all} tensors are {dtype:?}: they are rounded to bf16");
        assert!(checkpoint.remarks().iter().any(|remark| remark.contains(&said)), "{said}");
        for tensor in Tensor::all(&config) {
            for row in 0..tensor.shape(&config).0 {
                let seen = checkpoint.stored(tensor).row_bf16(row).unwrap();
                assert_eq!(seen, exact.view(tensor).row_bytes(row), "{}", tensor.name());
            }
        }
    }
    let dir = single(&config, &entries);
    assert_eq!(Checkpoint::open(dir.path()).unwrap().remarks(), [""; 0]);
}

#[test]
fn what_rounding_to_bf16_would_make_infinite_is_refused_by_name() {
    let config = small();
    let good = widened(&entries(&config), Dtype::F32, |_| true);
    for at in 0..good.len() {
        for bad in [f32::MAX, f32::NAN, f32::INFINITY] {
            let mut broken = good.clone();
            let last = broken[at].3.len() - 4;
            broken[at].3[last..].copy_from_slice(&bad.to_le_bytes());
            let error = Checkpoint::open(single(&config, &broken).path()).unwrap_err().to_string();
            assert!(
                error.contains(&broken[at].0) && error.contains("not finite in bf16"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_tensor_in_two_files_is_refused_by_name() {
    let config = small();
    let entries = entries(&config);
    let dir = sharded(&config, &entries);
    let mut second = entries[entries.len() / 2..].to_vec();
    second.push(entries[0].clone());
    write_file(&dir.path().join("model-2.safetensors"), &second);
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    let wanted = "tensor model.embed_tokens.weight: model-1.safetensors holds it, too";
    assert!(message.contains(wanted), "{message}");
}

#[test]
fn checkpoints_of_other_kinds_are_named() {
    let config = small();
    let good = entries(&config);
    let renamed = |rename: &dyn Fn(&str) -> String| -> Vec<Entry> {
        let one = |(name, dtype, shape, bytes): &Entry| {
            (rename(name), *dtype, shape.clone(), bytes.clone())
        };
        good.iter().map(one).collect()
    };
    let flat = renamed(&|name| name.replacen("model.", "", 1));
    let multimodal = renamed(&|name| name.replacen("model.", "model.language_model.", 1));
    let wrapped = renamed(&|name| format!("_orig_mod.{name}"));
    let adapter =
        renamed(&|name| format!("base_model.{}", name.replace("weight", "lora_A.weight")));
    let gptq = renamed(&|name| name.replace("proj.weight", "proj.qweight"));
    let packed = renamed(&|name| name.replace("proj.weight", "proj.weight_packed"));
    let bnb = renamed(&|name| name.replace("q_proj.weight", "q_proj.weight.absmax"));
    let experts = renamed(&|name| name.replace(".mlp.", ".mlp.experts.0."));
    let mut classifier = good.clone();
    classifier.push(("score.weight".into(), Dtype::BF16, vec![1, 8], vec![0; 16]));
    for (entries, words) in [
        (flat, "without `model.`"),
        (multimodal, "multimodal checkpoint"),
        (wrapped, "training wrapper"),
        (adapter, "a LoRA adapter"),
        (gptq, "a GPTQ or AWQ checkpoint"),
        (packed, "packed 4-bit weights"),
        (bnb, "a bitsandbytes checkpoint"),
        (experts, "a mixture of experts"),
        (classifier, "a classifier or reranker"),
    ] {
        let error = Checkpoint::open(single(&config, &entries).path()).unwrap_err();
        assert!(matches!(error, ModelError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_folder_that_holds_other_files_says_so() {
    for (file, word) in [
        ("adapter_model.safetensors", "LoRA adapter"),
        ("qwen3-q4.gguf", "GGUF"),
        ("pytorch_model.bin", "PyTorch pickle"),
        ("consolidated.safetensors", "names of its own"),
    ] {
        let dir = folder(&small());
        std::fs::write(dir.path().join(file), "x").unwrap();
        let error = Checkpoint::open(dir.path()).unwrap_err();
        assert!(matches!(error, ModelError::NoWeights { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn other_files_in_place_of_any_of_a_checkpoints_are_named() {
    let kinds: [(&[u8], &str); 5] = [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML page"),
        (b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0", "GGUF"),
        (b"", "an empty file"),
        (b"PK\x03\x04\x14\0\0\0\0\0", "ZIP"),
    ];
    let config = small();
    for (bytes, word) in kinds {
        for file in ["config.json", SINGLE, INDEX, "model-2.safetensors"] {
            let dir = match file {
                SINGLE | "config.json" => single(&config, &entries(&config)),
                _ => sharded(&config, &entries(&config)),
            };
            std::fs::write(dir.path().join(file), bytes).unwrap();
            let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains(file), "{message}");
        }
    }
}

#[test]
fn an_index_beside_a_single_file_is_remarked() {
    let config = small();
    let dir = single(&config, &entries(&config));
    std::fs::write(dir.path().join(INDEX), r#"{"weight_map": {"t": "model-1.safetensors"}}"#)
        .unwrap();
    let remarks = Checkpoint::open(dir.path()).unwrap().remarks().to_vec();
    assert!(remarks[0].contains(INDEX), "{remarks:?}");
}

#[test]
fn missing_and_damaged_files_are_named() {
    let config = small();
    let dir = folder(&config);
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains(SINGLE), "{message}");

    let dir = single(&config, &entries(&config));
    let path = dir.path().join(SINGLE);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(Checkpoint::open(dir.path()), Err(ModelError::Safetensors { .. })));

    let dir = sharded(&config, &entries(&config));
    std::fs::remove_file(dir.path().join("model-2.safetensors")).unwrap();
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains("model-2.safetensors"), "{message}");
}

#[test]
fn an_index_that_lists_a_tensor_twice_is_refused_by_name() {
    let text = br#"{"weight_map": {"t": "a.safetensors", "u": "b", "t": "b.safetensors"}}"#;
    let message = parse_index(text, Path::new(INDEX)).unwrap_err().to_string();
    assert!(message.contains(r#"the key "t" is there twice"#), "{message}");
}

#[test]
fn an_index_cannot_leave_the_folder() {
    for name in ["../secret", "/etc/passwd", "a/b", "..", "", "a\\b", "a\u{1b}[31m"] {
        let text = serde_json::json!({"weight_map": {"t": name}}).to_string();
        assert!(parse_index(text.as_bytes(), Path::new(INDEX)).is_err(), "{name:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_arbitrary_index_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_index(&text, Path::new(INDEX));
    }

    #[test]
    fn a_mutated_checkpoint_never_panics(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        keep in any::<prop::sample::Index>(),
    ) {
        let config = small();
        let dir = single(&config, &entries(&config));
        let path = dir.path().join(SINGLE);
        let mut bytes = std::fs::read(&path).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for (at, byte) in edits {
            let at = at.index(header);
            bytes[at] = byte;
        }
        bytes.truncate(keep.index(bytes.len() * 2));
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(checkpoint) = Checkpoint::open(dir.path()) {
            for tensor in Tensor::all(checkpoint.config()) {
                checkpoint.stored(tensor).row_f32(0);
            }
        }
    }
}
