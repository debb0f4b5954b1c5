//! Analyzes a trace: where each block's time went, which block each wait was for, and the critical
//! path of work and hand-offs through the token.

mod account;
mod index;
mod lateness;
mod path;
mod stream;
mod summary;

use crate::{Meta, Pace, Trace};
use index::Index;
use serde::Serialize;

pub use account::{BlockTime, LoaderTime, PhaseTime, WaitKindTime, WaitTime};
pub use lateness::{Lateness, LatenessOfBlock};
pub use path::{CriticalPath, PathClass, PathPhase, PathSegment, PathTotals};
pub use stream::WeightStream;
pub use summary::{HandoffShare, Spread};

/// The analysis of one token. For each block's consumers, exactly:
/// `work + waits + unrecorded == token`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The step: model, variant, device, position.
    pub step: String,
    /// Speed of the decode loop around the step and the cost of recording, if they were measured.
    pub pace: Option<Pace>,
    /// Whether the step ran on a GPU.
    pub is_gpu: bool,
    /// The word for a block: "thread" on the CPU, "block" on a GPU.
    pub unit: &'static str,
    /// Time from the first begin to the last end.
    pub token_ns: u64,
    /// Error bound: no time differs by more than this from the shared clock's.
    pub clock_error_ns: u64,
    /// The SM of each block; empty if the SMs are not known.
    pub sms: Vec<u16>,
    /// The phases that the trace names, in order of use.
    pub phases: Vec<PhaseTime>,
    /// The consumers' waits by kind and phase, the costliest first.
    pub wait_kinds: Vec<WaitKindTime>,
    /// The consumers' waits by kind, phase and producer, the costliest first.
    pub waits: Vec<WaitTime>,
    /// Where each block's consumers' time went.
    pub blocks: Vec<BlockTime>,
    /// Where the loaders' time went, if there are any.
    pub loader: Option<LoaderTime>,
    /// Time without work (waits and unrecorded), over the blocks.
    pub idle: Spread,
    /// Barrier waits, over the blocks.
    pub barrier: Spread,
    /// Part of the layers' time spent on hand-offs, if the trace has layers.
    pub handoff: Option<HandoffShare>,
    /// How late the blocks published their parts of each hand-off.
    pub lateness: Lateness,
    /// The weight stream, if there is one.
    pub stream: Option<WeightStream>,
    /// The chain that makes up the token's time.
    pub path: CriticalPath,
    /// Number of records that did not fit in the engine's buffers: their time is unrecorded.
    pub overflow: u64,
    /// Whether the trace has no loader spans and no single copies, as one from the page's file.
    pub reduced: bool,
}

impl Analysis {
    /// The critical path alone.
    pub fn path_of(trace: &Trace) -> CriticalPath {
        path::critical_path(trace, &Index::of(trace))
    }

    /// Analyzes a trace.
    pub fn of(trace: &Trace) -> Analysis {
        let meta = trace.meta();
        let index = Index::of(trace);
        let blocks = account::block_times(trace, &index);
        let waits = account::wait_times(trace);
        let path = path::critical_path(trace, &index);
        let Meta { model, variant, device, position, .. } = meta;
        Analysis {
            step: format!("{model}, {variant} on {device}, position {position}"),
            pace: meta.pace,
            is_gpu: meta.engine == "cuda",
            unit: meta.unit(),
            token_ns: meta.token_ns,
            clock_error_ns: meta.clock_error_ns,
            sms: meta.sms.clone(),
            phases: account::phase_times(trace),
            wait_kinds: account::wait_kinds(&waits),
            waits,
            loader: account::loader_time(trace),
            idle: Spread::of(blocks.iter().map(BlockTime::idle_ns)),
            barrier: Spread::of(blocks.iter().map(BlockTime::barrier_ns)),
            handoff: summary::handoff_share(trace, &path),
            lateness: lateness::lateness(trace, &index),
            stream: stream::weight_stream(trace),
            path,
            blocks,
            overflow: meta.overflow,
            reduced: trace.is_reduced(),
        }
    }

    /// Work of all blocks' consumers together.
    pub fn work_ns(&self) -> u64 {
        self.blocks.iter().map(|block| block.work_ns).sum()
    }

    /// Waits of all blocks' consumers together.
    pub fn wait_ns(&self) -> u64 {
        self.blocks.iter().map(BlockTime::wait_ns).sum()
    }

    /// Unrecorded time of all blocks' consumers.
    pub fn unrecorded_ns(&self) -> u64 {
        self.blocks.iter().map(|block| block.unrecorded_ns).sum()
    }

    /// The total time: blocks x token.
    pub fn available_ns(&self) -> u64 {
        self.token_ns * self.blocks.len() as u64
    }
}
