//! The critical path: the chain of work and hand-offs that makes up the token's time.
//!
//! The analysis follows it backwards in time, from the end of the argmax on its block to time 0:
//!
//! - Work is compute. Its part after half of the producers of the same hand-off had published is
//!   skew: with evenly loaded blocks it would not exist.
//! - Where a block's epilogue warp publishes, the chain goes from there to its last consumer warp's
//!   arrival, and on with the consumers.
//! - A wait on an exchange whose producer published after the wait began: the chain continues at
//!   the producer when it published, and the time from there to the wait's end is hand-off latency.
//! - Any other wait on an exchange is hand-off latency as a whole, and the chain stays on the
//!   block.
//! - A wait on the ring is a wait for weights, and so is the part of a barrier wait before the
//!   block's last weights of that phase had arrived. The rest of the barrier wait is skew among the
//!   block's own warps.
//! - Time without a span is unrecorded, and so is the token's time after the argmax.
//!
//! Every step goes back in time, and the segments cover the token without gap or overlap: the
//! classes add up to it exactly.

use super::index::{Index, Part, part};
use crate::{Span, Trace, names};
use monolith_abi::{EventKind, Phase, Role};
use serde::Serialize;

/// What a segment of the critical path is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathClass {
    /// Work, until half of the hand-off's producers had published.
    Compute,
    /// Weights that had not arrived.
    Weights,
    /// From a publication to the end of the wait for it.
    Handoff,
    /// Work after the median producer's publication, and waits for the block's own warps.
    Skew,
    /// Time that no span covers.
    Unrecorded,
}

impl PathClass {
    /// Every class, in the order of their ids in the page's file.
    pub const ALL: [PathClass; 5] = [
        PathClass::Compute,
        PathClass::Weights,
        PathClass::Handoff,
        PathClass::Skew,
        PathClass::Unrecorded,
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            PathClass::Compute => "compute",
            PathClass::Weights => "weights",
            PathClass::Handoff => "handoff",
            PathClass::Skew => "skew",
            PathClass::Unrecorded => "unrecorded",
        }
    }
}

/// One link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathSegment {
    /// The block that the time passed on.
    pub block: u16,
    /// What the time was spent on.
    pub class: PathClass,
    /// The phase worked on or waited for; none if unknown.
    #[serde(serialize_with = "optional_phase")]
    pub phase: Option<Phase>,
    /// Layer of that phase, if it has one.
    pub layer: Option<u16>,
    /// Begin, nanoseconds after the token's begin.
    pub begin_ns: u64,
    /// End, nanoseconds after the token's begin.
    pub end_ns: u64,
}

/// Time on the critical path by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathTotals {
    /// See [`PathClass::Compute`].
    pub compute_ns: u64,
    /// See [`PathClass::Weights`].
    pub weights_ns: u64,
    /// See [`PathClass::Handoff`].
    pub handoff_ns: u64,
    /// See [`PathClass::Skew`].
    pub skew_ns: u64,
    /// See [`PathClass::Unrecorded`].
    pub unrecorded_ns: u64,
}

/// Time on the critical path of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathPhase {
    /// The phase.
    #[serde(serialize_with = "names::phase")]
    pub phase: Phase,
    /// Its time by class.
    #[serde(flatten)]
    pub time: PathTotals,
}

/// The chain that makes up the token's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CriticalPath {
    /// Time by class; the classes add up to the token.
    pub totals: PathTotals,
    /// Time by phase, in order of use; what is missing from the totals belongs to no phase.
    pub phases: Vec<PathPhase>,
    /// How often the chain jumps from one block to another.
    pub jumps: u64,
    /// The chain, in order of time. Each segment begins where the previous one ends.
    pub segments: Vec<PathSegment>,
}

fn optional_phase<S: serde::Serializer>(phase: &Option<Phase>, to: S) -> Result<S::Ok, S::Error> {
    match phase {
        Some(phase) => names::phase(phase, to),
        None => to.serialize_none(),
    }
}

impl PathTotals {
    /// All classes together.
    pub fn sum_ns(&self) -> u64 {
        let PathTotals { compute_ns, weights_ns, handoff_ns, skew_ns, unrecorded_ns } = self;
        compute_ns + weights_ns + handoff_ns + skew_ns + unrecorded_ns
    }

    fn add(&mut self, segment: &PathSegment) {
        let class = match segment.class {
            PathClass::Compute => &mut self.compute_ns,
            PathClass::Weights => &mut self.weights_ns,
            PathClass::Handoff => &mut self.handoff_ns,
            PathClass::Skew => &mut self.skew_ns,
            PathClass::Unrecorded => &mut self.unrecorded_ns,
        };
        *class += segment.end_ns - segment.begin_ns;
    }
}

pub(super) fn critical_path(trace: &Trace, index: &Index) -> CriticalPath {
    let mut walk = Walk::from_the_end(trace, index);
    while walk.now_ns > 0 {
        walk.step();
    }
    walk.segments.reverse();
    let mut totals = PathTotals::default();
    walk.segments.iter().for_each(|segment| totals.add(segment));
    CriticalPath {
        totals,
        phases: by_phase(&walk.segments),
        jumps: walk.jumps,
        segments: walk.segments,
    }
}

