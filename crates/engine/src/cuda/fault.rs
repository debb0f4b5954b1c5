//! Reads back fault records: which block waited for what, and for which block.

use super::producer::Producers;
use crate::EngineError;
use monolith_abi::dump::{NO_BLOCK, NO_LAYER};
use monolith_abi::fault::{BlockWait, FaultDump};
use monolith_abi::kernel::{FAULT_FILLED, FaultRecord};
use monolith_abi::{Phase, Role, WaitKind};
use std::time::Duration;

/// Records of a block: its consumers', then its loader's.
pub(super) const BLOCK_RECORDS: usize = 2;

/// Converts the record to a wait; `None` for ids that this version does not know.
fn wait_from(record: &FaultRecord, role: Role, producers: &Producers) -> Option<BlockWait> {
    let kind = WaitKind::from_id(u8::try_from(record.kind).ok()?)?;
    let producer = match kind {
        WaitKind::Exchange => {
            let producer = producers.of_unit(record.unit as usize);
            producer.map_or(u32::from(NO_BLOCK), |block| block as u32)
        }
        WaitKind::RingFull | WaitKind::RingEmpty => record.block,
    };
    Some(BlockWait {
        block: u16::try_from(record.block).ok()?,
        role,
        warp: record.warp,
        kind,
        phase: Phase::from_id(u8::try_from(record.phase).ok()?)?,
        layer: (record.layer != u32::from(NO_LAYER)).then_some(record.layer as u16),
        producer: u16::try_from(producer).ok()?,
        unit: record.unit,
        expected: record.expected,
        seen: record.seen,
    })
}

/// Returns what every role waited for, from all blocks' records.
pub(super) fn waits_from(records: &[FaultRecord], producers: &Producers) -> Vec<BlockWait> {
    let wait = |(at, record): (usize, &FaultRecord)| {
        let role = if at % BLOCK_RECORDS == 0 { Role::Consumer } else { Role::Loader };
        (record.state == FAULT_FILLED).then(|| wait_from(record, role, producers))?
    };
    records.iter().enumerate().filter_map(wait).collect()
}

/// Returns the cause as an error with all waits; `dump` has everything but these two.
pub(super) fn error_from(
    cause: &FaultRecord,
    waits: Vec<BlockWait>,
    producers: &Producers,
    about: About,
) -> EngineError {
    let role = if cause.warp < about.consumer_warps { Role::Consumer } else { Role::Loader };
    let Some(cause) = wait_from(cause, role, producers) else {
        return EngineError::UnknownFault(format!("{cause:?}"));
    };
    EngineError::KernelFault(Box::new(FaultDump {
        variant: about.variant,
        device: about.device,
        model: about.model,
        blocks: about.blocks as u16,
        position: about.position as u32,
        timeout_ns: about.timeout.as_nanos() as u64,
        cause,
        waits,
    }))
}

/// The step's engine, device and model.
pub(super) struct About {
    pub(super) variant: String,
    pub(super) device: String,
    pub(super) model: String,
    pub(super) blocks: usize,
    pub(super) position: usize,
    pub(super) timeout: Duration,
    pub(super) consumer_warps: u32,
}

#[cfg(test)]
mod tests {
    use super::super::tests::step;
    use super::*;
    use crate::plan::Plan;
    use monolith_abi::step::{output_of, owner_of_piece};

    fn error(record: &FaultRecord) -> String {
        let producers = Producers::new(step(), 132);
        let about = About {
            variant: "bf16-flag".into(),
            device: "a test".into(),
            model: "a model".into(),
            blocks: 132,
            position: 20,
            timeout: Duration::from_secs(2),
            consumer_warps: 16,
        };
        error_from(record, Vec::new(), &producers, about).to_string()
    }

    #[test]
    fn an_exchange_names_the_producer() {
        let step = step();
        let plan = Plan::of(step, 132);
        for phase in [Phase::Qkv, Phase::OProj, Phase::GateUp, Phase::Down] {
            let output = output_of(phase).unwrap();
            let slot = output.slot.unwrap();
            let begin = 3 * step.sizes.layer_units + slot.begin.of(&step);
            for index in [0, 7, plan.width(phase) - 1] {
                let said = error(&FaultRecord {
                    kind: WaitKind::Exchange as u32,
                    block: 9,
                    layer: 3,
                    phase: phase as u32,
                    unit: (begin + slot.place(&step, index / 2, 0)) as u32,
                    expected: 5,
                    seen: 4,
                    ..FaultRecord::default()
                });
                // Of a value's partial sums, the first one: of an item of its own.
                let sums = slot.sums(&step);
                let items = output.width.of(&step) / 2 / slot.per.of(&step) * sums;
                let item = index / 2 / slot.per.of(&step) * sums;
                let owner = match slot.sums {
                    Some(_) => owner_of_piece(item, 132, items),
                    None => plan.owner(phase, index),
                };
                let wanted = format!("{} of layer 3 from block {owner} (unit", phase.name());
                assert!(said.contains(&wanted) && said.starts_with("block 9"), "{said}");
                assert!(said.contains("2s"), "{said}");
            }
        }
    }

    #[test]
    fn a_counter_names_its_phase_and_nobody() {
        let step = step();
        let sizes = step.sizes;
        let counter = 3 * sizes.layer_counters + sizes.down_counter;
        for parity in [0, 1] {
            let set = sizes.counters_base + parity * sizes.counters_units;
            let said = error(&FaultRecord {
                kind: WaitKind::Exchange as u32,
                layer: 3,
                phase: Phase::Down as u32,
                unit: (set + counter * sizes.counter_line + 5 * sizes.line_units) as u32,
                expected: 128,
                seen: 127,
                ..FaultRecord::default()
            });
            assert!(said.contains("down of layer 3 from nobody in particular"), "{said}");
            assert!(said.contains("expected a count of 128, saw 127"), "{said}");
        }
    }

    #[test]
    fn a_ring_names_its_stage() {
        for (kind, word) in [(WaitKind::RingFull, "weights"), (WaitKind::RingEmpty, "released")] {
            let said = error(&FaultRecord {
                kind: kind as u32,
                layer: u32::from(NO_LAYER),
                phase: Phase::LmHead as u32,
                unit: 7,
                ..FaultRecord::default()
            });
            assert!(said.contains("lm_head") && said.contains("stage 7"), "{said}");
            assert!(said.contains(word), "{said}");
        }
        assert!(error(&FaultRecord { kind: 99, ..FaultRecord::default() }).contains("kind: 99"));
    }

    #[test]
    fn every_filled_record_is_a_wait_of_its_role() {
        let producers = Producers::new(step(), 132);
        let mut records = [FaultRecord::default(); 3 * BLOCK_RECORDS];
        for (at, block) in [(1, 0), (4, 2)] {
            records[at] = FaultRecord {
                state: FAULT_FILLED,
                kind: WaitKind::RingEmpty as u32,
                block,
                phase: Phase::Down as u32,
                ..FaultRecord::default()
            };
        }
        let waits = waits_from(&records, &producers);
        let seen: Vec<_> = waits.iter().map(|wait| (wait.block, wait.role)).collect();
        assert_eq!(seen, [(0, Role::Loader), (2, Role::Consumer)]);
    }
}
