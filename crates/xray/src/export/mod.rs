//! Exports the trace for other viewers. The same trace always gives the same bytes.
//!
//! [`perfetto`] has the most: every slice, flows from producers to the waits that they release, and
//! counters. [`chrome`] has the slices and the flows in JSON, [`speedscope`] only the slices.
//! [`csv`] has rows for a spreadsheet; [`gantt`] is a picture.
//!
//! Tracks of one block, in all of them: its consumers, its epilogue, its loader, its weight stream.

mod chrome;
mod counters;
mod csv;
mod flows;
mod gantt;
mod lanes;
mod perfetto;
pub mod proto;
mod speedscope;
mod tracks;

pub use chrome::chrome;
pub use csv::csv;
pub use gantt::{GanttError, GanttOptions, gantt};
pub use perfetto::perfetto;
pub use speedscope::speedscope;

use crate::Trace;
use monolith_abi::EventKind;
use monolith_abi::dump::NO_SM;

/// Returns the name under which viewers show a wait; `None` for other kinds.
fn wait_name(kind: EventKind) -> Option<&'static str> {
    match kind {
        EventKind::WaitExchange => Some("wait:exchange"),
        EventKind::WaitRingFull => Some("wait:weights"),
        EventKind::WaitRingEmpty => Some("wait:stage"),
        EventKind::WaitBarrier => Some("wait:barrier"),
        EventKind::WaitCopies => Some("wait:copies"),
        EventKind::Work | EventKind::Unrecorded => None,
    }
}

/// Returns the name of the one process of an exported trace.
fn process_name(trace: &Trace) -> String {
    let meta = trace.meta();
    format!("monolith {} / position {}", meta.variant, meta.position)
}

/// The SM that the block ran on, if the trace says.
fn sm_of(trace: &Trace, block: u16) -> Option<u16> {
    trace.meta().sms.get(usize::from(block)).copied().filter(|&sm| sm != NO_SM)
}
