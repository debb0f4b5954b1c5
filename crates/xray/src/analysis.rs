//! Adds a trace up: where the blocks' time went, and whom they waited for.

use crate::{Span, Trace};
use monolith_abi::Phase;
use std::collections::BTreeMap;

/// Time of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// The phase.
    pub phase: Phase,
    /// Work in it, all blocks together.
    pub work_ns: u64,
    /// Work in it of the block that had most.
    pub work_max_ns: u64,
    /// Waits for its output, all blocks together.
    pub wait_ns: u64,
    /// Waits for its output of the block that waited longest.
    pub wait_max_ns: u64,
}

/// Waits for one phase's output from one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTime {
    /// The phase waited for.
    pub phase: Phase,
    /// The block whose value arrived last, if it is known.
    pub producer: Option<u16>,
    /// Number of waits.
    pub waits: u64,
    /// Their time, all blocks together.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// One token, added up. `work + waits + unrecorded == blocks x token`, exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// What a block is called: a thread on the CPU, a block on a GPU.
    pub unit: &'static str,
    /// First begin to last end.
    pub token_ns: u64,
    /// The phases that the trace names, in order of use.
    pub phases: Vec<PhaseTime>,
    /// Waits by phase and producer, the costliest first.
    pub waits: Vec<WaitTime>,
    /// For each block, the part of the token that no span covers.
    pub unrecorded_ns: Vec<u64>,
    /// Records that did not fit: their time is in `unrecorded_ns`.
    pub overflow: u64,
}

impl Analysis {
    /// Adds up a trace.
    pub fn of(trace: &Trace) -> Analysis {
        let meta = trace.meta();
        let mut unrecorded_ns = vec![meta.token_ns; usize::from(meta.blocks)];
        let mut blocks: BTreeMap<(Phase, u16), BlockTime> = BTreeMap::new();
        let mut waits: BTreeMap<(Phase, Option<u16>), WaitTime> = BTreeMap::new();
        for span in trace.spans().iter() {
            unrecorded_ns[usize::from(span.block)] -= span.duration_ns();
            let time = blocks.entry((span.phase, span.block)).or_default();
            if span.kind.is_wait() {
                time.wait_ns += span.duration_ns();
                add_wait(&mut waits, &span);
            } else {
                time.work_ns += span.duration_ns();
            }
        }
        let mut waits: Vec<WaitTime> = waits.into_values().collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
        Analysis {
            unit: if meta.engine == "cpu" { "thread" } else { "block" },
            token_ns: meta.token_ns,
            phases: phase_times(&blocks),
            waits,
            unrecorded_ns,
            overflow: meta.overflow,
        }
    }

    /// Work of all blocks together.
    pub fn work_ns(&self) -> u64 {
        self.phases.iter().map(|phase| phase.work_ns).sum()
    }

    /// Waits of all blocks together.
    pub fn wait_ns(&self) -> u64 {
        self.phases.iter().map(|phase| phase.wait_ns).sum()
    }

    /// The time there was to spend: blocks x token.
    pub fn available_ns(&self) -> u64 {
        self.token_ns * self.unrecorded_ns.len() as u64
    }
}

/// One block's time in one phase.
#[derive(Default)]
struct BlockTime {
    work_ns: u64,
    wait_ns: u64,
}

fn add_wait(waits: &mut BTreeMap<(Phase, Option<u16>), WaitTime>, span: &Span) {
    let Span { phase, waits_on: producer, .. } = *span;
    let wait = waits.entry((phase, producer)).or_insert(WaitTime {
        phase,
        producer,
        waits: 0,
        total_ns: 0,
        longest_ns: 0,
    });
    wait.waits += 1;
    wait.total_ns += span.duration_ns();
    wait.longest_ns = wait.longest_ns.max(span.duration_ns());
}

fn phase_times(blocks: &BTreeMap<(Phase, u16), BlockTime>) -> Vec<PhaseTime> {
    let mut phases: Vec<PhaseTime> = Vec::new();
    for (&(phase, _), time) in blocks {
        if phases.last().is_none_or(|last| last.phase != phase) {
            let (work_ns, wait_ns) = (0, 0);
            phases.push(PhaseTime { phase, work_ns, work_max_ns: 0, wait_ns, wait_max_ns: 0 });
        }
        if let Some(total) = phases.last_mut() {
            total.work_ns += time.work_ns;
            total.work_max_ns = total.work_max_ns.max(time.work_ns);
            total.wait_ns += time.wait_ns;
            total.wait_max_ns = total.wait_max_ns.max(time.wait_ns);
        }
    }
    phases
}
