//! A recorded step's spans, and the dump that they become.

use monolith_abi::dump::{Anchor, BlockDump, NO_BLOCK, NO_LAYER, NO_SM, Stamp};
use monolith_abi::{EventKind, Phase};

/// One span of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanRecord {
    /// Begin, nanoseconds on the engine's clock.
    pub(crate) begin_ns: u64,
    /// End, on the same clock.
    pub(crate) end_ns: u64,
    /// Layer, or [`NO_LAYER`].
    pub(crate) layer: u16,
    /// The worker.
    pub(crate) block: u16,
    /// For a wait: the worker whose value arrived last, or [`NO_BLOCK`].
    pub(crate) waits_on: u16,
    /// For work: the phase. For a wait: the phase whose output was waited for.
    pub(crate) phase: Phase,
    /// What the time was spent on.
    pub(crate) kind: EventKind,
}

/// Each worker's part of the dump. All workers share one clock.
pub(crate) fn blocks_from(mut records: Vec<SpanRecord>, workers: usize) -> Vec<BlockDump> {
    records.sort_by_key(|record| (record.block, record.begin_ns));
    let of = |worker: usize| {
        let spans = records.iter().filter(|record| usize::from(record.block) == worker);
        block_from(&spans.copied().collect::<Vec<_>>())
    };
    (0..workers).map(of).collect()
}

fn block_from(spans: &[SpanRecord]) -> BlockDump {
    let mut consumer = Vec::with_capacity(spans.len() + 1);
    for (at, span) in spans.iter().enumerate() {
        consumer.push(Stamp {
            clock: span.begin_ns,
            kind: span.kind,
            phase: span.phase,
            layer: span.layer,
            producer: span.waits_on,
        });
        if spans.get(at + 1).is_none_or(|next| next.begin_ns > span.end_ns) {
            consumer.push(nothing_from(span.end_ns));
        }
    }
    let ends = [
        spans.first().map_or(0, |first| first.begin_ns),
        spans.last().map_or(1, |last| last.end_ns),
    ];
    let anchor = |clock| Anchor { clock, global_ns: clock };
    // Two different times, even for a worker that did nothing.
    let anchors = vec![anchor(ends[0]), anchor(ends[1].max(ends[0] + 1))];
    BlockDump { sm: NO_SM, consumer, anchors, ..BlockDump::default() }
}

fn nothing_from(clock: u64) -> Stamp {
    let (kind, phase) = (EventKind::Unrecorded, Phase::Argmax);
    Stamp { clock, kind, phase, layer: NO_LAYER, producer: NO_BLOCK }
}
