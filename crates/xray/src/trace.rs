//! The trace: one token's spans, aligned, checked, in columns.

use crate::{SpanAt, TraceError, check};
use monolith_abi::dump::{Dump, NO_BLOCK, NO_LAYER, Record};
use monolith_abi::{EventKind, Phase};
use serde::{Deserialize, Serialize};

/// Longest token that a trace holds: one hour. Sums over all blocks then fit 64 bits, and every
/// time is exact in a JSON number.
pub const MAX_TOKEN_NS: u64 = 3_600_000_000_000;

/// What the spans are of. The page's file has it in these words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Engine name, `cpu` or `cuda`.
    pub engine: String,
    /// Row of the variant table.
    pub variant: String,
    /// What the step ran on, in the machine's own words.
    pub device: String,
    /// Model whose step it is.
    pub model: String,
    /// Position of the step (tokens already cached).
    pub position: u32,
    /// Blocks that took part.
    pub blocks: u16,
    /// Layers in the model.
    pub layers: u16,
    /// First begin to last end.
    pub token_ns: u64,
    /// Resolution of the clock: no stamp is truer than this.
    pub clock_error_ns: u64,
    /// Records that did not fit in the engine's buffers.
    pub overflow: u64,
    /// What wrote the trace.
    pub generator: String,
}

/// The spans as columns of equal length: block by block, each block's in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Block that recorded the span.
    pub block: Vec<u16>,
    /// What the time was spent on.
    pub kind: Vec<EventKind>,
    /// The phase; for a wait, the phase whose output was waited for.
    pub phase: Vec<Phase>,
    /// Layer of that phase, if it is a phase of a layer.
    pub layer: Vec<Option<u16>>,
    /// For a wait, the block whose value arrived last, if it is known.
    pub waits_on: Vec<Option<u16>>,
    /// Begin, nanoseconds after the token's begin.
    pub begin_ns: Vec<u64>,
    /// End, nanoseconds after the token's begin.
    pub end_ns: Vec<u64>,
}

/// One row of [`Spans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Block that recorded the span.
    pub block: u16,
    /// What the time was spent on.
    pub kind: EventKind,
    /// The phase; for a wait, the phase whose output was waited for.
    pub phase: Phase,
    /// Layer of that phase, if it is a phase of a layer.
    pub layer: Option<u16>,
    /// For a wait, the block whose value arrived last, if it is known.
    pub waits_on: Option<u16>,
    /// Begin, nanoseconds after the token's begin.
    pub begin_ns: u64,
    /// End, nanoseconds after the token's begin.
    pub end_ns: u64,
}

impl Span {
    /// Length of the span.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// Where this row is, for a refusal.
    pub(crate) fn at(&self, record: usize) -> SpanAt {
        let &Span { block, kind, phase, layer, .. } = self;
        SpanAt { record, block, kind, phase, layer }
    }
}

impl Spans {
    /// Number of spans.
    pub fn len(&self) -> usize {
        self.block.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// Adds a row at the end.
    pub fn push(&mut self, span: Span) {
        self.block.push(span.block);
        self.kind.push(span.kind);
        self.phase.push(span.phase);
        self.layer.push(span.layer);
        self.waits_on.push(span.waits_on);
        self.begin_ns.push(span.begin_ns);
        self.end_ns.push(span.end_ns);
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Span> + '_ {
        (0..self.len()).map(|row| Span {
            block: self.block[row],
            kind: self.kind[row],
            phase: self.phase[row],
            layer: self.layer[row],
            waits_on: self.waits_on[row],
            begin_ns: self.begin_ns[row],
            end_ns: self.end_ns[row],
        })
    }
}

/// One token, checked: whoever holds one may rely on everything that [`TraceError`] refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    meta: Meta,
    spans: Spans,
}

impl Trace {
    /// A trace of these spans, or what is wrong with them.
    pub fn new(meta: Meta, spans: Spans) -> Result<Trace, TraceError> {
        check::meta(&meta)?;
        check::spans(&meta, &spans)?;
        Ok(Trace { meta, spans })
    }

    /// What the spans are of.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The spans.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }
}

/// Checks an engine's records and sets time 0 at the first begin. The dump does not say whose
/// step it is, hence `model`.
pub fn trace_from_dump(dump: &Dump, model: &str) -> Result<Trace, TraceError> {
    let start = dump.records.iter().map(|record| record.begin_ns).min();
    let start = start.ok_or(TraceError::NoSpans)?;
    let mut spans = Spans::default();
    for (index, record) in dump.records.iter().enumerate() {
        spans.push(span_from_record(record, start, index)?);
    }
    let token_ns = spans.end_ns.iter().copied().max().unwrap_or(0);
    let meta = Meta {
        engine: dump.engine.clone(),
        variant: dump.variant.clone(),
        device: dump.device.clone(),
        model: model.to_owned(),
        position: dump.position,
        blocks: dump.blocks,
        layers: dump.layers,
        token_ns,
        clock_error_ns: dump.clock_error_ns,
        overflow: dump.overflow,
        generator: concat!("monolith-xray ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    Trace::new(meta, spans)
}

fn span_from_record(record: &Record, start: u64, index: usize) -> Result<Span, TraceError> {
    let mut span = Span {
        block: record.block,
        kind: record.kind,
        phase: record.phase,
        layer: (record.layer != NO_LAYER).then_some(record.layer),
        waits_on: (record.waits_on != NO_BLOCK).then_some(record.waits_on),
        begin_ns: record.begin_ns - start,
        end_ns: 0,
    };
    // Checked here and not only with the rest: an end before `start` has no value to check.
    span.end_ns =
        record.end_ns.checked_sub(start).ok_or_else(|| TraceError::Backwards(span.at(index)))?;
    Ok(span)
}
