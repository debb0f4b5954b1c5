//! Dumps to test with.

use monolith_abi::dump::{Dump, NO_BLOCK, NO_LAYER, Record};
use monolith_abi::{EventKind, Phase};
use proptest::prelude::*;

pub fn work(block: u16, phase: Phase, layer: u16, begin_ns: u64, end_ns: u64) -> Record {
    let kind = EventKind::Work;
    Record { begin_ns, end_ns, layer, block, waits_on: NO_BLOCK, phase, kind }
}

pub fn wait(block: u16, phase: Phase, layer: u16, on: u16, begin_ns: u64, end_ns: u64) -> Record {
    let kind = EventKind::WaitExchange;
    Record { begin_ns, end_ns, layer, block, waits_on: on, phase, kind }
}

pub fn dump_of(blocks: u16, layers: u16, records: Vec<Record>) -> Dump {
    Dump {
        engine: "cpu".into(),
        variant: "bf16-cpu".into(),
        device: "a test".into(),
        blocks,
        layers,
        position: 7,
        clock_error_ns: 25,
        overflow: 0,
        records,
    }
}

/// Two threads, one layer, times from 1000: every sum can be checked by hand.
pub fn small() -> Dump {
    dump_of(
        2,
        1,
        vec![
            work(0, Phase::Embed, NO_LAYER, 1000, 1100),
            work(0, Phase::Qkv, 0, 1100, 1400),
            wait(0, Phase::Qkv, 0, 1, 1400, 1650),
            work(0, Phase::Attention, 0, 1650, 1900),
            work(1, Phase::Qkv, 0, 1150, 1650),
            wait(1, Phase::Attention, 0, 0, 1700, 1900),
            wait(1, Phase::Attention, 0, NO_BLOCK, 1900, 1930),
            work(1, Phase::Argmax, NO_LAYER, 1930, 2000),
        ],
    )
}

/// One span before it has a place in time.
type Draft = (u64, u64, Phase, EventKind, u16, Option<u16>);

fn draft() -> impl Strategy<Value = Draft> {
    let phase = prop::sample::select(Phase::ALL);
    let kind = prop::sample::select(EventKind::ALL);
    (0..50_u64, 0..5000_u64, phase, kind, any::<u16>(), any::<Option<u16>>())
}

fn lay_out(block: u16, blocks: u16, layers: u16, start: u64, drafts: &[Draft]) -> Vec<Record> {
    let mut now = start;
    let mut records = Vec::new();
    for &(gap, length, phase, kind, layer, on) in drafts {
        let layer = if phase.is_per_layer() { layer % layers } else { NO_LAYER };
        let on = on.map(|on| on % blocks).filter(|&on| on != block && kind.is_wait());
        let waits_on = on.unwrap_or(NO_BLOCK);
        let (begin_ns, end_ns) = (now + gap, now + gap + length);
        records.push(Record { begin_ns, end_ns, layer, block, waits_on, phase, kind });
        now = end_ns;
    }
    records
}

/// Any dump that an honest engine could leave.
pub fn any_dump() -> impl Strategy<Value = Dump> {
    let size = (1..6_u16, 1..5_u16, 0..1_u64 << 60, any::<u32>(), 0..1000_u64, 0..1000_u64);
    size.prop_flat_map(|(blocks, layers, start, position, clock_error_ns, overflow)| {
        let drafts = prop::collection::vec(draft(), 0..20);
        prop::collection::vec(drafts, usize::from(blocks)).prop_map(move |drafts| {
            let block = |(block, drafts): (usize, &Vec<Draft>)| {
                lay_out(block as u16, blocks, layers, start, drafts)
            };
            let records = drafts.iter().enumerate().flat_map(block).collect();
            let dump = dump_of(blocks, layers, records);
            Dump { position, clock_error_ns, overflow, ..dump }
        })
    })
    .prop_filter("an engine that ran left records", |dump| !dump.records.is_empty())
}
