//! The trained tiny model through the gate, against the reference of this repository. Its few
//! positions are no whole gate, and the gate says so.

use crate::load;
use half::bf16;
use monolith_harness::gate::{GateOptions, run};
use monolith_harness::identity::{ids_sha256, tensors_sha256};
use monolith_harness::prompts::prompt_ids;
use monolith_harness::reference::{ErrorStats, Long, Reference, Summary};
use monolith_model::{Checkpoint, Config, Weights};
use monolith_pack::{Pack, Source, pack_to_bytes};
use monolith_reference::{KvFormat, Reference as Oracle};
use std::path::Path;
use std::sync::Arc;

const NEW: usize = 8;
const CONTEXT: usize = 96;

/// Logits after each token: in f32, and rounded to bf16 (but for the cache, which is as exact).
fn logits(weights: &dyn Weights, tokens: &[u32], keep: usize) -> (Vec<f32>, Vec<f32>) {
    let outputs = Oracle::new(weights, KvFormat::F32).extend(tokens).expect("it runs");
    let rows = outputs.logits.rows().into_iter().skip(tokens.len() - keep);
    let exact: Vec<f32> = rows.flatten().copied().collect();
    let rounded = exact.iter().map(|&logit| bf16::from_f32(logit).to_f32()).collect();
    (exact, rounded)
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&logit| logit == best).map_or(0, |at| at as u32)
}

fn margin(row: &[f32]) -> f32 {
    let mut sorted = row.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted[0] - sorted[1]
}

fn reference(weights: &dyn Weights, pack: &Pack, prompts: &[Vec<u32>]) -> Reference {
    let vocab = weights.config().vocab;
    let (mut tokens, mut margins) = (Vec::new(), Vec::new());
    let (mut rows_f32, mut rows_bf16) = (Vec::new(), Vec::new());
    for prompt in prompts {
        let mut fed = prompt.clone();
        for _ in 0..NEW {
            fed.push(argmax(&logits(weights, &fed, 1).1));
        }
        let (exact, rounded) = logits(weights, &fed[..fed.len() - 1], NEW);
        tokens.push(fed[prompt.len()..].to_vec());
        margins.push(rounded.chunks(vocab).map(margin).collect());
        rows_f32.extend(exact);
        rows_bf16.extend(rounded);
    }
    let errors = rows_f32.iter().zip(&rows_bf16).map(|(a, b): (&f32, &f32)| (a - b).abs());
    let error = ErrorStats::of(errors.collect());
    let long: Vec<u32> = prompts.iter().flatten().copied().cycle().take(CONTEXT).collect();
    let (long_f32, long_bf16) = logits(weights, &long, 4);
    Reference {
        sha256: "made by the test".into(),
        margin: margins,
        f32_argmax: rows_f32.chunks(vocab).map(argmax).collect(),
        rows_index: (0..prompts.len()).flat_map(|p| (0..NEW).map(move |s| (p, s))).collect(),
        long: Long {
            tokens: long,
            positions: (CONTEXT - 4..CONTEXT).collect(),
            margin: long_bf16.chunks(vocab).map(margin).collect(),
            bf16_argmax: long_bf16.chunks(vocab).map(argmax).collect(),
            rows_f32: long_f32,
            rows_bf16: long_bf16,
        },
        rows_f32,
        rows_bf16,
        summary: Summary {
            schema_version: 1,
            engine: "monolith-reference".into(),
            format: "f32".into(),
            attention: "its own".into(),
            torch: "none".into(),
            transformers: "none".into(),
            device: "cpu".into(),
            tensors_sha256: tensors_sha256(pack),
            prompt_ids_sha256: ids_sha256(prompts),
            logits_sha256: String::new(),
            vocab,
            new: NEW,
            context: CONTEXT,
            tolerance: error.p999,
            error,
            near_ties: 0,
            prompts: prompts.to_vec(),
            tokens,
        },
    }
}

#[test]
fn the_tiny_model_goes_through_the_gate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = root.join("data/tiny");
    let weights = Checkpoint::open(&dir).unwrap();
    let source = Source { model: "tiny".into(), revision: None };
    let pack = pack_to_bytes(&weights, source);
    let pack = Arc::new(Pack::from_bytes(pack, "tiny.pack").unwrap());
    let vocab = weights.config().vocab;
    let ids = prompt_ids(&root.join("data/prompts/bench.jsonl"), &dir, vocab).unwrap();
    let prompts: Vec<Vec<u32>> = ids.ids[..2].iter().map(|ids| ids[..16].to_vec()).collect();
    let reference = reference(&weights, &pack, &prompts);
    let planted = Config { vocab: 96, ..crate::fixture::config() };
    let options = GateOptions { planted: Some(planted) };
    let record = run(&pack, &load, &reference, "a run", &options, &mut |_| ()).unwrap();
    assert_eq!(record.checks.tokens.matches, 2 * NEW, "{:?}", record.checks.tokens);
    assert_eq!(record.checks.context.divergences, []);
    assert!(!record.passed);
    let size = ["tokens: 2 prompts x 8 tokens", "rows: 16 positions", "logits:"];
    for failure in &record.failures {
        assert!(size.iter().any(|begin| failure.starts_with(begin)), "{failure}");
    }
}
