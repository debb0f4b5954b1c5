//! The trace: one token's spans and copies, aligned, checked, in columns.

use crate::streams::streams_from_copies;
use crate::{CopyAt, SpanAt, TraceError, check, names};
use monolith_abi::{EventKind, Phase, Role};
use serde::{Deserialize, Serialize};

/// Longest token that a trace holds: one hour. Sums over all blocks then fit 64 bits, and every
/// time is exact in a JSON number.
pub const MAX_TOKEN_NS: u64 = 3_600_000_000_000;

/// What the spans are of. The page's file has it in these words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// What names the kernels, where there are any.
    pub build: Option<String>,
    /// Position of the step (tokens already cached).
    pub position: u32,
    /// Blocks that took part.
    pub blocks: u16,
    /// Layers in the model.
    pub layers: u16,
    /// First begin to last end.
    pub token_ns: u64,
    /// No time is further than this from the shared clock's, rounded up.
    pub clock_error_ns: u64,
    /// How the blocks' clocks were aligned.
    pub alignment: String,
    /// Stamps, copies and anchors that did not fit in the engine's buffers.
    pub overflow: u64,
    /// The SM of each block; empty where it is not known.
    pub sms: Vec<u16>,
    /// Bytes that each phase reads, all layers together; phases that read none are left out.
    #[serde(serialize_with = "names::phase_bytes", deserialize_with = "names::read_phase_bytes")]
    pub phase_bytes: Vec<PhaseBytes>,
    /// How fast the loop around the step ran, if that was measured.
    pub pace: Option<Pace>,
    /// What wrote the trace.
    pub generator: String,
}

impl Meta {
    /// What a block is called: a thread on the CPU, a block on a GPU.
    pub fn unit(&self) -> &'static str {
        if self.engine == "cpu" { "thread" } else { "block" }
    }
}

/// Bytes that one phase reads in the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseBytes {
    /// The phase.
    pub phase: Phase,
    /// Weights, and for attention the KV cache; all layers together.
    pub bytes: u64,
}

/// How fast the decode loop around the step ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Tokens a second of the build that records nothing.
    pub headline_tok_s: f64,
    /// Tokens a second of the build that records, every step recording.
    pub instrumented_tok_s: f64,
    /// Time that recording adds, in percent of the headline's.
    pub overhead_pct: f64,
}

