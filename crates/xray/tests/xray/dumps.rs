//! Dumps for the tests.

use monolith_abi::dump::{Anchor, BlockDump, Copied, Dump, NO_BLOCK, NO_LAYER, NO_SM, Pace, Stamp};
use monolith_abi::{EventKind, Phase};
use proptest::prelude::*;

fn stamp(clock: u64, kind: EventKind, phase: Phase, layer: u16) -> Stamp {
    Stamp { clock, kind, phase, layer, producer: NO_BLOCK }
}

pub fn work(clock: u64, phase: Phase, layer: u16) -> Stamp {
    stamp(clock, EventKind::Work, phase, layer)
}

pub fn exchange(clock: u64, phase: Phase, layer: u16, producer: u16) -> Stamp {
    Stamp { producer, ..stamp(clock, EventKind::WaitExchange, phase, layer) }
}

pub fn ring(clock: u64, phase: Phase, layer: u16) -> Stamp {
    stamp(clock, EventKind::WaitRingFull, phase, layer)
}

pub fn ring_empty(clock: u64, phase: Phase, layer: u16) -> Stamp {
    stamp(clock, EventKind::WaitRingEmpty, phase, layer)
}

pub fn barrier(clock: u64, phase: Phase, layer: u16) -> Stamp {
    stamp(clock, EventKind::WaitBarrier, phase, layer)
}

/// Nothing is known from here on.
pub fn nothing(clock: u64) -> Stamp {
    stamp(clock, EventKind::Unrecorded, Phase::Embed, NO_LAYER)
}

pub fn copy(issue_clock: u64, arrival_clock: u64, phase: Phase, layer: u16, bytes: u32) -> Copied {
    Copied { issue_clock, arrival_clock, bytes, phase, layer }
}

/// A block whose clock is the shared one, in nanoseconds.
pub fn block_of(consumer: Vec<Stamp>, loader: Vec<Stamp>, copies: Vec<Copied>) -> BlockDump {
    anchored(BlockDump { sm: NO_SM, consumer, loader, copies, ..BlockDump::default() })
}

/// With anchors around all times.
fn anchored(mut block: BlockDump) -> BlockDump {
    let stamps = block.consumer.iter().chain(&block.loader).chain(&block.epilogue);
    let arrivals = block.copies.iter().map(|copy| copy.arrival_clock);
    let clocks: Vec<u64> = stamps.map(|stamp| stamp.clock).chain(arrivals).collect();
    let first = clocks.iter().copied().min().unwrap_or(1000);
    let last = clocks.iter().copied().max().unwrap_or(1000) + 1000;
    block.anchors = [first, last].map(|at| Anchor { clock: at, global_ns: at }).to_vec();
    block
}

pub fn dump_of(layers: u16, blocks: Vec<BlockDump>) -> Dump {
    Dump {
        engine: "cpu".into(),
        variant: "bf16-cpu".into(),
        device: "a test".into(),
        model: "Qwen3-0.6B".into(),
        build: String::new(),
        layers,
        position: 7,
        clock_hz: 1_000_000_000,
        global_step_ns: 1,
        phase_bytes: vec![],
        pace: None,
        blocks,
    }
}

/// Two threads, one layer, times from 1000, as the CPU engine leaves them: every sum can be
/// checked by hand.
pub fn small() -> Dump {
    let first = vec![
        work(1000, Phase::Embed, NO_LAYER),
        work(1100, Phase::Qkv, 0),
        exchange(1400, Phase::Qkv, 0, 1),
        work(1650, Phase::Attention, 0),
        nothing(1900),
    ];
    let second = vec![
        work(1150, Phase::Qkv, 0),
        nothing(1650),
        exchange(1700, Phase::Attention, 0, 0),
        exchange(1900, Phase::Attention, 0, NO_BLOCK),
        work(1930, Phase::Argmax, NO_LAYER),
        nothing(2000),
    ];
    dump_of(1, vec![block_of(first, vec![], vec![]), block_of(second, vec![], vec![])])
}

/// Three blocks of a GPU, one layer, with weights streamed, times from 5000. See `known.rs` for
/// where its time goes.
pub fn streamed() -> Dump {
    let (qkv, down, lm_head) = (Phase::Qkv, Phase::Down, Phase::LmHead);
    let first = vec![
        work(5100, qkv, 0),
        ring(5150, qkv, 0),
        work(5250, qkv, 0),
        exchange(5300, qkv, 0, 1),
        work(5650, down, 0),
        barrier(5700, down, 0),
        work(5900, down, 0),
        exchange(6000, down, 0, 2),
        work(6450, lm_head, NO_LAYER),
        exchange(6500, lm_head, NO_LAYER, 1),
        work(6720, Phase::Argmax, NO_LAYER),
        nothing(6800),
    ];
    let second = vec![
        work(5100, qkv, 0),
        nothing(5500),
        exchange(5600, qkv, 0, NO_BLOCK),
        work(5620, down, 0),
        exchange(5920, down, 0, 2),
        work(6460, lm_head, NO_LAYER),
        nothing(6700),
    ];
    let third = vec![
        work(5100, qkv, 0),
        exchange(5200, qkv, 0, 1),
        work(5640, down, 0),
        barrier(5900, down, 0),
        work(6300, down, 0),
        exchange(6400, down, 0, 0),
        work(6420, lm_head, NO_LAYER),
        nothing(6470),
    ];
    let loader =
        vec![work(5000, qkv, 0), ring_empty(5050, qkv, 0), work(5300, down, 0), nothing(5350)];
    let copies = vec![
        copy(5000, 5150, qkv, 0, 4000),
        copy(5020, 5250, qkv, 0, 4000),
        copy(5320, 5800, down, 0, 2000),
    ];
    let late = vec![copy(5030, 5090, qkv, 0, 1000), copy(5330, 6000, down, 0, 3000)];
    let mut dump = dump_of(
        1,
        vec![
            block_of(first, loader.clone(), copies),
            block_of(second, vec![], vec![]),
            block_of(third, loader, late),
        ],
    );
    dump.engine = "cuda".into();
    dump.build = "0123abcd".into();
    dump.phase_bytes = vec![(Phase::Qkv, 9000), (Phase::Down, 5000)];
    dump.pace = Some(Pace { headline_ns: 500_000.0, instrumented_ns: 505_000.0 });
    for (block, sm) in dump.blocks.iter_mut().zip([4, 0, 2]) {
        block.sm = sm;
    }
    dump
}

