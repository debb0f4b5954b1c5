//! Finds the block that publishes a value: the inverse of the kernel's rules (`abi::step`).

use crate::plan::Plan;
use monolith_abi::Phase;
use monolith_abi::step::{OUTPUTS, Output, Step, active_splits, attention_unit, first_combined};

/// The owners of one step's units.
pub(super) struct Producers {
    plan: Plan,
    position: usize,
}

impl Producers {
    pub(super) fn new(step: Step, blocks: usize, position: usize) -> Producers {
        Producers { plan: Plan::of(step, blocks), position }
    }

    fn step(&self) -> &Step {
        self.plan.step()
    }

    /// Layers of the model.
    pub(super) fn layers(&self) -> usize {
        self.step().dims.layers
    }

    /// Returns the owner of a unit; units are counted from the first slot.
    pub(super) fn of_unit(&self, unit: usize) -> usize {
        let sizes = &self.step().sizes;
        if let Some(within) = unit.checked_sub(sizes.final_base) {
            return within % sizes.final_units / 2;
        }
        if let Some(within) = unit.checked_sub(sizes.partials_base) {
            return self.of_partial(within % sizes.layer_partials / sizes.partial_line);
        }
        let within = unit % sizes.layer_units;
        let starts_before = |output: &&Output| output.slot.of(self.step()) <= within;
        let Some(output) = OUTPUTS.iter().rev().find(starts_before) else { return 0 };
        let pair = output.pair(self.step(), within - output.slot.of(self.step()));
        self.of_value(output.phase, 2 * pair)
    }

    /// Returns the owner of a value of a layer phase's output.
    fn of_value(&self, phase: Phase, index: usize) -> usize {
        if phase != Phase::Attention {
            return self.plan.owner(phase, index);
        }
        let head = index / self.step().dims.head_dim;
        let tuning = &self.step().tuning;
        if active_splits(self.position + 1, tuning.kv_chunk, tuning.kv_splits) == 1 {
            self.of_split(head, 0)
        } else {
            first_combined(head % self.plan.workers, self.plan.workers)
        }
    }

    /// Returns the owner of one split's partial result of one query head, counted head by head.
    fn of_partial(&self, slot: usize) -> usize {
        let splits = self.step().tuning.kv_splits;
        self.of_split(slot / splits, slot % splits)
    }

    /// Returns the block that attends to a split's positions for a query head.
    fn of_split(&self, head: usize, split: usize) -> usize {
        let kv_head = head / self.step().sizes.group_heads;
        attention_unit(kv_head, split, self.step().dims.kv_heads) % self.plan.workers
    }
}
