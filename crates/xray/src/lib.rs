//! The X-ray: what every block did during one token, and what each wait waited for.
//!
//! Data flows one way: an engine makes a [`Dump`](monolith_abi::dump::Dump) ([`dump_file`] stores
//! it on disk); [`trace_from_dump`] checks it and aligns the blocks' clocks; [`Analysis`]
//! summarizes the trace for the terminal; [`page`] writes it for the web page, and [`export`] for
//! other viewers. [`fault`] explains a step that timed out. This crate does not depend on the
//! engines: it sees only their stamps.

#![forbid(unsafe_code)]

mod align;
pub mod analysis;
mod check;
pub mod dump_file;
mod error;
pub mod export;
pub mod fault;
mod from_dump;
mod names;
pub mod page;
mod streams;
mod table;
mod trace;

pub use align::AlignError;
pub use analysis::Analysis;
pub use dump_file::DumpError;
pub use error::{CopyAt, CopyError, LayerError, SpanAt, StampAt, TraceError};
pub use from_dump::trace_from_dump;
pub use trace::{
    Copied, Copies, MAX_TOKEN_NS, Meta, Pace, PhaseBytes, Span, Spans, Stream, Streams, Trace,
};
