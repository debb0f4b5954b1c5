use super::*;
use crate::{Checkpoint, Weights};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

fn small() -> Config {
    Config { vocab: 700, layers: 3, hidden: 64, tied: false, ..shape("tiny").unwrap() }
}

fn write_with_threads(config: &Config, seed: u64, dir: &Path, threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| write(config, seed, dir, &|_| Ok(()))).unwrap();
}

fn file_hash(dir: &Path) -> String {
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_file_is_the_same_for_ever_and_for_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    for threads in [1, 2, 5] {
        let dir = dir.path().join(threads.to_string());
        write_with_threads(&small(), 7, &dir, threads);
        assert_eq!(
            file_hash(&dir),
            "0c086f196d95e060a0dc91b04e223ba6362710ece90eaed9cc4b523841bccd2d"
        );
    }
}

#[test]
fn memory_and_file_hold_the_same_values() {
    for (tied, config) in [(true, shape("tiny").unwrap()), (false, small())] {
        let config = Config { tied, ..config };
        let dir = tempfile::tempdir().unwrap();
        let seen = AtomicU64::new(0);
        write(&config, 3, dir.path(), &|bytes| {
            seen.fetch_max(bytes, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.into_inner(), file_bytes(&config));
        let (file, memory) = (Checkpoint::open(dir.path()).unwrap(), weights(&config, 3));
        assert_eq!(file.config(), &config);
        for tensor in Tensor::all(&config) {
            assert_eq!(file.view(tensor).bytes(), memory.view(tensor).bytes(), "{tensor:?}");
        }
    }
}

#[test]
fn a_row_is_its_elements() {
    for config in [small(), Config { hidden: 8, head_dim: 6, intermediate: 10, ..small() }] {
        for tensor in Tensor::all(&config) {
            let values = Values::new(&config, 5, tensor);
            let (rows, cols) = tensor.shape(&config);
            for row in [0, 17 % rows, rows - 1] {
                let mut bytes = vec![0; 2 * cols];
                values.row(row, &mut bytes);
                let elements = (0..cols).flat_map(|col| values.at(row, col).to_le_bytes());
                assert!(bytes.into_iter().eq(elements), "{tensor:?}, row {row}");
            }
        }
    }
}

#[test]
fn seeds_and_tensors_are_independent_and_of_the_stated_size() {
    let config = shape("tiny").unwrap();
    let sample = |seed, tensor| -> Vec<f32> {
        let values = Values::new(&config, seed, tensor);
        (0..100_000).map(|at| values.at(at / 200, 16 + at % 200).to_f32()).collect()
    };
    let correlation = |a: &[f32], b: &[f32]| {
        let product = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        product(a, b) / (product(a, a) * product(b, b)).sqrt()
    };
    let tensor = |layer, tensor| Tensor::Layer(layer, tensor);
    let base = sample(1, tensor(0, LayerTensor::QProj));
    for (seed, other) in [
        (2, tensor(0, LayerTensor::QProj)),
        (1, tensor(0, LayerTensor::KProj)),
        (1, tensor(1, LayerTensor::QProj)),
        (1, Tensor::Embedding),
    ] {
        let found = correlation(&base, &sample(seed, other));
        assert!(found.abs() < 0.015, "{other:?} of seed {seed}: {found}");
        let shifted = correlation(&base[1..], &sample(seed, other));
        assert!(shifted.abs() < 0.015, "{other:?} of seed {seed}: {shifted}");
    }
    let size = (base.iter().map(|x| x * x).sum::<f32>() / base.len() as f32).sqrt();
    assert!((size * (config.hidden as f32).sqrt() - 1.0).abs() < 0.01, "{size}");
}

#[test]
fn growth_reaches_the_stated_size() {
    for config in [shape("qwen3-0.6b").unwrap(), small(), shape("tiny").unwrap()] {
        let total = residual_size(&config, config.layers) / EMBEDDING_DEVIATION;
        let wanted = (config.hidden as f32).sqrt() / COPY_DEVIATIONS;
        assert!((total / wanted - 1.0).abs() < 1e-4, "{total} and {wanted}");
    }
}

#[test]
fn a_folder_in_use_is_refused_and_a_failure_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("model");
    write(&small(), 1, &dir, &|_| Ok(())).unwrap();
    let error = write(&small(), 1, &dir, &|_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    let under_file = dir.join("config.json").join("model");
    write(&small(), 1, &under_file, &|_| Ok(())).unwrap_err();
    let names: Vec<_> = std::fs::read_dir(parent.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn what_is_interrupted_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let stop = |_| Err(std::io::ErrorKind::Interrupted.into());
    write(&small(), 1, &parent.path().join("m"), &stop).unwrap_err();
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}
