//! Why a dump or a page's file was refused.

use crate::{AlignError, MAX_TOKEN_NS};
use monolith_abi::{EventKind, Phase, Role};
use std::fmt;

/// The span that an error points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanAt {
    /// Index of the span.
    pub index: usize,
    /// Block that recorded it.
    pub block: u16,
    /// The role in the block.
    pub role: Role,
    /// What the time was spent on.
    pub kind: EventKind,
    /// Its phase (for a wait: the phase waited for).
    pub phase: Phase,
    /// Its layer, if it has one.
    pub layer: Option<u16>,
}

impl fmt::Display for SpanAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpanAt { index, block, role, kind, phase, layer } = self;
        let (role, kind) = (role.name(), kind.name());
        write!(f, "span {index} (block {block}, {role}, {kind} {}", phase.name())?;
        of_layer(f, *layer)
    }
}

/// The copy, or the stream of copies, that an error points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyAt {
    /// `copy` or `stream`.
    pub list: &'static str,
    /// Index in the list.
    pub index: usize,
    /// Block that issued it.
    pub block: u16,
    /// The phase whose weights it loads.
    pub phase: Phase,
    /// Its layer, if it has one.
    pub layer: Option<u16>,
}

impl fmt::Display for CopyAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CopyAt { list, index, block, phase, layer } = self;
        write!(f, "{list} {index} (block {block}, {}", phase.name())?;
        of_layer(f, *layer)
    }
}

fn of_layer(f: &mut fmt::Formatter<'_>, layer: Option<u16>) -> fmt::Result {
    match layer {
        Some(layer) => write!(f, " of layer {layer})"),
        None => write!(f, ")"),
    }
}

/// The part of a block's dump that an error points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampAt {
    /// The block.
    pub block: usize,
    /// `consumer stamp`, `loader stamp` or `copy`.
    pub list: &'static str,
    /// Index in that list.
    pub index: usize,
}

impl fmt::Display for StampAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StampAt { block, list, index } = self;
        write!(f, "block {block}, {list} {index}")
    }
}