/// One span before it has a place in time.
type Draft = (u64, u64, Phase, EventKind, u16, Option<u16>);

fn draft() -> impl Strategy<Value = Draft> {
    let phase = prop::sample::select(Phase::ALL);
    let kind = prop::sample::select(EventKind::ALL);
    (0..50_u64, 0..5000_u64, phase, kind, any::<u16>(), any::<Option<u16>>())
}

/// Stamps of drafts one after another; `other` stands for the kinds that the role has not.
fn lay_out(
    blocks: u16,
    layers: u16,
    start: u64,
    drafts: &[Draft],
    (never, other): (&[EventKind], EventKind),
) -> Vec<Stamp> {
    let mut now = start;
    let mut stamps = Vec::new();
    for &(gap, length, phase, kind, layer, on) in drafts {
        let kind = if never.contains(&kind) { other } else { kind };
        let layer = if phase.is_per_layer() { layer % layers } else { NO_LAYER };
        let on = on.filter(|_| kind == EventKind::WaitExchange);
        let producer = on.map_or(NO_BLOCK, |on| on % blocks);
        if gap > 0 {
            stamps.push(nothing(now));
        }
        stamps.push(Stamp { clock: now + gap, kind, phase, layer, producer });
        now += gap + length;
    }
    if !stamps.is_empty() {
        stamps.push(nothing(now));
    }
    stamps
}

fn any_copies(layers: u16, start: u64, drafts: &[(u64, u64, Phase, u16, u32)]) -> Vec<Copied> {
    let mut now = start;
    let place = |&(gap, latency, phase, layer, bytes): &(u64, u64, Phase, u16, u32)| {
        now += gap;
        let layer = if phase.is_per_layer() { layer % layers } else { NO_LAYER };
        copy(now, now + latency, phase, layer, bytes)
    };
    drafts.iter().map(place).collect()
}

fn any_block(blocks: u16, layers: u16, start: u64) -> impl Strategy<Value = BlockDump> {
    let phase = prop::sample::select(Phase::ALL);
    let copy = (0..900_u64, 0..3000_u64, phase, any::<u16>(), 1..70_000_u32);
    let consumer = prop::collection::vec(draft(), 0..20);
    let loader = prop::collection::vec(draft(), 0..6);
    let copies = prop::collection::vec(copy, 0..8);
    let epilogue = prop::collection::vec(draft(), 0..10);
    let rest = (0..1000_u64, any::<bool>(), 0..200_u16);
    (consumer, loader, epilogue, copies, rest).prop_map(
        move |(consumer, loader, epilogue, copies, (lost, known, sm))| {
            use EventKind::{WaitBarrier, WaitCopies, WaitRingEmpty, WaitRingFull};
            let lay_out = |drafts: &[Draft], never: &[EventKind], other| {
                lay_out(blocks, layers, start, drafts, (never, other))
            };
            let consumer = lay_out(&consumer, &[WaitRingEmpty, WaitCopies], WaitRingFull);
            let loader = lay_out(&loader, &[WaitRingFull], WaitRingEmpty);
            let never = [WaitRingFull, WaitRingEmpty, WaitCopies];
            let epilogue = lay_out(&epilogue, &never, WaitBarrier);
            let copies = any_copies(layers, start, &copies);
            let sm = if known { sm } else { NO_SM };
            anchored(BlockDump { sm, lost, epilogue, ..block_of(consumer, loader, copies) })
        },
    )
}

/// Any dump that a correct engine could make.
pub fn any_dump() -> impl Strategy<Value = Dump> {
    let pace = prop::option::of((1e4..1e9_f64, 1e4..1e9_f64));
    let size = (1..6_u16, 1..5_u16, 0..1_u64 << 60, any::<u32>(), pace);
    size.prop_flat_map(|(blocks, layers, start, position, pace)| {
        let block = any_block(blocks, layers, start);
        prop::collection::vec(block, usize::from(blocks)).prop_map(move |blocks| {
            let pace = pace.map(|(a, b)| Pace { headline_ns: a, instrumented_ns: b });
            let phase_bytes =
                vec![(Phase::Qkv, 17), (Phase::LmHead, u64::from(position % 1000) + 1)];
            Dump { position, pace, phase_bytes, ..dump_of(layers, blocks) }
        })
    })
    .prop_filter("an engine that ran left spans", |dump| {
        dump.blocks.iter().any(|block| {
            let pairs = block.consumer.windows(2);
            pairs
                .into_iter()
                .any(|pair| pair[0].kind != EventKind::Unrecorded && pair[0].clock < pair[1].clock)
        })
    })
}
