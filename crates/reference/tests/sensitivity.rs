//! A gate on synthetic weights is worth something only where a fault shows: deleting a layer,
//! zeroing one head, or another RoPE base must change the greedy tokens, and the model must not
//! copy its input. See `notes/synth.md`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, helpers and all")]

mod common;

use common::WithTheta;
use monolith_model::{Checkpoint, Config, Weights, synth};
use monolith_reference::{KvFormat, LayerCache, phases};
use ndarray::{Array2, s};
use std::collections::BTreeSet;
use std::fmt;

/// A fault.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// The layer passes the residual on as it is.
    DeleteLayer(usize),
    /// The output projection sees zeros for one head.
    ZeroHead { layer: usize, head: usize },
    /// RoPE base 1e4.
    Theta,
    /// The residual is rounded to bf16 after every layer: not a fault, but the size of honest
    /// differences between engines.
    RoundResidual,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::DeleteLayer(layer) => write!(f, "layer {layer} deleted"),
            Edit::ZeroHead { layer, head } => write!(f, "layer {layer}, head {head} zeroed"),
            Edit::Theta => f.write_str("theta 1e4"),
            Edit::RoundResidual => f.write_str("(residual rounded to bf16)"),
        }
    }
}

/// One layer of a whole sequence.
fn layer(
    weights: &dyn Weights,
    layer: usize,
    residual: &Array2<f32>,
    zeroed_head: Option<usize>,
) -> Array2<f32> {
    let config = weights.config();
    let mut cache = LayerCache::new(config.kv_dim(), KvFormat::F32);
    let qkv = phases::qkv(weights, layer, residual);
    let mut attention = phases::attention(weights, layer, &qkv, &mut cache);
    if let Some(head) = zeroed_head {
        let columns = head * config.head_dim..(head + 1) * config.head_dim;
        attention.slice_mut(s![.., columns]).fill(0.0);
    }
    let residual = phases::o_proj(weights, layer, &attention, residual);
    let gate_up = phases::gate_up(weights, layer, &residual);
    phases::down(weights, layer, &gate_up, &residual)
}

/// The unedited model on one token sequence.
struct Base<'a> {
    weights: &'a dyn Weights,
    tokens: Vec<u32>,
    /// The residual before each layer.
    residuals: Vec<Array2<f32>>,
    logits: Array2<f32>,
    greedy: Vec<u32>,
}

impl Base<'_> {
    fn new(weights: &dyn Weights, tokens: Vec<u32>) -> Base<'_> {
        let mut residual = phases::embed(weights, &tokens).unwrap();
        let mut residuals = Vec::new();
        for at in 0..weights.config().layers {
            let next = layer(weights, at, &residual, None);
            residuals.push(residual);
            residual = next;
        }
        let logits = phases::lm_head(weights, &residual);
        let greedy = phases::argmax(&logits).unwrap();
        Base { weights, tokens, residuals, logits, greedy }
    }

    /// Share of the greedy tokens that the edit changes.
    fn changed(&self, edit: Edit) -> f64 {
        let config = self.weights.config();
        let theta = WithTheta::new(self.weights, 1e4);
        let (weights, next, mut residual): (&dyn Weights, _, _) = match edit {
            Edit::DeleteLayer(at) => (self.weights, at + 1, self.residuals[at].clone()),
            Edit::ZeroHead { layer: at, head } => {
                let residual = layer(self.weights, at, &self.residuals[at], Some(head));
                (self.weights, at + 1, residual)
            }
            Edit::Theta => (&theta, 0, self.residuals[0].clone()),
            Edit::RoundResidual => (self.weights, 0, self.residuals[0].clone()),
        };
        for at in next..config.layers {
            residual = layer(weights, at, &residual, None);
            if let Edit::RoundResidual = edit {
                residual.mapv_inplace(|x| half::bf16::from_f32(x).to_f32());
            }
        }
        let greedy = phases::argmax(&phases::lm_head(weights, &residual)).unwrap();
        share(self.greedy.iter().zip(&greedy).map(|(a, b)| a != b))
    }

    /// Share of the greedy tokens that other tokens change, at every eighth position: other tokens
    /// there (`own`), or everywhere else.
    fn changed_by_tokens(&self, own: bool) -> f64 {
        let vocab = self.weights.config().vocab as u32;
        let probed = |at: &usize| at % 8 == 7;
        let replaced =
            |(at, &token)| if probed(&at) == own { (token + 1234) % vocab } else { token };
        let tokens = self.tokens.iter().enumerate().map(replaced).collect();
        let other = Base::new(self.weights, tokens);
        let probes: Vec<usize> = (0..self.tokens.len()).filter(probed).collect();
        share(probes.iter().map(|&at| self.greedy[at] != other.greedy[at]))
    }

    fn copies(&self) -> f64 {
        share(self.tokens.iter().zip(&self.greedy).map(|(a, b)| a == b))
    }

    /// Deciles (0, 10, ... 100%) of the gap between the two largest logits, in deviations of the
    /// row's logits.
    fn margin_deciles(&self) -> Vec<f32> {
        let margin = |row: ndarray::ArrayView1<f32>| {
            let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
            for &logit in row {
                second = second.max(logit.min(first));
                first = first.max(logit);
            }
            (first - second) / row.std(0.0)
        };
        let mut margins: Vec<f32> = self.logits.rows().into_iter().map(margin).collect();
        margins.sort_by(f32::total_cmp);
        (0..=10).map(|decile| margins[(margins.len() - 1) * decile / 10]).collect()
    }
}