/// Why a dump or a page's file was refused. Each message names the value and where it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// No span of a consumer was recorded.
    #[error("the trace has no spans of consumers")]
    NoSpans,
    /// The number of blocks is 0.
    #[error("the trace has no blocks")]
    NoBlocks,
    /// A text of the metadata is empty, too long, or not safe to print.
    #[error("meta.{0} is not a short line of text")]
    BadText(&'static str),
    /// A number of the metadata is above its limit.
    #[error("meta.{field} is {found}, more than {limit}")]
    TooMany {
        /// Field of the metadata.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// A rate or a percentage of the metadata that no measurement can have given.
    #[error("meta.pace.{0} is not a possible measurement")]
    BadPace(&'static str),
    /// The number of SMs differs from the number of blocks.
    #[error("meta.sms has {found} values, but there are {blocks} blocks")]
    WrongSms {
        /// Number of values.
        found: usize,
        /// Number of blocks.
        blocks: u16,
    },
    /// A phase's bytes are zero, listed twice, or out of order.
    #[error("meta.phase_bytes: {0} is listed twice, out of order, or with no bytes")]
    BadPhaseBytes(&'static str),
    /// A block's clock cannot be mapped to the shared one.
    #[error("block {block}: {error}")]
    Align {
        /// The block.
        block: usize,
        /// The reason.
        error: AlignError,
    },
    /// A stamp or a copy is earlier than the previous one.
    #[error("{at} is at clock {clock}, earlier than the previous one at {before}")]
    ClockBackwards {
        /// The second of the two.
        at: StampAt,
        /// Its clock.
        clock: u64,
        /// The clock of the previous one.
        before: u64,
    },
    /// A copy arrives before it is issued.
    #[error("{0} arrives before it is issued")]
    EarlyArrival(StampAt),
    /// A role's last stamp opens a span that never ends.
    #[error("{0} is the last of its role, but is not `unrecorded`: its span has no end")]
    OpenEnd(StampAt),
    /// The stamps of a dump are too far apart for one token.
    #[error("the stamps span {0} ns, more than {MAX_TOKEN_NS} ns: that is not one token")]
    TooLongToken(u64),
    /// No span begins at 0.
    #[error("the first span begins at {0} ns, not at 0")]
    LateStart(u64),
    /// No span ends at the token's end.
    #[error("the last span ends at {found} ns, but the token at {token_ns} ns")]
    WrongEnd {
        /// Largest end.
        found: u64,
        /// End of the token.
        token_ns: u64,
    },
    /// A span ends after the token.
    #[error("{at} ends at {end_ns} ns, after the token's end at {token_ns} ns")]
    AfterEnd {
        /// The span.
        at: SpanAt,
        /// Its end.
        end_ns: u64,
        /// End of the token.
        token_ns: u64,
    },
    /// A span has no length, or a negative one.
    #[error("{0} does not end after it begins")]
    Backwards(SpanAt),
    /// A span of a kind that its role does not record.
    #[error("{0} has a kind that its role does not record")]
    WrongKind(SpanAt),
    /// A span's block does not exist.
    #[error("{at} is on a block that does not exist: there are {blocks} blocks")]
    UnknownBlock {
        /// The span.
        at: SpanAt,
        /// Number of blocks.
        blocks: u16,
    },
    /// A span's layer is beyond the model's, missing, or superfluous.
    #[error("{at} {what}")]
    BadLayer {
        /// The span.
        at: SpanAt,
        /// What is wrong with its layer.
        what: LayerError,
    },
    /// A wait for a block that does not exist.
    #[error("{at} waits on block {waits_on}, but there are {blocks} blocks")]
    UnknownProducer {
        /// The span.
        at: SpanAt,
        /// The block waited for.
        waits_on: u16,
        /// Number of blocks.
        blocks: u16,
    },
    /// A wait for the block itself.
    #[error("{0} waits on its own block")]
    SelfWait(SpanAt),
    /// A span that is not a wait on an exchange names a producer.
    #[error("{at} waits on no exchange, but names block {waits_on}")]
    StrayProducer {
        /// The span.
        at: SpanAt,
        /// The block named.
        waits_on: u16,
    },
    /// Blocks, or the roles of a block, are out of order.
    #[error("{at} is out of order: it follows a span of block {block}, {role}", role = role.name())]
    OutOfOrder {
        /// The span.
        at: SpanAt,
        /// Block of the span before it.
        block: u16,
        /// Role of the span before it.
        role: Role,
    },
    /// Two spans of one role of a block overlap, or are out of order.
    #[error("{at} begins {by_ns} ns before the previous span ends")]
    Overlap {
        /// The later span.
        at: SpanAt,
        /// The overlap.
        by_ns: u64,
    },
    /// An impossible copy.
    #[error("{at} {what}")]
    BadCopy {
        /// The copy, or the stream.
        at: CopyAt,
        /// What is wrong with it.
        what: CopyError,
    },
    /// More consecutive copies than a stream can count.
    #[error("a block has more than {max} consecutive copies for one phase", max = u32::MAX)]
    TooManyCopies,
    /// Neither gzip nor JSON.
    #[error("neither gzip nor JSON: the file begins with {0:02x?}")]
    Foreign(Vec<u8>),
    /// The gzip stream is broken.
    #[error("broken gzip: {0}")]
    Gzip(String),
    /// Bytes after the end of the gzip stream.
    #[error("{0} bytes follow the gzip stream")]
    TrailingBytes(usize),
    /// The text is longer than that of any trace.
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
        /// `phases`, `kinds`.
        list: &'static str,
        /// The name.
        name: String,
    },
    /// A name listed twice.
    #[error("{list}: {name:?} is listed twice")]
    RepeatedName {
        /// `phases`, `kinds`.
        list: &'static str,
        /// The name.
        name: String,
    },
    /// An id beyond the end of its list of names.
    #[error("{list}.{column}[{index}] is {id}, but there are {names} names")]
    UnknownId {
        /// `spans` or `streams`.
        list: &'static str,
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
    #[error("{list}.{column} has {found} values, but the list's other columns have {expected}")]
    UnequalColumns {
        /// `spans`, `copies` or `streams`.
        list: &'static str,
        /// The column.
        column: &'static str,
        /// Its length.
        found: usize,
        /// Length of the list.
        expected: usize,
    },
    /// The rows counted for each block do not add up to the rows of the list.
    #[error("{list}.counts has {found} blocks and {rows} rows, not {blocks} and {expected}")]
    WrongCounts {
        /// `spans` or `streams`.
        list: &'static str,
        /// Number of counts.
        found: usize,
        /// Their sum.
        rows: u64,
        /// Number of blocks.
        blocks: u16,
        /// Rows of the list.
        expected: usize,
    },
    /// A time beyond the longest token allowed.
    #[error("{list}: the times of row {index} add up to more than {MAX_TOKEN_NS} ns")]
    TimeTooLong {
        /// `spans` or `streams`.
        list: &'static str,
        /// The row.
        index: usize,
    },
}

/// What is wrong with a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// The model has no such layer.
    #[error("names a layer, but the model has {0} layers")]
    Unknown(u16),
    /// The phase belongs to a layer, but none is named.
    #[error("lacks its layer")]
    Missing,
    /// The phase occurs once a step, but a layer is named.
    #[error("has a layer, but its phase occurs once a step")]
    Stray,
}

/// What is wrong with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// Its block does not exist.
    #[error("is on a block that does not exist: there are {0} blocks")]
    UnknownBlock(u16),
    /// Its layer is wrong.
    #[error("{0}")]
    Layer(LayerError),
    /// It arrives before it is issued.
    #[error("arrives before it is issued")]
    Backwards,
    /// It loads no bytes, or consists of no copies.
    #[error("loads no bytes")]
    Empty,
    /// Its block or its issue is earlier than the previous one's.
    #[error("is out of order: rows are sorted by block, then by time of issue")]
    OutOfOrder,
    /// It arrives after the token's end.
    #[error("arrives after the token's end")]
    AfterEnd,
}
