//! The dump: an engine's raw record of one step, before alignment and analysis.
//!
//! A stamp is one clock reading, and what the block does from then until the next stamp of the same
//! role. So spans leave no gaps: time about which nothing is known is a span of its own
//! ([`EventKind::Unrecorded`]).

use crate::{EventKind, Phase};

/// Value of a layer field that means "no layer".
pub const NO_LAYER: u16 = u16::MAX;
/// Value of a block field that means "no block".
pub const NO_BLOCK: u16 = u16::MAX;
/// Value of an SM field that means "no SM", as on a CPU.
pub const NO_SM: u16 = u16::MAX;
/// Version of the dump's layout.
pub const DUMP_VERSION: u32 = 3;

/// What a block does from one clock reading until the next stamp of the same role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The reading of the block's own clock, in ticks ([`Dump::clock_hz`]).
    pub clock: u64,
    /// What the time is spent on; [`EventKind::Unrecorded`] after the role's last span.
    pub kind: EventKind,
    /// For work and for a wait at a barrier: the phase that the block is in. For a wait on an
    /// exchange: the phase whose output is waited for. For a wait on the ring: the phase whose
    /// weights (for the loader: room for whose weights) are waited for.
    pub phase: Phase,
    /// The layer of that phase, or [`NO_LAYER`].
    pub layer: u16,
    /// For a wait on an exchange: the block whose value arrived last, or [`NO_BLOCK`] if no value
    /// was seen to arrive: all were there at the first poll, or arrived before the recorder could
    /// notice the wait. For everything else [`NO_BLOCK`].
    pub producer: u16,
}

/// One bulk copy of weights into shared memory, from issue to arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Ticks of the block's own clock when the copy was issued.
    pub issue_clock: u64,
    /// Ticks of the same clock when the recorder saw that the last byte had arrived.
    pub arrival_clock: u64,
    /// Size in bytes.
    pub bytes: u32,
    /// The phase whose weights they are.
    pub phase: Phase,
    /// The layer of that phase, or [`NO_LAYER`].
    pub layer: u16,
}

/// One moment read on both clocks: the block's own and the one that all blocks share. On a GPU
/// these are `clock64` and `%globaltimer`; on a CPU they are the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Reading of the block's own clock, in ticks.
    pub clock: u64,
    /// Reading of the shared clock, in nanoseconds; its resolution is [`Dump::global_step_ns`].
    pub global_ns: u64,
}

/// The record of one block. Stamps and anchors are in order of time, copies in order of issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDump {
    /// The SM it ran on, or [`NO_SM`].
    pub sm: u16,
    /// The consumers' stamps, by the one warp or thread that records for the block. On a GPU a wait
    /// on an exchange lasts until all consumer warps have what they gather, and work on a matvec
    /// until the epilogue has all warps' sums.
    pub consumer: Vec<Stamp>,
    /// The loader's stamps; empty if the engine has no separate loader (the CPU engine).
    pub loader: Vec<Stamp>,
    /// The epilogue's stamps; empty where the consumers themselves publish.
    pub epilogue: Vec<Stamp>,
    /// The weight stream's copies; empty where the loader's stamps are.
    pub copies: Vec<Copied>,
    /// Anchors that tie the block's clock to the shared one; at least two.
    pub anchors: Vec<Anchor>,
    /// Stamps, copies and anchors that did not fit in the engine's buffers.
    pub lost: u64,
}

/// Time of a token in a decode loop, launch to launch, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// In the headline build, which records nothing.
    pub headline_ns: f64,
    /// In the recording build, with every step recorded.
    pub instrumented_ns: f64,
}

/// The record of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// Engine name, `cpu` or `cuda`.
    pub engine: String,
    /// Row of the variant table, for example `bf16-flag`: that of the headline build whose time the
    /// dump explains.
    pub variant: String,
    /// Device that the step ran on, as its driver or the operating system names it.
    pub device: String,
    /// Name of the model.
    pub model: String,
    /// Hash that identifies the kernels; empty for an engine without kernels.
    pub build: String,
    /// Number of layers in the model.
    pub layers: u16,
    /// Position of the recorded step (tokens already cached).
    pub position: u32,
    /// Nominal frequency of the blocks' own clocks; alignment measures the real one of each.
    pub clock_hz: u64,
    /// Resolution of the shared clock: 32 ns on an H200 (the greatest common divisor of its
    /// readings).
    pub global_step_ns: u64,
    /// Bytes that each phase reads in this step, all layers together: weights, and for attention
    /// the KV cache. Phases that read nothing are left out.
    pub phase_bytes: Vec<(Phase, u64)>,
    /// Time per token of the decode loop around this step, if it was measured.
    pub pace: Option<Pace>,
    /// One record for each block.
    pub blocks: Vec<BlockDump>,
}
