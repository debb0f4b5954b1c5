use super::*;
use crate::MemoryWeights;
use proptest::prelude::*;
use safetensors::tensor::TensorView;

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
        typed[at].1 = Dtype::F16;
        let mut shaped = good.clone();
        shaped[at].2 = vec![shaped[at].3.len() / 2, 1];
        for (broken, word) in [(missing, "missing"), (typed, "F16"), (shaped, "shape")] {
            for dir in [single(&config, &broken), sharded(&config, &broken)] {
                let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
                assert!(message.contains(name.as_str()) && message.contains(word), "{message}");
            }
        }
    }
}

#[test]
fn an_unexpected_tensor_is_named_and_a_tied_head_is_ignored() {
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

    let mut with_head = entries(&config);
    with_head.push(("lm_head.weight".into(), Dtype::BF16, vec![10, 8], vec![0; 160]));
    Checkpoint::open(single(&config, &with_head).path()).unwrap();
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
fn an_index_cannot_leave_the_folder() {
    for name in ["../secret", "/etc/passwd", "a/b", "..", "", "a\\b"] {
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
                checkpoint.view(tensor).bytes();
            }
        }
    }
}
