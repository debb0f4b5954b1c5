//! Why a dump or a page's file was refused.

use monolith_abi::{EventKind, Phase};
use std::fmt;

/// Where in the records a refusal points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanAt {
    /// Index of the record.
    pub record: usize,
    /// Block that recorded it.
    pub block: u16,
    /// What the time was spent on.
    pub kind: EventKind,
    /// Its phase (for a wait: the phase waited for).
    pub phase: Phase,
    /// Its layer, if it has one.
    pub layer: Option<u16>,
}

impl fmt::Display for SpanAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpanAt { record, block, kind, phase, layer } = self;
        write!(f, "record {record} (block {block}, {} {}", kind.name(), phase.name())?;
        match layer {
            Some(layer) => write!(f, " of layer {layer})"),
            None => write!(f, ")"),
        }
    }
}

/// Why a dump or a page's file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Nothing was recorded.
    #[error("the trace has no spans")]
    NoSpans,
    /// No block took part.
    #[error("the trace has no blocks")]
    NoBlocks,
    /// A text of the metadata is empty, too long or has control characters.
    #[error("meta.{0} is not a short line of text")]
    BadText(&'static str),
    /// A number of the metadata is beyond what it may be.
    #[error("meta.{field} is {found}, more than {limit}")]
    TooMany {
        /// Field of the metadata.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// The spans do not begin at 0.
    #[error("the first span begins at {0} ns, not at 0")]
    LateStart(u64),
    /// The spans do not end where the token does.
    #[error("the last span ends at {found} ns, but the token at {token_ns} ns")]
    WrongEnd {
        /// Largest end.
        found: u64,
        /// End of the token.
        token_ns: u64,
    },
    /// A span ends before it begins.
    #[error("{0} ends before it begins")]
    Backwards(SpanAt),
    /// A span's block took no part.
    #[error("{at} names a block, but there are {blocks} blocks")]
    UnknownBlock {
        /// The span.
        at: SpanAt,
        /// Blocks that took part.
        blocks: u16,
    },
    /// A span's layer is not in the model.
    #[error("{at} names a layer, but the model has {layers} layers")]
    UnknownLayer {
        /// The span.
        at: SpanAt,
        /// Layers of the model.
        layers: u16,
    },
    /// A phase of a layer without its layer.
    #[error("{0} lacks its layer")]
    MissingLayer(SpanAt),
    /// A phase that occurs once a step, with a layer.
    #[error("{0} has a layer, but its phase occurs once a step")]
    StrayLayer(SpanAt),
    /// A wait for a block that took no part.
    #[error("{at} waits on block {waits_on}, but there are {blocks} blocks")]
    UnknownProducer {
        /// The span.
        at: SpanAt,
        /// The block waited for.
        waits_on: u16,
        /// Blocks that took part.
        blocks: u16,
    },
    /// A wait for the block itself.
    #[error("{0} waits on its own block")]
    SelfWait(SpanAt),
    /// Work that names a producer.
    #[error("{at} is work, but waits on block {waits_on}")]
    WorkWaits {
        /// The span.
        at: SpanAt,
        /// The block named.
        waits_on: u16,
    },
    /// Blocks do not follow one another.
    #[error("{at} comes after the records of block {after}")]
    OutOfOrder {
        /// The span.
        at: SpanAt,
        /// Block of the record before it.
        after: u16,
    },
    /// Two spans of one block share time, or are out of order.
    #[error("{at} begins {by_ns} ns before the end of the record before it")]
    Overlap {
        /// The later record.
        at: SpanAt,
        /// Time that both claim.
        by_ns: u64,
    },
    /// Neither gzip nor JSON.
    #[error("neither gzip nor JSON: the file begins with {0:02x?}")]
    Foreign(Vec<u8>),
    /// The gzip stream is broken.
    #[error("broken gzip: {0}")]
    Gzip(String),
    /// Bytes after the end of the gzip stream.
    #[error("{0} bytes follow the gzip stream")]
    TrailingBytes(usize),
    /// More text than any trace has.
    #[error("the text is longer than {0} bytes")]
    TooLong(usize),
    /// Not the JSON of a trace.
    #[error("not a trace's JSON: {0}")]
    Json(String),
    /// Another format, or another version of this one.
    #[error("schema is {0:?}, this version reads {expected:?}", expected = crate::page::SCHEMA)]
    Schema(String),
    /// A name that this version does not know.
    #[error("{list}: unknown name {name:?}")]
    UnknownName {
        /// `phases` or `kinds`.
        list: &'static str,
        /// The name.
        name: String,
    },
    /// A name listed twice.
    #[error("{list}: {name:?} is listed twice")]
    RepeatedName {
        /// `phases` or `kinds`.
        list: &'static str,
        /// The name.
        name: String,
    },
    /// An id beyond the end of its list of names.
    #[error("spans.{column}[{index}] is {id}, but there are {names} names")]
    UnknownId {
        /// `phase` or `kind`.
        column: &'static str,
        /// Index in the column.
        index: usize,
        /// The id.
        id: u8,
        /// Length of the list of names.
        names: usize,
    },
    /// Columns of different lengths.
    #[error("spans.{column} has {found} values, spans.block {expected}")]
    UnequalColumns {
        /// The column.
        column: &'static str,
        /// Its length.
        found: usize,
        /// Length of `block`.
        expected: usize,
    },
}