/// Defines columns of equal length and the row that they are columns of.
macro_rules! columns {
    (
        $(#[$doc:meta])* $columns:ident of $(#[$row_doc:meta])* $row:ident {
            $first:ident: $first_type:ty = $first_doc:literal,
            $($name:ident: $type:ty = $field_doc:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $columns {
            #[doc = $first_doc]
            pub $first: Vec<$first_type>,
            $(#[doc = $field_doc] pub $name: Vec<$type>,)+
        }

        $(#[$row_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $row {
            #[doc = $first_doc]
            pub $first: $first_type,
            $(#[doc = $field_doc] pub $name: $type,)+
        }

        impl $columns {
            /// Number of rows.
            pub fn len(&self) -> usize {
                self.$first.len()
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.$first.is_empty()
            }

            /// Adds a row at the end.
            pub fn push(&mut self, row: $row) {
                self.$first.push(row.$first);
                $(self.$name.push(row.$name);)+
            }

            /// The row at this index.
            ///
            /// # Panics
            /// If there is none.
            pub fn row(&self, index: usize) -> $row {
                $row { $first: self.$first[index], $($name: self.$name[index],)+ }
            }

            /// The rows in order.
            pub fn iter(&self) -> impl ExactSizeIterator<Item = $row> + '_ {
                (0..self.len()).map(|index| self.row(index))
            }

            /// The first column whose length is not the first's, and its length.
            pub(crate) fn uneven(&self) -> Option<(&'static str, usize)> {
                let columns = [$((stringify!($name), self.$name.len()),)+];
                columns.into_iter().find(|&(_, length)| length != self.len())
            }
        }
    };
}

columns! {
    /// The spans: by block, by role in it, by time in that. Time between two is unrecorded.
    Spans of
    /// One row of [`Spans`].
    Span {
        block: u16 = "Block that recorded the span.",
        role: Role = "Who in the block it is of.",
        kind: EventKind = "What the time was spent on, never `Unrecorded`.",
        phase: Phase = "The phase; for a wait, the phase whose output or weights were waited for.",
        layer: Option<u16> = "Layer of that phase, if it is a phase of a layer.",
        waits_on: Option<u16> = "For a wait on an exchange, the block whose value arrived last; \
            none where all were there at the first look.",
        begin_ns: u64 = "Begin, nanoseconds after the token's begin.",
        end_ns: u64 = "End, nanoseconds after the token's begin; after the span's begin.",
    }
}

columns! {
    /// The weight stream's copies: by block, by issue in it. They may overlap.
    Copies of
    /// One row of [`Copies`].
    Copied {
        block: u16 = "Block that issued the copy.",
        phase: Phase = "The phase whose weights it brings.",
        layer: Option<u16> = "Layer of that phase, if it is a phase of a layer.",
        bytes: u32 = "Size.",
        issue_ns: u64 = "When it was issued, nanoseconds after the token's begin.",
        arrival_ns: u64 = "When its last byte was seen, nanoseconds after the token's begin.",
    }
}

columns! {
    /// Copies in a row that bring the same phase's weights, as one: by block, by begin in it.
    /// They may overlap.
    Streams of
    /// One row of [`Streams`].
    Stream {
        block: u16 = "Block that issued the copies.",
        phase: Phase = "The phase whose weights they bring.",
        layer: Option<u16> = "Layer of that phase, if it is a phase of a layer.",
        copies: u32 = "Number of copies.",
        bytes: u64 = "Size of all of them.",
        begin_ns: u64 = "First issue, nanoseconds after the token's begin.",
        end_ns: u64 = "Last arrival, nanoseconds after the token's begin.",
    }
}

impl Span {
    /// Length of the span.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// Where this row is, for a refusal.
    pub(crate) fn at(&self, index: usize) -> SpanAt {
        let &Span { block, role, kind, phase, layer, .. } = self;
        SpanAt { index, block, role, kind, phase, layer }
    }
}

impl Copied {
    /// Time from issue to arrival.
    pub fn latency_ns(&self) -> u64 {
        self.arrival_ns - self.issue_ns
    }

    /// Where this row is, for a refusal.
    pub(crate) fn at(&self, index: usize) -> CopyAt {
        let &Copied { block, phase, layer, .. } = self;
        CopyAt { list: "copy", index, block, phase, layer }
    }
}

impl Stream {
    /// Where this row is, for a refusal.
    pub(crate) fn at(&self, index: usize) -> CopyAt {
        let &Stream { block, phase, layer, .. } = self;
        CopyAt { list: "stream", index, block, phase, layer }
    }
}

/// The checked trace of one token: it has none of the faults in [`TraceError`].
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    meta: Meta,
    spans: Spans,
    copies: Copies,
    streams: Streams,
}

impl Trace {
    /// Checks these parts and makes a trace of them.
    ///
    /// # Errors
    /// Anything that contradicts the metadata, itself, or the rules of each column.
    pub fn new(meta: Meta, spans: Spans, copies: Copies) -> Result<Trace, TraceError> {
        check::meta(&meta)?;
        check::spans(&meta, &spans)?;
        check::copies(&meta, &copies)?;
        check::whole_token(&meta, &spans, &copies)?;
        let streams = streams_from_copies(&copies)?;
        Ok(Trace { meta, spans, copies, streams })
    }

    /// Makes a trace without the loader's spans and without single copies, as on the page.
    ///
    /// # Errors
    /// Those of [`Trace::new`].
    pub fn of_page(meta: Meta, spans: Spans, streams: Streams) -> Result<Trace, TraceError> {
        check::meta(&meta)?;
        check::spans(&meta, &spans)?;
        check::streams(&meta, &streams)?;
        Ok(Trace { meta, spans, copies: Copies::default(), streams })
    }

    /// What the spans are of.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The spans.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// The weight stream's copies, if they are known one by one.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The weight stream's copies, those in a row for one phase as one.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Whether the trace lacks single copies (and the loader's spans).
    pub fn is_reduced(&self) -> bool {
        self.copies.is_empty() && !self.streams.is_empty()
    }
}
