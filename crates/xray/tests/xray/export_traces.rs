//! Traces for the tests of exports.

use monolith_abi::{EventKind, Phase, Role};
use monolith_xray::{Copied, Copies, Meta, Pace, PhaseBytes, Span, Spans, Trace};
use proptest::prelude::*;

pub fn meta(blocks: u16, layers: u16, token_ns: u64) -> Meta {
    Meta {
        engine: "cuda".into(),
        variant: "bf16-flag".into(),
        device: "a \"quoted\" GPU".into(),
        model: "Qwen3-0.6B".into(),
        build: Some("0123abcd".into()),
        position: 128,
        blocks,
        layers,
        token_ns,
        clock_error_ns: 70,
        alignment: "a line through each block's anchors".into(),
        overflow: 0,
        sms: (0..blocks).rev().collect(),
        phase_bytes: vec![PhaseBytes { phase: Phase::Qkv, bytes: 32_768 }],
        pace: Some(Pace {
            headline_tok_s: 1520.25,
            instrumented_tok_s: 1490.5,
            overhead_pct: 1.996,
        }),
        generator: "a test".into(),
    }
}

/// A trace of these rows, in any order; the token ends with the last of them.
pub fn trace_of(blocks: u16, layers: u16, mut spans: Vec<Span>, mut copies: Vec<Copied>) -> Trace {
    spans.sort_by_key(|span| (span.block, span.role, span.begin_ns));
    copies.sort_by_key(|copy| (copy.block, copy.issue_ns));
    let ends = spans.iter().map(|span| span.end_ns);
    let token_ns = ends.chain(copies.iter().map(|copy| copy.arrival_ns)).max().unwrap();
    let (mut span_columns, mut copy_columns) = (Spans::default(), Copies::default());
    spans.into_iter().for_each(|span| span_columns.push(span));
    copies.into_iter().for_each(|copy| copy_columns.push(copy));
    Trace::new(meta(blocks, layers, token_ns), span_columns, copy_columns).unwrap()
}

pub fn span(
    (block, role): (u16, Role),
    kind: EventKind,
    (phase, layer): (Phase, Option<u16>),
    waits_on: Option<u16>,
    (begin_ns, end_ns): (u64, u64),
) -> Span {
    Span { block, role, kind, phase, layer, waits_on, begin_ns, end_ns }
}

pub fn copied(block: u16, phase: Phase, layer: u16, issue_ns: u64, arrival_ns: u64) -> Copied {
    Copied { block, phase, layer: Some(layer), bytes: 16_384, issue_ns, arrival_ns }
}

/// Two blocks on SMs 1 and 0, every kind of wait, copies that overlap. The tests know its times.
pub fn sample() -> Trace {
    use EventKind::{WaitBarrier, WaitExchange, WaitRingEmpty, WaitRingFull, Work};
    use Phase::{Attention, Down, Embed, GateUp, Qkv};
    let (c0, c1, l0) = ((0, Role::Consumer), (1, Role::Consumer), (0, Role::Loader));
    let spans = vec![
        span(c0, Work, (Embed, None), None, (0, 1000)),
        span(c0, WaitRingFull, (Qkv, Some(0)), None, (1000, 1500)),
        span(c0, Work, (Qkv, Some(0)), None, (1500, 4000)),
        span(c0, WaitBarrier, (Qkv, Some(0)), None, (4000, 4200)),
        span(c0, WaitExchange, (Qkv, Some(0)), Some(1), (4200, 6000)),
        span(c0, Work, (Attention, Some(0)), None, (6000, 9000)),
        span(c0, WaitExchange, (Down, Some(0)), None, (9100, 9900)),
        span(c0, Work, (Qkv, Some(1)), None, (9900, 12_000)),
        span(l0, Work, (Qkv, Some(0)), None, (100, 900)),
        span(l0, WaitRingEmpty, (GateUp, Some(0)), None, (900, 3000)),
        span(c1, Work, (Qkv, Some(0)), None, (500, 3000)),
        span(c1, Work, (GateUp, Some(0)), None, (3000, 3500)),
        span(c1, Work, (Qkv, Some(0)), None, (3500, 5500)),
        span(c1, WaitExchange, (Attention, Some(0)), Some(0), (5500, 9400)),
    ];
    let copies = vec![
        copied(0, Qkv, 0, 100, 1400),
        copied(0, Qkv, 0, 200, 1700),
        copied(0, GateUp, 0, 1600, 2000),
        copied(0, Qkv, 1, 1800, 2600),
        copied(1, Qkv, 0, 0, 600),
    ];
    trace_of(2, 2, spans, copies)
}

