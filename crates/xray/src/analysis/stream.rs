//! The weight stream: its rate, and the time from issue to arrival.

use crate::Trace;
use serde::Serialize;

use super::Spread;

/// The weight stream of all blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeightStream {
    /// Number of copies.
    pub copies: u64,
    /// Size of all copies, in bytes.
    pub bytes: u64,
    /// Time in which at least one copy of any block was in flight. In a trace without single
    /// copies: at least one stream, pauses between its copies included.
    pub busy_ns: u64,
    /// Bytes divided by that time, in 10^9 bytes per second.
    pub gb_per_s: f64,
    /// Time from issue to arrival of a copy; none without single copies.
    pub latency: Option<Spread>,
}

pub(super) fn weight_stream(trace: &Trace) -> Option<WeightStream> {
    let (copies, streams) = (trace.copies(), trace.streams());
    if streams.is_empty() {
        return None;
    }
    let mut intervals: Vec<(u64, u64)> = if copies.is_empty() {
        streams.iter().map(|stream| (stream.begin_ns, stream.end_ns)).collect()
    } else {
        copies.iter().map(|copy| (copy.issue_ns, copy.arrival_ns)).collect()
    };
    let busy_ns = union_ns(&mut intervals);
    let bytes: u64 = streams.iter().map(|stream| stream.bytes).fold(0, u64::saturating_add);
    Some(WeightStream {
        copies: streams.iter().map(|stream| u64::from(stream.copies)).sum(),
        bytes,
        busy_ns,
        gb_per_s: if busy_ns > 0 { bytes as f64 / busy_ns as f64 } else { 0.0 },
        latency: (!copies.is_empty())
            .then(|| Spread::of(copies.iter().map(|copy| copy.latency_ns()))),
    })
}

/// Returns the total length that the intervals cover.
fn union_ns(intervals: &mut [(u64, u64)]) -> u64 {
    intervals.sort_unstable();
    let (mut covered, mut until) = (0, 0);
    for &mut (begin, end) in intervals {
        covered += end.saturating_sub(begin.max(until));
        until = until.max(end);
    }
    covered
}
