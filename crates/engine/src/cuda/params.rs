//! The kernel's parameters.

use super::{Buffers, CudaOptions};
use crate::EngineError;
use cudarc::driver::{CudaStream, DevicePtr, DeviceRepr};
use monolith_abi::kernel::StepArgs;
use monolith_model::Config;
use monolith_pack::{LayerSection, Pack, Section};
use std::sync::Arc;

/// [`StepArgs`] as a kernel parameter.
#[repr(transparent)]
pub(super) struct Param(pub(super) StepArgs);

// SAFETY: plain numbers in C layout, without padding; the kernel's own struct is generated from
// the same list and asserts the same offsets.
unsafe impl DeviceRepr for Param {}

/// Returns the parameters that are the same in every step, except the buffers' addresses.
pub(super) fn args(
    pack: &Pack,
    options: &CudaOptions,
    context: usize,
) -> Result<StepArgs, EngineError> {
    let config = pack.config();
    let at = |layer, section| pack.offset(Section::Layer(layer, section));
    let layer_base = at(0, LayerSection::Norms);
    let layer_stride = if config.layers > 1 { at(1, LayerSection::Norms) - layer_base } else { 0 };
    check_stride(pack, config, layer_base, layer_stride)?;
    let within = |section| at(0, section) - layer_base;
    let injected = options.injected;
    Ok(StepArgs {
        layer_base,
        layer_stride,
        norms: within(LayerSection::Norms),
        qkv: within(LayerSection::Qkv),
        o_proj: within(LayerSection::OProj),
        gate_up: within(LayerSection::GateUp),
        down: within(LayerSection::Down),
        final_norm: pack.offset(Section::FinalNorm),
        lm_head: pack.offset(Section::LmHead),
        embedding: pack.offset(if config.tied { Section::LmHead } else { Section::Embedding }),
        timeout_ns: options.timeout.as_nanos() as u64,
        context: context as u32,
        norm_eps: config.norm_eps as f32,
        injected_kind: injected.map_or(0, |fault| fault.kind),
        injected_block: injected.map_or(0, |fault| fault.block),
        injected_layer: injected.map_or(0, |fault| fault.layer),
        injected_phase: injected.map_or(0, |fault| fault.phase as u32),
        delay_seed: options.delay_seed,
        ..StepArgs::default()
    })
}

/// The kernel steps from layer to layer by one stride: checks that every layer has the same layout.
fn check_stride(pack: &Pack, config: &Config, base: u64, stride: u64) -> Result<(), EngineError> {
    for layer in 0..config.layers {
        for section in LayerSection::ALL {
            let first = pack.offset(Section::Layer(0, section)) - base;
            let wanted = base + layer as u64 * stride + first;
            if pack.offset(Section::Layer(layer, section)) != wanted {
                let name = Section::Layer(layer, section).name();
                return Err(EngineError::UnfitPack(format!(
                    "the pack's section {name} is not at the layer stride: pack the model again"
                )));
            }
        }
    }
    Ok(())
}

impl Buffers {
    /// Puts the buffers' addresses into the parameters.
    pub(super) fn point(&self, stream: &Arc<CudaStream>, args: &mut StepArgs) {
        args.weights = self._weights.device_ptr(stream).0;
        args.kv = self._kv.device_ptr(stream).0;
        args.rope = self._rope.device_ptr(stream).0;
        args.slots = self.slots.device_ptr(stream).0;
        args.tokens = self.tokens.device_ptr(stream).0;
        args.greedy = self.greedy.device_ptr(stream).0;
        args.control = self.control.device_ptr(stream).0;
        args.waits = self.waits.device_ptr(stream).0;
    }

    /// The address to which the kernel writes logits.
    pub(super) fn logits_address(&self, stream: &Arc<CudaStream>) -> u64 {
        self.logits.device_ptr(stream).0
    }
}