fn by_phase(segments: &[PathSegment]) -> Vec<PathPhase> {
    let of = |&phase: &Phase| {
        let mut time = PathTotals::default();
        let own = segments.iter().filter(|segment| segment.phase == Some(phase));
        own.for_each(|segment| time.add(segment));
        (time.sum_ns() > 0).then_some(PathPhase { phase, time })
    };
    Phase::ALL.iter().filter_map(of).collect()
}

/// The state of the walk along the chain, back in time: the last segment comes first.
struct Walk<'a> {
    trace: &'a Trace,
    index: &'a Index,
    block: u16,
    /// The consumers or the epilogue.
    role: Role,
    now_ns: u64,
    jumps: u64,
    segments: Vec<PathSegment>,
}

impl<'a> Walk<'a> {
    /// Starts at the end of the argmax; without an argmax, at the end of the work that ended last.
    fn from_the_end(trace: &'a Trace, index: &'a Index) -> Walk<'a> {
        let work = trace
            .spans()
            .iter()
            .filter(|span| span.kind == EventKind::Work && span.role != Role::Loader);
        let last = work.max_by_key(|span| (span.phase == Phase::Argmax, span.end_ns));
        let (block, role, end_ns) =
            last.map_or((0, Role::Consumer, 0), |span| (span.block, span.role, span.end_ns));
        let now_ns = trace.meta().token_ns;
        let mut walk = Walk { trace, index, block, role, now_ns, jumps: 0, segments: Vec::new() };
        walk.back_to(end_ns, PathClass::Unrecorded, None);
        walk
    }

    /// Follows one link back. A jump to a producer may leave the time as it is; the next step is
    /// then that producer's work and goes back in time, so the walk ends.
    fn step(&mut self) {
        if self.role == Role::Epilogue && !self.epilogue_is_busy() {
            self.role = Role::Consumer;
        }
        let Some(span) = self.span_before_now() else {
            return self.back_to(0, PathClass::Unrecorded, None);
        };
        if span.end_ns < self.now_ns {
            return self.back_to(span.end_ns, PathClass::Unrecorded, None);
        }
        let of = Some(part(&span));
        match span.kind {
            EventKind::Work => {
                let even_ns = self.index.median_published_ns(part(&span)).unwrap_or(self.now_ns);
                self.back_to(even_ns.max(span.begin_ns), PathClass::Skew, of);
                self.back_to(span.begin_ns, PathClass::Compute, of);
            }
            EventKind::WaitExchange => self.handoff(&span),
            EventKind::WaitBarrier => {
                let weights_ns = self.index.weights_ns(&span, self.now_ns);
                self.back_to(span.begin_ns + weights_ns, PathClass::Skew, of);
                self.back_to(span.begin_ns, PathClass::Weights, of);
            }
            EventKind::WaitRingFull => self.back_to(span.begin_ns, PathClass::Weights, of),
            // Never of consumers: a trace has no such spans.
            EventKind::WaitRingEmpty | EventKind::WaitCopies | EventKind::Unrecorded => {
                self.back_to(span.begin_ns, PathClass::Unrecorded, of);
            }
        }
    }

    /// Goes back over a wait on an exchange, and to its producer if that published during the wait.
    /// Each of the two blocks' clocks may be wrong by the alignment's error bound, so a publication
    /// may appear up to two bounds after the wait's end.
    fn handoff(&mut self, span: &Span) {
        let slack_ns = 2 * self.trace.meta().clock_error_ns;
        let producer = span.waits_on.and_then(|block| {
            let (at_ns, role) =
                self.index.published_ns(block, part(span), self.now_ns, slack_ns)?;
            (at_ns > span.begin_ns).then_some((block, role, at_ns))
        });
        let back_to_ns = producer.map_or(span.begin_ns, |(.., at_ns)| at_ns);
        self.back_to(back_to_ns, PathClass::Handoff, Some(part(span)));
        if let Some((block, role, _)) = producer {
            (self.block, self.role) = (block, role);
            self.jumps += 1;
        }
    }

    /// Whether the epilogue worked or waited for other blocks just before now. Otherwise it waited
    /// for its own block's consumers, so that the chain goes on with them.
    fn epilogue_is_busy(&self) -> bool {
        let is_busy =
            |span: Span| span.end_ns >= self.now_ns && span.kind != EventKind::WaitBarrier;
        self.span_before_now().is_some_and(is_busy)
    }

    /// Returns the last span of the block and role that begins before now.
    fn span_before_now(&self) -> Option<Span> {
        let rows = self.index.rows(self.block, self.role);
        let begins = &self.trace.spans().begin_ns[rows.clone()];
        let count = begins.partition_point(|&begin| begin < self.now_ns);
        count.checked_sub(1).map(|last| self.trace.spans().row(rows.start + last))
    }

    /// Goes back to a time and adds the segment from then to now; does nothing if there is none.
    fn back_to(&mut self, begin_ns: u64, class: PathClass, of: Option<Part>) {
        if begin_ns >= self.now_ns {
            return;
        }
        self.segments.push(PathSegment {
            block: self.block,
            class,
            phase: of.map(|(_, phase)| phase),
            layer: of.and_then(|(layer, _)| layer),
            begin_ns,
            end_ns: self.now_ns,
        });
        self.now_ns = begin_ns;
    }
}
