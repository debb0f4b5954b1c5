//! Finds the block that publishes a value: the inverse of the kernel's rules.

use crate::plan::Plan;
use monolith_abi::Phase;
use monolith_abi::kernel::BLOCKS_MAX;
use monolith_kernels::Variant;
use monolith_model::Config;

/// Units of a head's partial result besides its values: the largest score and the sum of weights.
const PARTIAL_EXTRA: usize = 2;

/// The owners of one step's units.
pub(super) struct Producers<'a> {
    config: &'a Config,
    variant: &'a Variant,
    plan: Plan,
    blocks: usize,
    position: usize,
}

impl Producers<'_> {
    pub(super) fn new<'a>(
        config: &'a Config,
        variant: &'a Variant,
        blocks: usize,
        position: usize,
    ) -> Producers<'a> {
        Producers { config, variant, plan: Plan::new(config, blocks), blocks, position }
    }

    /// Layers of the model.
    pub(super) fn layers(&self) -> usize {
        self.config.layers
    }

    /// Returns the owner of a unit; units are counted from the first slot.
    pub(super) fn of_unit(&self, unit: usize) -> usize {
        let layer_units = self.plan.base(1, Phase::Qkv);
        let partials = self.config.layers * layer_units;
        let per_head = self.splits() * (self.config.head_dim + PARTIAL_EXTRA);
        let layer_partials = self.config.heads * per_head;
        let finals = partials + self.config.layers * layer_partials;
        if unit >= finals {
            return (unit - finals) % (2 * BLOCKS_MAX as usize) / 2;
        }
        if unit >= partials {
            let slot = (unit - partials) % layer_partials / (self.config.head_dim + PARTIAL_EXTRA);
            return self.of_partial(slot);
        }
        let layer = unit / layer_units;
        let starts_before = |phase: &Phase| self.plan.base(layer, *phase) <= unit;
        let phase = Phase::LAYER.into_iter().rev().find(starts_before).unwrap_or(Phase::Qkv);
        self.of_value(phase, unit - self.plan.base(layer, phase))
    }

    /// Returns the owner of a value of a layer phase's output.
    fn of_value(&self, phase: Phase, index: usize) -> usize {
        if phase != Phase::Attention {
            return self.plan.owner(phase, index);
        }
        let head = index / self.config.head_dim;
        if self.active_splits() == 1 {
            head / self.config.group_heads() % self.blocks
        } else {
            // The blocks that combine have no positions themselves until the context is long.
            self.blocks - 1 - head % self.blocks
        }
    }

    /// Returns the owner of one split's partial result of one query head, counted head by head.
    fn of_partial(&self, slot: usize) -> usize {
        let (head, split) = (slot / self.splits(), slot % self.splits());
        let unit = split * self.config.kv_heads + head / self.config.group_heads();
        unit % self.blocks
    }

    fn splits(&self) -> usize {
        self.variant.kv_splits as usize
    }

    /// Returns the number of splits that have positions.
    fn active_splits(&self) -> usize {
        (self.position + 1).div_ceil(self.variant.kv_chunk as usize).min(self.splits())
    }
}
