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
    posts: BTreeMap<Part, Vec<Post>>,
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
pub(super) struct Post {
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
            posts: BTreeMap::new(),
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
        index.collect_posts(&awaited);
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

    fn collect_posts(&mut self, awaited: &BTreeSet<Part>) {
        for (&(block, part), work) in &self.work_ends {
            if let (true, Some(&(_, at_ns))) = (awaited.contains(&part), work.spans.last()) {
                self.posts.entry(part).or_default().push(Post { block, at_ns });
            }
        }
        for posts in self.posts.values_mut() {
            posts.sort_by_key(|post| post.at_ns);
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
    pub fn posted(
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

    /// The part of a barrier wait, cut at `until_ns`, from its start to the weights' arrival.
    pub fn weights_ns(&self, span: &Span, until_ns: u64) -> u64 {
        let arrival = self.arrival(span.block, part(span)).unwrap_or(0);
        arrival.min(until_ns).saturating_sub(span.begin_ns)
    }

    /// The hand-offs, each with its publications in order of time.
    pub fn handoffs(&self) -> impl Iterator<Item = (Part, &[Post])> {
        self.posts.iter().map(|(&part, posts)| (part, &posts[..]))
    }

    /// When half of a hand-off's producers had published.
    pub fn median_post_ns(&self, part: Part) -> Option<u64> {
        self.posts.get(&part).map(|posts| median_post_ns(posts))
    }
}

/// The part that a span is of, or waits for.
pub(super) fn part(span: &Span) -> Part {
    (span.layer, span.phase)
}

/// The median of publications in order of time; of an even number, the earlier of the middle two.
pub(super) fn median_post_ns(posts: &[Post]) -> u64 {
    posts.get(posts.len().saturating_sub(1) / 2).map_or(0, |post| post.at_ns)
}
