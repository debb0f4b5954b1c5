//! Summaries of many numbers.

use super::{CriticalPath, PathClass};
use crate::Trace;
use monolith_abi::{EventKind, Phase, Role};
use serde::Serialize;

/// The distribution of some numbers. Every field is one of them; the median of an even count is the
/// lower of the middle two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The minimum.
    pub min_ns: u64,
    /// The median: half are no larger.
    pub median_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

impl Spread {
    /// Summarizes these numbers; all 0 if there are none.
    pub fn of(values: impl Iterator<Item = u64>) -> Spread {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let rank = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1) - 1;
            values.get(rank).copied().unwrap_or(0)
        };
        Spread { min_ns: rank(0), median_ns: rank(50), p99_ns: rank(99), max_ns: rank(100) }
    }
}

/// Part of the layers' time that is spent on hand-offs.
///
/// The layers' time goes from the first begin of a span of layer 0's qkv to the last end of work
/// of the last layer's down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HandoffShare {
    /// The layers' time.
    pub layers_ns: u64,
    /// Time of waits on exchanges within the layers' time, mean over the blocks.
    pub mean_ns: f64,
    /// The same in percent of the layers' time.
    pub mean_pct: f64,
    /// Hand-off latency on the critical path within the layers' time.
    pub path_ns: u64,
    /// The same in percent of the layers' time.
    pub path_pct: f64,
}

/// The share, if the trace has the layers' begin and end.
pub(super) fn handoff_share(trace: &Trace, path: &CriticalPath) -> Option<HandoffShare> {
    let (begin, end) = layers_window(trace)?;
    let inside = |from: u64, to: u64| to.min(end).saturating_sub(from.max(begin));
    let waits = trace
        .spans()
        .iter()
        .filter(|span| span.role == Role::Consumer && span.kind == EventKind::WaitExchange);
    let total_ns: u64 = waits.map(|span| inside(span.begin_ns, span.end_ns)).sum();
    let handoffs = path.segments.iter().filter(|segment| segment.class == PathClass::Handoff);
    let path_ns = handoffs.map(|segment| inside(segment.begin_ns, segment.end_ns)).sum();
    let layers_ns = end - begin;
    let mean_ns = total_ns as f64 / f64::from(trace.meta().blocks);
    let percent = |ns: f64| 100.0 * ns / layers_ns as f64;
    Some(HandoffShare {
        layers_ns,
        mean_ns,
        mean_pct: percent(mean_ns),
        path_ns,
        path_pct: percent(path_ns as f64),
    })
}

fn layers_window(trace: &Trace) -> Option<(u64, u64)> {
    let last_layer = trace.meta().layers.checked_sub(1)?;
    let consumers = || trace.spans().iter().filter(|span| span.role == Role::Consumer);
    let first = consumers().filter(|span| span.phase == Phase::Qkv && span.layer == Some(0));
    let begin = first.map(|span| span.begin_ns).min()?;
    let last = trace.spans().iter().filter(|span| {
        span.role != Role::Loader
            && span.kind == EventKind::Work
            && span.phase == Phase::Down
            && span.layer == Some(last_layer)
    });
    let end = last.map(|span| span.end_ns).max()?;
    (begin < end).then_some((begin, end))
}
