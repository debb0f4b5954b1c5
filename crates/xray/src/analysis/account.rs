//! Accounts for every nanosecond of every block: work, a named wait, or unrecorded.

use super::Index;
use crate::{Span, Trace, names};
use monolith_abi::{EventKind, Phase, Role};
use serde::Serialize;
use std::collections::BTreeMap;

/// Time of one phase: the consumers', unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseTime {
    /// The phase.
    #[serde(serialize_with = "names::phase")]
    pub phase: Phase,
    /// Work in it, all blocks together.
    pub work_ns: u64,
    /// Mean work over all blocks, including those without work in this phase.
    pub work_mean_ns: f64,
    /// Work in it of the block that had the most.
    pub work_max_ns: u64,
    /// The block that had the most.
    pub work_max_block: u16,
    /// Waits for its output, all blocks together.
    pub wait_exchange_ns: u64,
    /// Waits for its weights at the ring, all blocks together.
    pub wait_ring_ns: u64,
    /// Waits at barriers in it, all blocks together.
    pub wait_barrier_ns: u64,
    /// Work of the epilogues in it, all blocks together.
    pub epilogue_ns: u64,
    /// Wall time: first begin of work to last end (the epilogues' included), summed over the
    /// layers.
    pub window_ns: u64,
    /// Bytes it reads, if the trace says.
    pub bytes: Option<u64>,
    /// Bytes divided by the window, in 10^9 bytes per second.
    pub gb_per_s: Option<f64>,
}

/// Waits of one kind for one phase, whichever block was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitKindTime {
    /// What was waited for.
    #[serde(serialize_with = "names::kind")]
    pub kind: EventKind,
    /// The phase waited for.
    #[serde(serialize_with = "names::phase")]
    pub phase: Phase,
    /// Number of waits.
    pub waits: u64,
    /// Their time, all blocks together.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Waits of one kind for one phase and one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitTime {
    /// What was waited for.
    #[serde(serialize_with = "names::kind")]
    pub kind: EventKind,
    /// The phase waited for.
    #[serde(serialize_with = "names::phase")]
    pub phase: Phase,
    /// The block whose value arrived last; none if no value was seen to arrive.
    pub producer: Option<u16>,
    /// Number of waits.
    pub waits: u64,
    /// Their time, all blocks together.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Where the time of one block's consumers went: the fields add up to the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockTime {
    /// Work.
    pub work_ns: u64,
    /// Waits on exchanges.
    pub exchange_ns: u64,
    /// Waits on the ring for weights.
    pub ring_ns: u64,
    /// The part of barrier waits before the last weights of the phase had arrived.
    pub barrier_weights_ns: u64,
    /// The rest of barrier waits: waits for the block's own warps.
    pub barrier_skew_ns: u64,
    /// Time that no span covers.
    pub unrecorded_ns: u64,
}

impl BlockTime {
    /// All barrier waits.
    pub fn barrier_ns(&self) -> u64 {
        self.barrier_weights_ns + self.barrier_skew_ns
    }

    /// All waits.
    pub fn wait_ns(&self) -> u64 {
        self.exchange_ns + self.ring_ns + self.barrier_ns()
    }

    /// Waits and unrecorded.
    pub fn idle_ns(&self) -> u64 {
        self.wait_ns() + self.unrecorded_ns
    }
}

/// Where the loaders' time went: the fields add up to loaders x token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoaderTime {
    /// Blocks with a loader.
    pub loaders: u64,
    /// Issuing copies.
    pub work_ns: u64,
    /// Waits for a free stage of the ring.
    pub ring_empty_ns: u64,
    /// Waits for its own copies, of which only so many may be in flight.
    pub copies_ns: u64,
    /// Other waits.
    pub other_wait_ns: u64,
    /// Time that no span covers.
    pub unrecorded_ns: u64,
}

fn consumers(trace: &Trace) -> impl Iterator<Item = Span> {
    trace.spans().iter().filter(|span| span.role == Role::Consumer)
}

fn epilogues(trace: &Trace) -> impl Iterator<Item = Span> {
    trace.spans().iter().filter(|span| span.role == Role::Epilogue)
}

/// Each block's consumers' time.
pub(super) fn block_times(trace: &Trace, index: &Index) -> Vec<BlockTime> {
    let meta = trace.meta();
    let nothing = BlockTime { unrecorded_ns: meta.token_ns, ..BlockTime::default() };
    let mut blocks = vec![nothing; usize::from(meta.blocks)];
    for span in consumers(trace) {
        let (time, length) = (&mut blocks[usize::from(span.block)], span.duration_ns());
        match span.kind {
            EventKind::Work => time.work_ns += length,
            EventKind::WaitExchange => time.exchange_ns += length,
            EventKind::WaitRingFull => time.ring_ns += length,
            EventKind::WaitBarrier => {
                let weights = index.weights_ns(&span, span.end_ns);
                time.barrier_weights_ns += weights;
                time.barrier_skew_ns += length - weights;
            }
            // Never of consumers: a trace has no such spans.
            EventKind::WaitRingEmpty | EventKind::WaitCopies | EventKind::Unrecorded => continue,
        }
        time.unrecorded_ns -= length;
    }
    blocks
}

