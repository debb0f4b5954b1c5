//! Finds the work that released each wait, for the arrows (flows) that viewers draw.

use crate::{Span, Trace};
use monolith_abi::{EventKind, Phase, Role};
use std::collections::BTreeMap;

/// Most arrows in one trace: more of them would hide the slices.
const MAX_FLOWS: usize = 4096;

/// The ids of arrows, counted from 1, by the row of the span at either end.
pub(super) struct Arrows {
    tails: BTreeMap<usize, Vec<u64>>,
    heads: BTreeMap<usize, u64>,
}

impl Arrows {
    pub(super) fn of(trace: &Trace) -> Arrows {
        let mut arrows = Arrows { tails: BTreeMap::new(), heads: BTreeMap::new() };
        for (flow, id) in flows(trace).into_iter().zip(1..) {
            arrows.tails.entry(flow.work).or_default().push(id);
            arrows.heads.insert(flow.wait, id);
        }
        arrows
    }

    /// The arrows that begin at the end of this row.
    pub(super) fn tails(&self, row: usize) -> &[u64] {
        self.tails.get(&row).map_or(&[], Vec::as_slice)
    }

    /// The arrow that ends at the end of this row.
    pub(super) fn head(&self, row: usize) -> Option<u64> {
        self.heads.get(&row).copied()
    }
}

/// An arrow from the end of the producer's work to the wait that it released, both as rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    work: usize,
    wait: usize,
}

/// A phase of a layer.
type HandOff = (Phase, Option<u16>);

/// Returns an arrow for each wait on an exchange whose producer is known. If there are more than
/// [`MAX_FLOWS`], each hand-off (one phase of one layer) keeps an equal share: its longest waits.
/// Arrows are ordered by the wait's row.
fn flows(trace: &Trace) -> Vec<Flow> {
    let spans: Vec<Span> = trace.spans().iter().collect();
    let work = work_by_producer(&spans);
    let mut hand_offs: BTreeMap<HandOff, Vec<Flow>> = BTreeMap::new();
    for (wait, span) in spans.iter().enumerate() {
        let rows = producer(span).and_then(|producer| work.get(&producer));
        if let Some(work) = rows.and_then(|rows| last_before(&spans, rows, span.end_ns)) {
            hand_offs.entry((span.phase, span.layer)).or_default().push(Flow { work, wait });
        }
    }
    let mut flows = longest(&spans, hand_offs);
    flows.sort_by_key(|flow| flow.wait);
    flows
}

/// A block, and the hand-off to which it contributes.
type Producer = (u16, HandOff);

/// The producer that a span names, if it is a wait on an exchange that names one.
fn producer(span: &Span) -> Option<Producer> {
    let block = span.waits_on.filter(|_| span.kind == EventKind::WaitExchange)?;
    Some((block, (span.phase, span.layer)))
}

/// The work that publishes: the epilogue's, where there is one, else the consumers'.
fn work_by_producer(spans: &[Span]) -> BTreeMap<Producer, Vec<usize>> {
    let mut work = work_of(spans, Role::Consumer);
    work.append(&mut work_of(spans, Role::Epilogue));
    work
}

fn work_of(spans: &[Span], role: Role) -> BTreeMap<Producer, Vec<usize>> {
    let mut work: BTreeMap<Producer, Vec<usize>> = BTreeMap::new();
    for (row, span) in spans.iter().enumerate() {
        if span.kind == EventKind::Work && span.role == role {
            work.entry((span.block, (span.phase, span.layer))).or_default().push(row);
        }
    }
    work
}

/// Returns the last work that ended before the wait ended. An arrow must not lead back in time,
/// since a viewer drops an arrow whose head comes before its tail.
fn last_before(spans: &[Span], rows: &[usize], end_ns: u64) -> Option<usize> {
    let before = rows.partition_point(|&row| spans[row].end_ns < end_ns);
    before.checked_sub(1).map(|last| rows[last])
}

fn longest(spans: &[Span], hand_offs: BTreeMap<HandOff, Vec<Flow>>) -> Vec<Flow> {
    let all: usize = hand_offs.values().map(Vec::len).sum();
    if all <= MAX_FLOWS {
        return hand_offs.into_values().flatten().collect();
    }
    let share = (MAX_FLOWS / hand_offs.len()).max(1);
    let mut kept = Vec::new();
    for mut flows in hand_offs.into_values() {
        flows.sort_by_key(|flow| (std::cmp::Reverse(spans[flow.wait].duration_ns()), flow.wait));
        flows.truncate(share);
        kept.append(&mut flows);
    }
    kept
}