/// A trace of an H200's size: 132 blocks, each with 1,000 spans of consumers, 1,000 of its loader
/// and 551 copies.
pub fn realistic() -> Trace {
    const LAYERS: u16 = 28;
    let (mut spans, mut copies) = (Vec::new(), Vec::new());
    for block in 0..132_u16 {
        let (mut now, mut loader_now, mut random) = (0, 0, u64::from(block) + 1);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for index in 0..1000_u16 {
            let at = Phase::LAYER[usize::from(index / 7 % 5)];
            let layer = Some((index / 35).min(LAYERS - 1));
            let kind = match index % 7 {
                0 => EventKind::WaitExchange,
                3 => EventKind::WaitRingFull,
                5 => EventKind::WaitBarrier,
                _ => EventKind::Work,
            };
            let on = (block + 1 + next(131) as u16) % 132;
            let waits_on = Some(on).filter(|_| kind == EventKind::WaitExchange);
            let end = now + 300 + next(720);
            let who = (block, Role::Consumer);
            spans.push(span(who, kind, (at, layer), waits_on, (now, end)));
            now = end;
            let kind = if index % 2 == 0 { EventKind::WaitRingEmpty } else { EventKind::Work };
            let end = loader_now + 300 + next(720);
            let who = (block, Role::Loader);
            spans.push(span(who, kind, (at, layer), None, (loader_now, end)));
            loader_now = end;
        }
        for index in 0..551_u64 {
            let place = (index * 140 / 551) as u16;
            let issue_ns = index * 1190 + next(500);
            let phase = Phase::LAYER[usize::from(place % 5)];
            copies.push(copied(block, phase, place / 5, issue_ns, issue_ns + 900 + next(2500)));
        }
    }
    trace_of(132, LAYERS, spans, copies)
}

/// One row before it has a place in time.
type Draft = (u64, u64, Phase, usize, u16, u16);

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let phase = prop::sample::select(Phase::ALL);
    let draft = (0..50_u64, 0..5000_u64, phase, 0..4_usize, any::<u16>(), any::<u16>());
    prop::collection::vec(draft, 0..25)
}

fn layer_of(phase: Phase, layer: u16, layers: u16) -> Option<u16> {
    phase.is_per_layer().then_some(layer % layers)
}

fn lay_out(who: (u16, Role), blocks: u16, layers: u16, drafts: &[Draft]) -> Vec<Span> {
    use EventKind::{WaitBarrier, WaitExchange, WaitRingEmpty, WaitRingFull, Work};
    let ring = if who.1 == Role::Consumer { WaitRingFull } else { WaitRingEmpty };
    let mut now = 0;
    let lay = |&(gap, length, phase, kind, layer, on): &Draft| {
        let kind = [Work, WaitExchange, ring, WaitBarrier][kind];
        let on = Some(on % (blocks + 1)).filter(|&on| on < blocks && on != who.0);
        let on = on.filter(|_| kind == WaitExchange);
        let begin_ns = now + gap;
        now = begin_ns + length + 1;
        span(who, kind, (phase, layer_of(phase, layer, layers)), on, (begin_ns, now))
    };
    drafts.iter().map(lay).collect()
}

fn copy_out(block: u16, layers: u16, drafts: &[Draft]) -> Vec<Copied> {
    let mut now = 0;
    let copy = |&(gap, latency, phase, _, layer, bytes): &Draft| {
        now += gap;
        let bytes = u32::from(bytes) + 1;
        let layer = layer_of(phase, layer, layers);
        Copied { block, phase, layer, bytes, issue_ns: now, arrival_ns: now + latency }
    };
    drafts.iter().map(copy).collect()
}

/// Any trace that passes its checks.
pub fn any_trace() -> impl Strategy<Value = Trace> {
    (1..5_u16, 1..4_u16).prop_flat_map(|(blocks, layers)| {
        let block = (drafts(), drafts(), drafts());
        prop::collection::vec(block, usize::from(blocks)).prop_filter_map("spans", move |drafts| {
            let (mut spans, mut copies) = (Vec::new(), Vec::new());
            for (block, (consumer, loader, copied)) in (0..).zip(&drafts) {
                spans.extend(lay_out((block, Role::Consumer), blocks, layers, consumer));
                spans.extend(lay_out((block, Role::Loader), blocks, layers, loader));
                copies.extend(copy_out(block, layers, copied));
            }
            from_zero(&mut spans, &mut copies);
            (!spans.is_empty()).then(|| trace_of(blocks, layers, spans, copies))
        })
    })
}

fn from_zero(spans: &mut [Span], copies: &mut [Copied]) {
    let begins = spans.iter().map(|span| span.begin_ns);
    let first = begins.chain(copies.iter().map(|copy| copy.issue_ns)).min().unwrap_or(0);
    for span in spans {
        span.begin_ns -= first;
        span.end_ns -= first;
    }
    for copy in copies {
        copy.issue_ns -= first;
        copy.arrival_ns -= first;
    }
}
