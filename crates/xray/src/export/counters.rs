//! Computes the counters of an export: blocks that wait, and the weight stream's rate over time.

use crate::Trace;
use monolith_abi::Role;

/// Minimum length of a window: shorter windows show single copies, not a rate.
const MIN_WINDOW_NS: u64 = 2_000;
/// Approximate maximum number of windows in a token.
const MAX_WINDOWS: u64 = 2_048;

/// Mean values over equal windows from the token's begin on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve {
    pub(super) window_ns: u64,
    pub(super) values: Vec<f64>,
}

impl Curve {
    /// Adds a rate that lasts from begin to end to the windows' means.
    fn add_per_ns(&mut self, rate: f64, mut begin_ns: u64, end_ns: u64) {
        while begin_ns < end_ns {
            let window = begin_ns / self.window_ns;
            let until_ns = end_ns.min((window + 1) * self.window_ns);
            self.add(window, rate * (until_ns - begin_ns) as f64 / self.window_ns as f64);
            begin_ns = until_ns;
        }
    }

    /// Adds to a window's mean. Values at or after the token's end belong to the last window.
    fn add(&mut self, window: u64, share: f64) {
        let last = self.values.len() - 1;
        self.values[last.min(window as usize)] += share;
    }
}

fn windows(trace: &Trace) -> Curve {
    let token_ns = trace.meta().token_ns;
    let window_ns = token_ns.div_ceil(MAX_WINDOWS).max(MIN_WINDOW_NS);
    Curve { window_ns, values: vec![0.0; token_ns.div_ceil(window_ns).max(1) as usize] }
}

/// Number of blocks whose consumers wait.
pub(super) fn blocks_waiting(trace: &Trace) -> Curve {
    let mut curve = windows(trace);
    let waits = trace.spans().iter().filter(|span| span.kind.is_wait());
    for span in waits.filter(|span| span.role == Role::Consumer) {
        curve.add_per_ns(1.0, span.begin_ns, span.end_ns);
    }
    curve
}

/// Rate at which weights arrived, in bytes per nanosecond (GB/s); `None` if copies were not
/// recorded. Without single copies, a stream's bytes are spread evenly over its time.
pub(super) fn stream_rate(trace: &Trace) -> Option<Curve> {
    let mut curve = windows(trace);
    if trace.is_reduced() {
        for stream in trace.streams().iter() {
            let rate = stream.bytes as f64 / (stream.end_ns - stream.begin_ns).max(1) as f64;
            curve.add_per_ns(rate, stream.begin_ns, stream.end_ns);
        }
    }
    for copy in trace.copies().iter() {
        let share = f64::from(copy.bytes) / curve.window_ns as f64;
        curve.add(copy.arrival_ns / curve.window_ns, share);
    }
    (!trace.streams().is_empty()).then_some(curve)
}
