//! Helpers for the tests of all engines.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod promises;

use monolith_abi::Phase;
use monolith_engine::Engine;
use monolith_model::{Config, MemoryWeights};
use monolith_pack::{Formats, Pack, Source, pack_to_bytes, pack_to_bytes_as};
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

/// Random weights that FP8 keeps exactly: every code but those that are no numbers, times a power
/// of two, and in each row the largest code.
pub fn random_codes(config: &Config, seed: u64) -> MemoryWeights {
    let mut state = seed;
    MemoryWeights::from_fn(config, |tensor, row, col| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let code = (state >> 56) as u8;
        let (_, cols) = tensor.shape(config);
        if tensor.is_norm() {
            return 1.0 + f32::from(code) / 512.0;
        }
        let largest = 0x7e;
        let code = if col == row % cols { largest } else { code };
        let code = if code & 0x7f == 0x7f { code & 0x80 } else { code };
        // Most codes are small: of a row's values the deviation is an eighth of the largest.
        let scale = 2.0_f32.powi((8.0 / 448.0 / (cols as f32).sqrt()).log2() as i32);
        float8::F8E4M3::from_bits(code).to_f32() * scale
    })
}

fn source() -> Source {
    Source { model: "random".into(), revision: None }
}

/// The weights as a pack.
pub fn pack(weights: &MemoryWeights) -> Arc<Pack> {
    let bytes = pack_to_bytes(weights, source());
    Arc::new(Pack::from_bytes(bytes, "random.pack").expect("a fresh pack is whole"))
}

/// The weights as a pack of these formats.
pub fn pack_as(weights: &MemoryWeights, formats: Formats) -> Arc<Pack> {
    let bytes = pack_to_bytes_as(weights, source(), formats).expect("the weights can be packed");
    Arc::new(Pack::from_bytes(bytes, "random.pack").expect("a fresh pack is whole"))
}

/// Every phase's output of the engine's last step.
pub fn intermediates(engine: &dyn Engine) -> Intermediates {
    let mut seen = Intermediates::default();
    for layer in 0..engine.config().layers {
        for phase in Phase::LAYER {
            // The CUDA engine's attention does not leave the block that multiplies by it.
            let values = engine.intermediate(layer, phase);
            assert!(values.is_some() || phase == Phase::Attention, "a step was run");
            let Some(values) = values else { continue };
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
