//! A fault record in words: who waited for what, and from whom.

use super::CudaOptions;
use crate::EngineError;
use crate::plan::Plan;
use monolith_abi::dump::NO_LAYER;
use monolith_abi::kernel::FaultRecord;
use monolith_abi::{Phase, WaitKind};
use monolith_model::Config;

/// A record, and what it takes to read it.
pub(super) struct Fault<'a> {
    pub(super) record: FaultRecord,
    pub(super) config: &'a Config,
    pub(super) options: &'a CudaOptions,
}

impl Fault<'_> {
    /// The fault as an error that says who waited for whom.
    pub(super) fn into_error(self, blocks: usize) -> EngineError {
        let record = self.record;
        EngineError::KernelFault {
            block: record.block,
            warp: record.warp,
            what: self.what(blocks),
            patience: self.options.patience,
        }
    }

    fn what(&self, blocks: usize) -> String {
        let FaultRecord { kind, layer, phase, unit, expected, seen, epoch, .. } = self.record;
        let name = Phase::from_id(phase as u8).map_or("?", Phase::name);
        let place = if layer == u32::from(NO_LAYER) {
            name.to_owned()
        } else {
            format!("{name} of layer {layer}")
        };
        match WaitKind::from_id(kind as u8) {
            Some(WaitKind::Exchange) => format!(
                "{place} from block {} (unit {unit}: expected epoch {expected}, saw {seen})",
                self.producer(blocks)
            ),
            Some(WaitKind::RingFull) => format!(
                "the weights of {place} in ring stage {unit} (parity {expected}, step {epoch}): \
                 its loader or the copy engine"
            ),
            Some(WaitKind::RingEmpty) => format!(
                "ring stage {unit} to be released for {place} (parity {expected}, step {epoch}): \
                 its own consumer warps"
            ),
            None => format!("something that this version does not know (kind {kind})"),
        }
    }

    /// The block that owns the awaited unit: the kernel's own rules, backwards.
    fn producer(&self, blocks: usize) -> usize {
        let plan = Plan::new(self.config, blocks);
        let unit = self.record.unit as usize;
        let layer_units = plan.base(1, Phase::Qkv);
        let partials = self.config.layers * layer_units;
        let variant = self.options.variant;
        let splits = variant.kv_splits as usize;
        let per_head = splits * (self.config.head_dim + 2);
        let finals = partials + self.config.layers * self.config.heads * per_head;
        if unit >= finals {
            return (unit - finals) % (2 * monolith_abi::kernel::BLOCKS_MAX as usize) / 2;
        }
        if unit >= partials {
            let within = (unit - partials) % (self.config.heads * per_head);
            let (head, split) = (within / per_head, within % per_head / (self.config.head_dim + 2));
            let pair = split * self.config.kv_heads + head / self.config.group_heads();
            return pair % blocks;
        }
        let layer = unit / layer_units;
        let phase = Phase::LAYER
            .into_iter()
            .rev()
            .find(|&phase| plan.base(layer, phase) <= unit)
            .unwrap_or(Phase::Qkv);
        let index = unit - plan.base(layer, phase);
        if phase != Phase::Attention {
            return plan.owner(phase, index);
        }
        let head = index / self.config.head_dim;
        let one_split = self.record_position_has_one_split();
        if one_split {
            head / self.config.group_heads() % blocks
        } else {
            blocks - 1 - head % blocks
        }
    }

    /// Whether the step had few enough positions for one split; the epoch tells the position only
    /// for a text that was never gone back on, so this is a guess that the words do not hide.
    fn record_position_has_one_split(&self) -> bool {
        self.record.epoch <= self.options.variant.kv_chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn words(record: FaultRecord) -> String {
        let config = Config::qwen3_0_6b();
        let options = CudaOptions { patience: Duration::from_secs(2), ..CudaOptions::default() };
        Fault { record, config: &config, options: &options }.into_error(132).to_string()
    }

    #[test]
    fn an_exchange_names_the_producer() {
        let config = Config::qwen3_0_6b();
        let plan = Plan::new(&config, 132);
        for phase in [Phase::Qkv, Phase::OProj, Phase::GateUp, Phase::Down] {
            for index in [0, 7, plan.width(phase) - 1] {
                let record = FaultRecord {
                    kind: WaitKind::Exchange as u32,
                    block: 9,
                    layer: 3,
                    phase: phase as u32,
                    unit: (plan.base(3, phase) + index) as u32,
                    expected: 5,
                    seen: 4,
                    ..FaultRecord::default()
                };
                let said = words(record);
                let owner = plan.owner(phase, index);
                let wanted = format!("{} of layer 3 from block {owner} (unit", phase.name());
                assert!(said.contains(&wanted) && said.starts_with("block 9"), "{said}");
            }
        }
    }

    #[test]
    fn a_ring_names_its_stage() {
        for (kind, word) in [(WaitKind::RingFull, "weights"), (WaitKind::RingEmpty, "released")] {
            let record = FaultRecord {
                kind: kind as u32,
                layer: u32::from(NO_LAYER),
                phase: Phase::LmHead as u32,
                unit: 7,
                ..FaultRecord::default()
            };
            let said = words(record);
            assert!(said.contains("lm_head") && said.contains("stage 7"), "{said}");
            assert!(said.contains(word), "{said}");
        }
        assert!(words(FaultRecord { kind: 99, ..FaultRecord::default() }).contains("kind 99"));
    }
}