/// The loaders' time, if there are any.
pub(super) fn loader_time(trace: &Trace) -> Option<LoaderTime> {
    let mut time = LoaderTime::default();
    let mut before = None;
    let mut recorded = 0;
    for span in trace.spans().iter().filter(|span| span.role == Role::Loader) {
        time.loaders += u64::from(before != Some(span.block));
        before = Some(span.block);
        recorded += span.duration_ns();
        match span.kind {
            EventKind::Work => time.work_ns += span.duration_ns(),
            EventKind::WaitRingEmpty => time.ring_empty_ns += span.duration_ns(),
            EventKind::WaitCopies => time.copies_ns += span.duration_ns(),
            _ => time.other_wait_ns += span.duration_ns(),
        }
    }
    time.unrecorded_ns = time.loaders * trace.meta().token_ns - recorded;
    (time.loaders > 0).then_some(time)
}

/// Waits by kind and phase, the costliest first.
pub(super) fn wait_kinds(waits: &[WaitTime]) -> Vec<WaitKindTime> {
    let mut kinds: BTreeMap<(EventKind, Phase), WaitKindTime> = BTreeMap::new();
    for &WaitTime { kind, phase, waits, total_ns, longest_ns, .. } in waits {
        let one = WaitKindTime { kind, phase, waits, total_ns, longest_ns };
        let add = |sum: &mut WaitKindTime| {
            sum.waits += waits;
            sum.total_ns += total_ns;
            sum.longest_ns = sum.longest_ns.max(longest_ns);
        };
        kinds.entry((kind, phase)).and_modify(add).or_insert(one);
    }
    let mut kinds: Vec<WaitKindTime> = kinds.into_values().collect();
    kinds.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
    kinds
}

/// The consumers' waits, the costliest first.
pub(super) fn wait_times(trace: &Trace) -> Vec<WaitTime> {
    let mut waits: BTreeMap<(EventKind, Phase, Option<u16>), WaitTime> = BTreeMap::new();
    for span in consumers(trace).filter(|span| span.kind.is_wait()) {
        let Span { kind, phase, waits_on: producer, .. } = span;
        let none = WaitTime { kind, phase, producer, waits: 0, total_ns: 0, longest_ns: 0 };
        let wait = waits.entry((kind, phase, producer)).or_insert(none);
        wait.waits += 1;
        wait.total_ns += span.duration_ns();
        wait.longest_ns = wait.longest_ns.max(span.duration_ns());
    }
    let mut waits: Vec<WaitTime> = waits.into_values().collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
    waits
}

/// The phases that consumers' spans name, in order of use.
pub(super) fn phase_times(trace: &Trace) -> Vec<PhaseTime> {
    let phases = Phase::ALL.iter().filter_map(|&phase| phase_time(trace, phase));
    phases.collect()
}

fn phase_time(trace: &Trace, phase: Phase) -> Option<PhaseTime> {
    let meta = trace.meta();
    let mut work = vec![0; usize::from(meta.blocks)];
    let mut windows: BTreeMap<Option<u16>, (u64, u64)> = BTreeMap::new();
    let (mut named, mut epilogue, mut exchange, mut ring, mut barrier) = (false, 0, 0, 0, 0);
    let mut in_window = |span: &Span| {
        let window = windows.entry(span.layer).or_insert((span.begin_ns, span.end_ns));
        *window = (window.0.min(span.begin_ns), window.1.max(span.end_ns));
    };
    for span in epilogues(trace).filter(|span| span.phase == phase && span.kind == EventKind::Work)
    {
        named = true;
        epilogue += span.duration_ns();
        in_window(&span);
    }
    for span in consumers(trace).filter(|span| span.phase == phase) {
        named = true;
        let length = span.duration_ns();
        match span.kind {
            EventKind::Work => {
                work[usize::from(span.block)] += length;
                in_window(&span);
            }
            EventKind::WaitExchange => exchange += length,
            EventKind::WaitRingFull => ring += length,
            _ => barrier += length,
        }
    }
    let window_ns = windows.values().map(|&(first, last)| last - first).sum();
    let work_ns: u64 = work.iter().sum();
    let most = work.iter().zip(0_u16..).max_by_key(|&(ns, block)| (ns, std::cmp::Reverse(block)));
    let (work_max_ns, work_max_block) = most.map_or((0, 0), |(&ns, block)| (ns, block));
    let bytes = meta.phase_bytes.iter().find(|row| row.phase == phase).map(|row| row.bytes);
    named.then_some(PhaseTime {
        phase,
        work_ns,
        work_mean_ns: work_ns as f64 / f64::from(meta.blocks),
        work_max_ns,
        work_max_block,
        wait_exchange_ns: exchange,
        wait_ring_ns: ring,
        wait_barrier_ns: barrier,
        epilogue_ns: epilogue,
        window_ns,
        bytes,
        gb_per_s: bytes.filter(|_| window_ns > 0).map(|bytes| bytes as f64 / window_ns as f64),
    })
}