fn share(hits: impl ExactSizeIterator<Item = bool>) -> f64 {
    let count = hits.len();
    hits.filter(|&hit| hit).count() as f64 / count as f64
}

/// Prints the table and checks the limits.
fn check(weights: &dyn Weights, positions: usize, edits: &[Edit]) {
    let started = std::time::Instant::now();
    let base = Base::new(weights, common::tokens(weights.config(), positions));
    let distinct = base.greedy.iter().collect::<BTreeSet<_>>().len();
    println!("{positions} positions, {distinct} distinct greedy tokens");
    println!("{:5.1}% equal their input", 100.0 * base.copies());
    println!("margin deciles, in deviations of the logits: {:.3?}", base.margin_deciles());
    let mut failures = Vec::new();
    for (own, what) in [(true, "their own token replaced"), (false, "every other token replaced")] {
        let changed = base.changed_by_tokens(own);
        println!("{:5.1}% changed: {what}", 100.0 * changed);
        if changed < 0.2 {
            failures.push(format!("{what}: {:.1}%", 100.0 * changed));
        }
    }
    for &edit in edits {
        let changed = base.changed(edit);
        println!("{:5.1}% changed: {edit}", 100.0 * changed);
        if changed < 0.2 && !matches!(edit, Edit::RoundResidual) {
            failures.push(format!("{edit}: {:.1}%", 100.0 * changed));
        }
    }
    println!("{:.0} s", started.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "under 20% of tokens changed: {failures:?}");
    assert!(base.copies() < 0.05, "{:.1}% equal their input", 100.0 * base.copies());
}

/// Theta, the given heads zeroed, and every layer deleted.
fn edits(config: &Config, heads: impl Iterator<Item = (usize, usize)>) -> Vec<Edit> {
    let mut edits = vec![Edit::RoundResidual, Edit::Theta];
    edits.extend(heads.map(|(layer, head)| Edit::ZeroHead { layer, head }));
    edits.extend((0..config.layers).map(Edit::DeleteLayer));
    edits
}

/// Every head of every layer.
#[test]
fn tiny_shape() {
    let config = synth::shape("tiny").unwrap();
    let weights = synth::weights(&config, 1);
    let heads = (0..config.layers * config.heads).map(|at| (at / config.heads, at % config.heads));
    check(&weights, 256, &edits(&config, heads));
}

/// Sixteen heads, spread over layers and heads, the first and the last layer among them; the
/// checkpoint by way of the disk.
#[test]
fn full_shape() {
    let config = synth::shape("qwen3-0.6b").unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    synth::write(&config, 1, dir.path(), &|_| Ok(())).unwrap();
    let weights = Checkpoint::open(dir.path()).unwrap();
    let heads = (0..16).map(|at| (at * (config.layers - 1) / 15, at * 5 % config.heads));
    check(&weights, 96, &edits(&config, heads));
}
