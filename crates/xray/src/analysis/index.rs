//! Lookup tables over a trace.

use crate::{Span, Trace};
use monolith_abi::{EventKind, Phase, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One phase of one layer: the unit of a hand-off.
pub(super) type Part = (Option<u16>, Phase);

/// The trace's rows by block and by part.
pub(super) struct Index {
    /// Rows of each block's consumer spans.
    consumer_rows: Vec<Range<usize>>,
    /// Rows of each block's epilogue spans.
    epilogue_rows: Vec<Range<usize>>,
    /// Begins and ends of each block's work spans of a part, in order: those of the role that
    /// publishes it.
    work_ends: BTreeMap<(u16, Part), Work>,
    /// When the last weights of a part had arrived in a block.
    arrivals: BTreeMap<(u16, Part), u64>,
    /// Publications of each part that some block waits for.
    publications: BTreeMap<Part, Vec<Publication>>,
}

/// A block's work on a part.
struct Work {
    /// The epilogue's, where there is one; else the consumers'.
    role: Role,
    /// Begins and ends.
    spans: Vec<(u64, u64)>,
}

/// A block's part of a hand-off, published when the block's last work of the part ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publication {
    pub block: u16,
    pub at_ns: u64,
}

impl Index {
    pub fn of(trace: &Trace) -> Index {
        let mut index = Index {
            consumer_rows: vec![0..0; usize::from(trace.meta().blocks)],
            epilogue_rows: vec![0..0; usize::from(trace.meta().blocks)],
            work_ends: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            publications: BTreeMap::new(),
        };
        let mut awaited = BTreeSet::new();
        for (row, span) in trace.spans().iter().enumerate() {
            if span.role != Role::Loader {
                index.add(row, &span);
                if span.kind == EventKind::WaitExchange {
                    awaited.insert(part(&span));
                }
            }
        }
        for stream in trace.streams().iter() {
            let key = (stream.block, (stream.layer, stream.phase));
            let last = index.arrivals.entry(key).or_default();
            *last = stream.end_ns.max(*last);
        }
        index.collect_publications(&awaited);
        index
    }

    fn add(&mut self, row: usize, span: &Span) {
        let is_epilogue = span.role == Role::Epilogue;
        let all = if is_epilogue { &mut self.epilogue_rows } else { &mut self.consumer_rows };
        let rows = &mut all[usize::from(span.block)];
        *rows = if rows.end == 0 { row..row + 1 } else { rows.start..row + 1 };
        if span.kind != EventKind::Work {
            return;
        }
        let nothing = || Work { role: span.role, spans: Vec::new() };
        let work = self.work_ends.entry((span.block, part(span))).or_insert_with(nothing);
        // A block's consumers come first.
        if work.role != span.role {
            *work = nothing();
        }
        work.spans.push((span.begin_ns, span.end_ns));
    }

    fn collect_publications(&mut self, awaited: &BTreeSet<Part>) {
        for (&(block, part), work) in &self.work_ends {
            if let (true, Some(&(_, at_ns))) = (awaited.contains(&part), work.spans.last()) {
                self.publications.entry(part).or_default().push(Publication { block, at_ns });
            }
        }
        for publications in self.publications.values_mut() {
            publications.sort_by_key(|publication| publication.at_ns);
        }
    }

    /// Rows of a block's spans of a role that computes.
    pub fn rows(&self, block: u16, role: Role) -> Range<usize> {
        let is_epilogue = role == Role::Epilogue;
        let all = if is_epilogue { &self.epilogue_rows } else { &self.consumer_rows };
        all[usize::from(block)].clone()
    }

    /// When a producer had published its part, as seen by a wait that ended at `until_ns`, and the
    /// role that did: the end of its last work that began before then and ended no later than
    /// `slack_ns` after.
    pub fn published_ns(
        &self,
        block: u16,
        part: Part,
        until_ns: u64,
        slack_ns: u64,
    ) -> Option<(u64, Role)> {
        let work = self.work_ends.get(&(block, part))?;
        let ends = &work.spans;
        // A block does one thing at a time: begins and ends are both in order.
        let begun = ends.partition_point(|&(begin, _)| begin < until_ns);
        let ended = ends.partition_point(|&(_, end)| end <= until_ns + slack_ns);
        let last = begun.min(ended).checked_sub(1)?;
        Some((ends[last].1.min(until_ns), work.role))
    }

    /// When the last weights of a part had arrived in a block.
    pub fn arrival(&self, block: u16, part: Part) -> Option<u64> {
        self.arrivals.get(&(block, part)).copied()
    }

    /// How long a barrier wait, cut off at `until_ns`, was for weights: from its start until they
    /// had arrived.
    pub fn weights_ns(&self, span: &Span, until_ns: u64) -> u64 {
        let arrival = self.arrival(span.block, part(span)).unwrap_or(0);
        arrival.min(until_ns).saturating_sub(span.begin_ns)
    }

    /// The hand-offs, each with its publications in order of time.
    pub fn handoffs(&self) -> impl Iterator<Item = (Part, &[Publication])> {
        self.publications.iter().map(|(&part, publications)| (part, &publications[..]))
    }

    /// When half of a hand-off's producers had published.
    pub fn median_published_ns(&self, part: Part) -> Option<u64> {
        self.publications.get(&part).map(|publications| median_published_ns(publications))
    }
}

/// The part that a span works on or waits for.
pub(super) fn part(span: &Span) -> Part {
    (span.layer, span.phase)
}

/// The median time of publications in order of time. Of an even number, the earlier of the middle
/// two counts.
pub(super) fn median_published_ns(publications: &[Publication]) -> u64 {
    let middle = publications.len().saturating_sub(1) / 2;
    publications.get(middle).map_or(0, |publication| publication.at_ns)
}
