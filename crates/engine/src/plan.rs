//! The static assignment of rows and heads to workers, and the place of every slot.

use monolith_abi::{Phase, pack::TILE_ROWS};
use monolith_model::Config;
use std::ops::Range;

/// Units that a worker publishes in the final slot: its largest logit and the logit's index.
const FINAL_UNITS: usize = 2;

/// The split of one model's step over a team.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    /// Per layer phase, in [`Phase::LAYER`] order.
    slots: [Slot; Phase::LAYER.len()],
    head: Slot,
    layers: usize,
}

/// How one phase's output is divided.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Values in the output.
    width: usize,
    /// Values in one owned piece: a tile's rows, or the heads of one KV head.
    piece: usize,
    /// First unit within the layer's units.
    offset: usize,
}

impl Slot {
    fn pieces(&self) -> usize {
        self.width.div_ceil(self.piece)
    }
}

impl Plan {
    pub(crate) fn new(config: &Config, workers: usize) -> Plan {
        let shapes = [
            (config.q_dim() + 2 * config.kv_dim(), TILE_ROWS),
            (config.q_dim(), config.group_heads() * config.head_dim),
            (config.hidden, TILE_ROWS),
            // A tile holds eight rows of gate and the matching eight rows of up.
            (config.intermediate, TILE_ROWS / 2),
            (config.hidden, TILE_ROWS),
        ];
        let mut offset = 0;
        let slots = shapes.map(|(width, piece)| {
            let slot = Slot { width, piece, offset };
            offset += width;
            slot
        });
        let head = Slot { width: config.vocab, piece: TILE_ROWS, offset: 0 };
        Plan { workers, slots, head, layers: config.layers }
    }

    fn slot(&self, phase: Phase) -> &Slot {
        let at = Phase::LAYER.iter().position(|&other| other == phase);
        at.map_or(&self.head, |at| &self.slots[at])
    }

    /// The pieces (tiles, or KV heads) of a phase that a worker owns.
    pub(crate) fn share(&self, phase: Phase, worker: usize) -> Range<usize> {
        let pieces = self.slot(phase).pieces();
        worker * pieces / self.workers..(worker + 1) * pieces / self.workers
    }

    /// The worker that owns a value of a phase's output.
    pub(crate) fn owner(&self, phase: Phase, index: usize) -> usize {
        let slot = self.slot(phase);
        let piece = index / slot.piece;
        ((piece + 1) * self.workers - 1) / slot.pieces()
    }

    /// Values in a layer phase's output.
    pub(crate) fn width(&self, phase: Phase) -> usize {
        self.slot(phase).width
    }

    /// First unit of a layer phase's slot.
    pub(crate) fn base(&self, layer: usize, phase: Phase) -> usize {
        layer * self.layer_units() + self.slot(phase).offset
    }

    fn layer_units(&self) -> usize {
        let last = self.slots[self.slots.len() - 1];
        last.offset + last.width
    }

    /// A worker's units in the copy of the final slot with this parity.
    pub(crate) fn final_units(&self, parity: usize, worker: usize) -> Range<usize> {
        let base = self.layers * self.layer_units() + parity * FINAL_UNITS * self.workers;
        base + FINAL_UNITS * worker..base + FINAL_UNITS * (worker + 1)
    }

    /// Units of all slots together.
    pub(crate) fn units(&self) -> usize {
        self.final_units(1, self.workers - 1).end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_has_one_owner_and_every_slot_its_place(
            hidden in 1..100usize,
            intermediate in 1..100usize,
            kv_heads in 1..5usize,
            group in 1..4usize,
            layers in 1..4usize,
            vocab in 1..200usize,
            workers in 1..40usize,
        ) {
            let config = Config {
                hidden, intermediate, layers, vocab, kv_heads,
                heads: kv_heads * group,
                head_dim: 6,
                ..Config::qwen3_0_6b()
            };
            let plan = Plan::new(&config, workers);
            let mut used = vec![false; plan.units()];
            for phase in Phase::LAYER.into_iter().chain([Phase::LmHead]) {
                let slot = *plan.slot(phase);
                let mut next = 0;
                for worker in 0..workers {
                    let share = plan.share(phase, worker);
                    prop_assert_eq!(share.start, next);
                    next = share.end;
                    let values = share.start * slot.piece..share.end * slot.piece;
                    for index in values.filter(|&index| index < slot.width) {
                        prop_assert_eq!(plan.owner(phase, index), worker);
                    }
                }
                prop_assert_eq!(next, slot.pieces());
                for layer in (0..layers).filter(|_| phase != Phase::LmHead) {
                    let base = plan.base(layer, phase);
                    for unit in &mut used[base..base + plan.width(phase)] {
                        prop_assert!(!std::mem::replace(unit, true));
                    }
                }
            }
            for (parity, worker) in (0..2).flat_map(|p| (0..workers).map(move |w| (p, w))) {
                for unit in &mut used[plan.final_units(parity, worker)] {
                    prop_assert!(!std::mem::replace(unit, true));
                }
            }
            prop_assert!(used.into_iter().all(|unit| unit));
        }
    }
}
