//! The X-ray: what every block did during one token, and what each wait waited for.
//!
//! One way through, nothing flows back: an engine leaves a [`Dump`](monolith_abi::dump::Dump);
//! [`trace_from_dump`] checks and aligns it; [`Analysis`] adds it up for the terminal;
//! [`page`] writes it down for the page. Engines are strangers here: this crate sees records,
//! never how they were made.

#![forbid(unsafe_code)]

mod analysis;
mod check;
mod error;
pub mod page;
mod table;
mod trace;

pub use analysis::{Analysis, PhaseTime, WaitTime};
pub use error::{SpanAt, TraceError};
pub use trace::{MAX_TOKEN_NS, Meta, Span, Spans, Trace, trace_from_dump};
