//! The static assignment of rows and heads to workers, and the place of every slot: the step's
//! rules (`abi::step`) for a model and a number of workers.

use monolith_abi::Phase;
use monolith_abi::step::{OUTPUTS, Step, Tuning, first_piece, output_of, owner_of_piece, tiles};
use monolith_model::Config;
use std::ops::Range;

/// The split of one model's step over workers: threads, or a GPU's blocks.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    step: Step,
}

/// The CPU engine's numbers: attention is not split, and the rest is of a GPU's blocks.
const CPU: Tuning = Tuning {
    consumer_warps: 1,
    grid: 1,
    flight: 0,
    kv_flight: 0,
    low_water: 0,
    head_flight: 0,
    stages: 0,
    stage_bytes: 0,
    kv_chunk: 1,
    kv_splits: 0,
    kv_local: 1,
    residents: 0,
    prefetch: 0,
    xray: 0,
};

impl Plan {
    /// The CPU engine's plan.
    pub(crate) fn new(config: &Config, workers: usize) -> Plan {
        Plan::of(Step::of(config.dims(), CPU), workers)
    }

    pub(crate) fn of(step: Step, workers: usize) -> Plan {
        Plan { workers, step }
    }

    pub(crate) fn step(&self) -> &Step {
        &self.step
    }

    /// Values of one piece of a phase's output (a tile's rows, or the heads of a KV head), and the
    /// pieces.
    fn pieces(&self, phase: Phase) -> (usize, usize) {
        match output_of(phase) {
            Some(output) => (output.piece.of(&self.step), output.pieces(&self.step)),
            None => {
                let rows = self.step.sizes.tile_rows;
                (rows, tiles(self.step.dims.vocab, rows))
            }
        }
    }

    /// The pieces of a phase that a worker owns.
    pub(crate) fn share(&self, phase: Phase, worker: usize) -> Range<usize> {
        let (_, pieces) = self.pieces(phase);
        let first = |worker| first_piece(worker, self.workers, pieces);
        first(worker)..first(worker + 1)
    }

    /// The worker that owns a value of a phase's output.
    pub(crate) fn owner(&self, phase: Phase, index: usize) -> usize {
        let (piece, pieces) = self.pieces(phase);
        owner_of_piece(index / piece, self.workers, pieces)
    }

    /// Values in a phase's output: of the LM head, the vocabulary's.
    pub(crate) fn width(&self, phase: Phase) -> usize {
        output_of(phase).map_or(self.step.dims.vocab, |output| output.width.of(&self.step))
    }

    /// First unit of a layer phase's slot in the CPU engine's exchange: one unit a value, in order.
    pub(crate) fn base(&self, layer: usize, phase: Phase) -> usize {
        let widths = OUTPUTS.iter().map(|output| (output.phase, output.width.of(&self.step)));
        let before = widths.take_while(|&(other, _)| other != phase).map(|(_, width)| width);
        layer * self.layer_units() + before.sum::<usize>()
    }

    fn layer_units(&self) -> usize {
        OUTPUTS.iter().map(|output| output.width.of(&self.step)).sum()
    }

    /// A worker's two units in the copy of the final slot with this parity.
    pub(crate) fn final_units(&self, parity: usize, worker: usize) -> Range<usize> {
        let layers = self.step.dims.layers * self.layer_units();
        let base = layers + parity * self.step.sizes.final_units + 2 * worker;
        base..base + 2
    }

    /// Units of all slots together.
    pub(crate) fn units(&self) -> usize {
        self.step.dims.layers * self.layer_units() + 2 * self.step.sizes.final_units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_abi::kernel::BLOCKS_MAX;
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
                let (piece, pieces) = plan.pieces(phase);
                let mut next = 0;
                for worker in 0..workers {
                    let share = plan.share(phase, worker);
                    prop_assert_eq!(share.start, next);
                    next = share.end;
                    let values = share.start * piece..share.end * piece;
                    for index in values.filter(|&index| index < plan.width(phase)) {
                        prop_assert_eq!(plan.owner(phase, index), worker);
                    }
                }
                prop_assert_eq!(next, pieces);
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
            // What is left is the room for more workers in both copies of the final slot.
            let left = used.into_iter().filter(|&unit| !unit).count();
            prop_assert_eq!(left, 2 * 2 * (BLOCKS_MAX as usize - workers));
        }
    }
}
