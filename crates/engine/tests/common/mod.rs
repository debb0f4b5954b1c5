//! What the tests of all engines share.

#![allow(dead_code, reason = "each test file uses its part")]

use monolith_abi::Phase;
use monolith_engine::Engine;
use monolith_model::{Config, MemoryWeights};
use monolith_pack::{Pack, Source, pack_to_bytes};
use monolith_reference::{Intermediates, Place};
use std::sync::Arc;

/// Random weights: norms between 0.5 and 1.5, the rest such that no phase dies out.
pub fn random(config: &Config, seed: u64) -> MemoryWeights {
    let mut state = seed;
    MemoryWeights::from_fn(config, |tensor, _, _| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        let (_, cols) = tensor.shape(config);
        if tensor.is_norm() { 1.0 + 0.5 * unit } else { 2.0 * unit / (cols as f32).sqrt() }
    })
}

/// The weights as a pack.
pub fn pack(weights: &MemoryWeights) -> Arc<Pack> {
    let bytes = pack_to_bytes(weights, Source { model: "random".into(), revision: None });
    Arc::new(Pack::from_bytes(bytes, "random.pack").expect("a fresh pack is whole"))
}

/// Every phase's output of the engine's last step.
pub fn intermediates(engine: &dyn Engine) -> Intermediates {
    let mut seen = Intermediates::default();
    for layer in 0..engine.config().layers {
        for phase in Phase::LAYER {
            let values = engine.intermediate(layer, phase).expect("a step was run");
            seen.insert(Place { layer: Some(layer), phase }, 1, values);
        }
    }
    let mut logits = Vec::new();
    engine.logits(&mut logits);
    seen.insert(Place::LM_HEAD, 1, logits);
    seen
}

/// Greedy tokens and all logits' bits of a decode from token 1.
pub fn decode(engine: &mut dyn Engine, steps: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut token, mut logits) = (1, Vec::new());
    let (mut tokens, mut bits) = (Vec::new(), Vec::new());
    for position in 0..steps {
        token = engine.step(token, position).expect("the step runs");
        engine.logits(&mut logits);
        bits.extend(logits.iter().map(|logit| logit.to_bits()));
        tokens.push(token);
    }
    (tokens, bits)
}
