//! The kernel's parameters.

use super::{Buffers, CudaOptions};
use crate::EngineError;
use cudarc::driver::{CudaStream, DevicePtr, DeviceRepr};
use monolith_abi::kernel::{PhaseArgs, StepArgs};
use monolith_pack::{LayerSection, Pack, Section};
use std::sync::Arc;

/// [`StepArgs`] as a kernel parameter.
#[repr(transparent)]
pub(super) struct Param(pub(super) StepArgs);

// SAFETY: plain numbers in C layout, without padding; the kernel's own struct is generated from
// the same list and asserts the same offsets.
unsafe impl DeviceRepr for Param {}

/// [`PhaseArgs`] as a kernel parameter.
#[repr(transparent)]
pub(super) struct PhaseParam(pub(super) PhaseArgs);

// SAFETY: as of `Param`.
unsafe impl DeviceRepr for PhaseParam {}

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
    check_stride(|section| pack.offset(section), config.layers, [layer_base, layer_stride])?;
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

/// The kernel steps from layer to layer by one stride: checks that every layer has the layout of
/// layer 0. The matrices of a layer may differ in format, and so in size, from one another.
fn check_stride(
    offset: impl Fn(Section) -> u64,
    layers: usize,
    [base, stride]: [u64; 2],
) -> Result<(), EngineError> {
    for layer in 0..layers {
        for section in LayerSection::ALL {
            let first = offset(Section::Layer(0, section)) - base;
            let wanted = base + layer as u64 * stride + first;
            if offset(Section::Layer(layer, section)) != wanted {
                let name = Section::Layer(layer, section).name();
                return Err(EngineError::UnfitPack(format!(
                    "the pack's section {name} is not at the layer stride, and a kernel needs the \
                     same layout in every layer: pack the model again"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::choose;
    use monolith_abi::{MatrixKind, WeightFormat};
    use monolith_model::{Config, MemoryWeights};
    use monolith_pack::{Formats, Source, pack_to_bytes_as};

    const MIXED: Formats = Formats::FP8.with(MatrixKind::Down, WeightFormat::Bf16);

    fn mixed_pack() -> Pack {
        let config = Config {
            hidden: 32,
            intermediate: 48,
            layers: 3,
            heads: 2,
            kv_heads: 1,
            head_dim: 16,
            vocab: 40,
            ..Config::qwen3_0_6b()
        };
        let weights = MemoryWeights::from_fn(&config, |_, row, col| 1.0 + (row + col) as f32);
        let bytes = pack_to_bytes_as(&weights, Source::default(), MIXED).unwrap();
        Pack::from_bytes(bytes, "mixed.pack").unwrap()
    }

    #[test]
    fn a_mixed_pack_has_one_stride_and_its_own_sizes() {
        let pack = mixed_pack();
        let args = args(&pack, &CudaOptions::default(), 8).unwrap();
        let bytes = |section| {
            Section::Layer(0, section).bytes(pack.config(), MIXED.of(Section::Layer(0, section)))
        };
        assert_eq!(args.gate_up - args.o_proj, bytes(LayerSection::OProj).next_multiple_of(4096));
        let down = args.down + bytes(LayerSection::Down).next_multiple_of(4096);
        assert_eq!(args.layer_stride, down);
        assert_eq!(args.final_norm, args.layer_base + 3 * args.layer_stride);
    }

    #[test]
    fn layers_that_differ_are_refused_by_name() {
        let pack = mixed_pack();
        let at = |layer, section| pack.offset(Section::Layer(layer, section));
        let base = at(0, LayerSection::Norms);
        let stride = at(1, LayerSection::Norms) - base;
        check_stride(|section| pack.offset(section), 3, [base, stride]).unwrap();
        let moved = Section::Layer(2, LayerSection::GateUp);
        let offset = |section| pack.offset(section) + u64::from(section == moved) * 4096;
        let said = check_stride(offset, 3, [base, stride]).unwrap_err().to_string();
        assert!(said.contains("layers.2.gate_up is not at the layer stride"), "{said}");
        assert!(said.contains("same layout in every layer"), "{said}");
    }

    #[test]
    fn no_kernel_runs_a_mixed_pack_and_the_engine_says_why() {
        let said = choose(&CudaOptions::default(), MIXED).unwrap_err().to_string();
        assert!(said.contains("no kernel runs a pack in mixed-qkv-fp8-o_proj-fp8"), "{said}");
        assert!(said.contains("one format for all matrices of the layers"), "{said}");
        let variant = monolith_kernels::Variant::find("fp8-flag").ok();
        let asked = CudaOptions { variant, ..CudaOptions::default() };
        let said = choose(&asked, MIXED).unwrap_err().to_string();
        assert!(said.contains("fp8-flag runs weights in fp8, but the pack is in mixed-"), "{said}");
        for formats in Formats::NAMED {
            choose(&CudaOptions::default(), formats).unwrap();
        }
    }
}
