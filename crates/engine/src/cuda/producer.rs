//! Finds the block that publishes a value: the inverse of the kernel's rules (`abi::step`).

use crate::plan::Plan;
use monolith_abi::Phase;
use monolith_abi::dump::NO_LAYER;
use monolith_abi::step::{OUTPUTS, Output, Step, output_item, owner_of_piece};

/// The owners of one step's units.
pub(super) struct Producers {
    plan: Plan,
}

impl Producers {
    pub(super) fn new(step: Step, blocks: usize) -> Producers {
        Producers { plan: Plan::of(step, blocks) }
    }

    fn step(&self) -> &Step {
        self.plan.step()
    }

    /// Layers of the model.
    pub(super) fn layers(&self) -> usize {
        self.step().dims.layers
    }

    /// Returns the owner of a unit, or `None` of a counter; units are counted from the first slot.
    pub(super) fn of_unit(&self, unit: usize) -> Option<usize> {
        let sizes = &self.step().sizes;
        if unit >= sizes.counters_base {
            return None;
        }
        if let Some(within) = unit.checked_sub(sizes.outputs_base) {
            let kv_head = within % sizes.layer_outputs / sizes.output_line;
            return Some(self.of_item(output_item(0, kv_head, self.step().dims.kv_heads)));
        }
        if let Some(within) = unit.checked_sub(sizes.final_base) {
            return Some(within % sizes.final_units / 2);
        }
        if let Some(within) = unit.checked_sub(sizes.partials_base) {
            return Some(self.of_partial(within % sizes.layer_partials / sizes.partial_line));
        }
        let within = unit % sizes.layer_units;
        Some(self.output_at(within).map_or(0, |output| self.of_output(output, within)))
    }

    /// Returns the phase whose output a unit is, and its layer ([`NO_LAYER`] for the LM head).
    pub(super) fn place_of_unit(&self, unit: usize) -> (Phase, u16) {
        let sizes = &self.step().sizes;
        if let Some(within) = unit.checked_sub(sizes.counters_base) {
            let counter = within % sizes.counters_units / sizes.counter_line;
            let phase = self.counted(counter % sizes.layer_counters);
            return (phase, (counter / sizes.layer_counters) as u16);
        }
        if let Some(within) = unit.checked_sub(sizes.outputs_base) {
            return (Phase::Attention, (within / sizes.layer_outputs) as u16);
        }
        if unit >= sizes.final_base {
            return (Phase::LmHead, NO_LAYER);
        }
        if let Some(within) = unit.checked_sub(sizes.partials_base) {
            return (Phase::Attention, (within / sizes.layer_partials) as u16);
        }
        let phase =
            self.output_at(unit % sizes.layer_units).map_or(Phase::Qkv, |output| output.phase);
        (phase, (unit / sizes.layer_units) as u16)
    }

    /// The phase that a layer's counter counts.
    fn counted(&self, counter: usize) -> Phase {
        let sizes = &self.step().sizes;
        let firsts = [
            (sizes.down_counter, Phase::Down),
            (sizes.gate_up_counter, Phase::GateUp),
            (sizes.o_proj_counter, Phase::OProj),
            (sizes.attention_counter, Phase::Attention),
        ];
        let of = firsts.into_iter().find(|&(first, _)| counter >= first);
        of.map_or(Phase::Qkv, |(_, phase)| phase)
    }

    /// The phase's output in whose slot a unit lies; `within` counts from the layer's first.
    fn output_at(&self, within: usize) -> Option<&'static Output> {
        let begin = |output: &Output| output.slot.map(|slot| slot.begin.of(self.step()));
        let starts_before = |output: &&Output| begin(output).is_some_and(|begin| begin <= within);
        OUTPUTS.iter().rev().find(starts_before)
    }

    /// Returns the owner of a unit of a layer phase's slot; `within` counts from the layer's first.
    fn of_output(&self, output: &Output, within: usize) -> usize {
        let Some(slot) = output.slot else { return 0 };
        let at = within - slot.begin.of(self.step());
        let (pair, _) = slot.pair(self.step(), at);
        if slot.sums.is_none() {
            return self.plan.owner(output.phase, 2 * pair);
        }
        let items =
            output.width.of(self.step()) / 2 / slot.per.of(self.step()) * slot.sums(self.step());
        owner_of_piece(at / slot.line.of(self.step()), self.plan.workers, items)
    }

    /// Returns the owner of one rank's partial result of one query head, counted head by head.
    fn of_partial(&self, slot: usize) -> usize {
        let Step { dims, sizes, .. } = self.step();
        let (head, rank) = (slot / sizes.splits, slot % sizes.splits);
        self.of_item(output_item(rank, head / sizes.group_heads, dims.kv_heads))
    }

    /// Returns the owner of an item of the O projection.
    fn of_item(&self, item: usize) -> usize {
        let Step { dims, sizes, .. } = self.step();
        owner_of_piece(item, self.plan.workers, sizes.ranks * dims.kv_heads)
    }
}
