//! Every intermediate against transformers' Qwen3 in f32 (data/golden, see its README).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, helpers and all")]

mod common;

use common::WithTheta;
use monolith_abi::Phase;
use monolith_model::{Checkpoint, Weights};
use monolith_reference::{
    Intermediates, KvFormat, Place, Reference, Stop, first_difference, phases,
};
use ndarray::{Array2, s};
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

/// Relative to the largest magnitude of each row. Both sides are f32 and sum in different orders:
/// 2e-6 was seen.
const TOLERANCE: f32 = 1e-5;

/// Up to position 1,200, transformers' angles (f32 products of position and frequency) are off by
/// up to 6e-8 * 1,200 = 7e-5 in radians, which peaky attention and the layers after carry on:
/// 2e-5 was seen.
const FAR_TOLERANCE: f32 = 1e-4;

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(path)
}

/// A file of named arrays.
struct Golden(Vec<u8>);

impl Golden {
    fn read(path: &str) -> Golden {
        Golden(std::fs::read(data(path)).unwrap())
    }

    fn ids(&self, name: &str) -> Vec<usize> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        assert_eq!(tensor.dtype(), Dtype::I64, "{name}");
        let id = |bytes: &[u8; 8]| usize::try_from(i64::from_le_bytes(*bytes)).unwrap();
        tensor.data().as_chunks::<8>().0.iter().map(id).collect()
    }

    fn tokens(&self, name: &str) -> Vec<u32> {
        self.ids(name).into_iter().map(|id| id as u32).collect()
    }

    /// An f32 array's values.
    fn values(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
        tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// The rows of every place of a model of `layers` layers.
    fn intermediates(&self, layers: usize) -> Intermediates {
        let rows = self.ids("positions").len();
        let mut all = Intermediates::default();
        all.insert(Place::EMBED, rows, self.values("embed"));
        for layer in 0..layers {
            for phase in Phase::LAYER {
                let values = self.values(&format!("layers.{layer}.{}", phase.name()));
                all.insert(Place { layer: Some(layer), phase }, rows, values);
            }
        }
        all.insert(Place::LM_HEAD, rows, self.values("logits"));
        all
    }
}

/// Rows of every intermediate at `positions`.
fn rows_at(weights: &dyn Weights, tokens: &[u32], positions: &[usize]) -> Intermediates {
    let stop = Stop { layers: weights.config().layers, after: Phase::LmHead };
    let whole = Reference::new(weights, KvFormat::F32).trace(tokens, stop).unwrap();
    let mut rows = Intermediates::default();
    for (place, output) in whole.iter() {
        let picked = positions.iter().flat_map(|&at| output.row(at).to_vec()).collect();
        rows.insert(place, positions.len(), picked);
    }
    rows
}

/// Largest difference of any place, relative to its row.
fn largest_difference(left: &Intermediates, right: &Intermediates) -> f32 {
    let (mut low, mut high) = (0.0f32, 1.0f32);
    while high - low > 1e-8 + low * 1e-2 {
        let middle = (low + high) / 2.0;
        match first_difference(left, right, middle) {
            Some(_) => low = middle,
            None => high = middle,
        }
    }
    high
}

fn compare(weights: &dyn Weights, golden: &Golden, tolerance: f32) {
    let positions = golden.ids("positions");
    let wanted = golden.intermediates(weights.config().layers);
    let found = rows_at(weights, &golden.tokens("tokens"), &positions);
    println!("largest difference {:.1e}", largest_difference(&wanted, &found));
    if let Some(difference) = first_difference(&wanted, &found, tolerance) {
        panic!("{difference}");
    }
    let layers = weights.config().layers;
    let last = Place { layer: Some(layers - 1), phase: Phase::Down };
    let normed = phases::final_norm(weights, &found.get(last).unwrap());
    let wanted = golden.values("final_norm");
    let difference = common::relative_difference(&wanted, &normed);
    assert!(difference < tolerance, "final norm: {difference:e}");
}

#[test]
fn tiny() {
    let checkpoint = Checkpoint::open(&data("tiny")).unwrap();
    let golden = Golden::read("golden/tiny.safetensors");
    compare(&checkpoint, &golden, TOLERANCE);

    let mut reference = Reference::new(&checkpoint, KvFormat::F32);
    let out = reference.extend(&golden.tokens("tokens")).unwrap();
    let mut next = *out.greedy.last().unwrap();
    for (at, &wanted) in golden.tokens("greedy").iter().enumerate() {
        assert_eq!(next, wanted, "greedy token {at}");
        next = reference.extend(&[next]).unwrap().greedy[0];
    }
}

#[test]
fn odd() {
    let checkpoint = Checkpoint::open(&data("golden/odd")).unwrap();
    compare(&checkpoint, &Golden::read("golden/odd/golden.safetensors"), FAR_TOLERANCE);
}

#[test]
fn odd_with_another_theta() {
    let checkpoint = Checkpoint::open(&data("golden/odd")).unwrap();
    let golden = Golden::read("golden/odd/golden.safetensors");
    let tokens = golden.tokens("tokens");
    let wanted = golden.values("logits_theta_1e6");
    let last_logits = |weights: &dyn Weights| -> Array2<f32> {
        let residual = Reference::new(weights, KvFormat::F32).advance(&tokens).unwrap();
        phases::lm_head(weights, &residual.slice(s![-1.., ..]))
    };
    let right = last_logits(&WithTheta::new(&checkpoint, 1e6));
    let difference = common::relative_difference(&wanted, &right);
    println!("largest difference {difference:.1e}");
    assert!(difference < FAR_TOLERANCE, "{difference:e}");
    let wrong = common::relative_difference(&wanted, &last_logits(&checkpoint));
    assert!(wrong > 100.0 * FAR_TOLERANCE, "theta does not show: {wrong:e}");
}
