//! The trace: one token's spans and copies on a common clock, checked, stored by column.

use crate::streams::streams_from_copies;
use crate::{CopyAt, SpanAt, TraceError, check, names};
use monolith_abi::{EventKind, Phase, Role};
use serde::{Deserialize, Serialize};

/// Longest token that a trace holds: one hour. Sums over all blocks then fit 64 bits, and every
/// time is exact in a JSON number.
pub const MAX_TOKEN_NS: u64 = 3_600_000_000_000;

/// What was recorded: the step, the device, and how exact the times are. The page's file uses the
/// same names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Engine name, `cpu` or `cuda`.
    pub engine: String,
    /// Row of the variant table.
    pub variant: String,
    /// Device that the step ran on, as its driver or the operating system names it.
    pub device: String,
    /// Name of the model.
    pub model: String,
    /// Hash that identifies the kernels, if the engine has kernels.
    pub build: Option<String>,
    /// Position of the step (tokens already cached).
    pub position: u32,
    /// Number of blocks.
    pub blocks: u16,
    /// Number of layers in the model.
    pub layers: u16,
    /// Time from the first begin to the last end.
    pub token_ns: u64,
    /// Error bound, rounded up: no time differs by more than this from the shared clock's.
    pub clock_error_ns: u64,
    /// How the blocks' clocks were aligned.
    pub alignment: String,
    /// Stamps, copies and anchors that did not fit in the engine's buffers.
    pub overflow: u64,
    /// The SM of each block; empty if the SMs are not known.
    pub sms: Vec<u16>,
    /// Bytes that each phase reads, all layers together; phases that read nothing are left out.
    #[serde(serialize_with = "names::phase_bytes", deserialize_with = "names::read_phase_bytes")]
    pub phase_bytes: Vec<PhaseBytes>,
    /// Speed of the decode loop around this step, if it was measured.
    pub pace: Option<Pace>,
    /// Program and version that wrote the trace.
    pub generator: String,
}

impl Meta {
    /// The word for a block: "thread" on the CPU, "block" on a GPU.
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

/// Speed of the decode loop around the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Tokens a second of the headline build, which records nothing.
    pub headline_tok_s: f64,
    /// Tokens a second of the recording build, with every step recorded.
    pub instrumented_tok_s: f64,
    /// Time that recording adds, in percent of the headline build's.
    pub overhead_pct: f64,
}

/// Defines a table that is stored by column, and the type of one of its rows.
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

            /// Whether the table has no rows.
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
            /// If the index is out of range.
            pub fn row(&self, index: usize) -> $row {
                $row { $first: self.$first[index], $($name: self.$name[index],)+ }
            }

            /// The rows in order.
            pub fn iter(&self) -> impl ExactSizeIterator<Item = $row> + '_ {
                (0..self.len()).map(|index| self.row(index))
            }

            /// The first column whose length differs from the first column's, and its length.
            pub(crate) fn uneven(&self) -> Option<(&'static str, usize)> {
                let columns = [$((stringify!($name), self.$name.len()),)+];
                columns.into_iter().find(|&(_, length)| length != self.len())
            }
        }
    };
}

columns! {
    /// The spans, sorted by block, role and time. Time between two spans of a role is unrecorded.
    Spans of
    /// One row of [`Spans`].
    Span {
        block: u16 = "Block that recorded the span.",
        role: Role = "The role in the block: its consumers or its loader.",
        kind: EventKind = "What the time was spent on, never `Unrecorded`.",
        phase: Phase = "The phase; for a wait, the phase whose output or weights were waited for.",
        layer: Option<u16> = "Layer of that phase, if it is a phase of a layer.",
        waits_on: Option<u16> = "For a wait on an exchange, the block whose value arrived last; \
            none if no value was seen to arrive: all were there at the first poll.",
        begin_ns: u64 = "Begin, nanoseconds after the token's begin.",
        end_ns: u64 = "End, nanoseconds after the token's begin; after the span's begin.",
    }
}

columns! {
    /// The weight stream's copies, sorted by block and time of issue. They may overlap.
    Copies of
    /// One row of [`Copies`].
    Copied {
        block: u16 = "Block that issued the copy.",
        phase: Phase = "The phase whose weights it brings.",
        layer: Option<u16> = "Layer of that phase, if it is a phase of a layer.",
        bytes: u32 = "Size in bytes.",
        issue_ns: u64 = "Time of issue, nanoseconds after the token's begin.",
        arrival_ns: u64 = "When its last byte was seen to have arrived, nanoseconds after the \
            token's begin.",
    }
}

columns! {
    /// Streams: consecutive copies of a block that bring weights of one phase of one layer, merged.
    /// They are sorted by block and begin, and may overlap.
    Streams of
    /// One row of [`Streams`].
    Stream {
        block: u16 = "Block that issued the copies.",
        phase: Phase = "The phase whose weights they bring.",
        layer: Option<u16> = "Layer of that phase, if it is a phase of a layer.",
        copies: u32 = "Number of copies.",
        bytes: u64 = "Size of all of them, in bytes.",
        begin_ns: u64 = "First issue, nanoseconds after the token's begin.",
        end_ns: u64 = "Last arrival, nanoseconds after the token's begin.",
    }
}

impl Span {
    /// Length of the span.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// Identifies this row in an error message.
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

    /// Identifies this row in an error message.
    pub(crate) fn at(&self, index: usize) -> CopyAt {
        let &Copied { block, phase, layer, .. } = self;
        CopyAt { list: "copy", index, block, phase, layer }
    }
}

impl Stream {
    /// Identifies this row in an error message.
    pub(crate) fn at(&self, index: usize) -> CopyAt {
        let &Stream { block, phase, layer, .. } = self;
        CopyAt { list: "stream", index, block, phase, layer }
    }
}

/// The checked trace of one token: none of the errors in [`TraceError`] applies to it.
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
    /// The first rule that the parts break.
    pub fn new(meta: Meta, spans: Spans, copies: Copies) -> Result<Trace, TraceError> {
        check::meta(&meta)?;
        check::spans(&meta, &spans)?;
        check::copies(&meta, &copies)?;
        check::whole_token(&meta, &spans, &copies)?;
        let streams = streams_from_copies(&copies)?;
        Ok(Trace { meta, spans, copies, streams })
    }

    /// Makes a trace from the contents of the page's file, which has no loader spans and no single
    /// copies.
    ///
    /// # Errors
    /// Those of [`Trace::new`].
    pub fn of_page(meta: Meta, spans: Spans, streams: Streams) -> Result<Trace, TraceError> {
        check::meta(&meta)?;
        check::spans(&meta, &spans)?;
        check::streams(&meta, &streams)?;
        Ok(Trace { meta, spans, copies: Copies::default(), streams })
    }

    /// What was recorded.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The spans.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// The weight stream's copies; empty if only streams are known.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The weight stream's copies, merged into streams.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Whether the trace lacks single copies (and the loader's spans).
    pub fn is_reduced(&self) -> bool {
        self.copies.is_empty() && !self.streams.is_empty()
    }
}
