//! The dump: an engine's raw record of one step, before alignment and analysis.
//!
//! Stamps record a block's time: each says what the block does from its clock reading on, until the
//! next stamp of the same role. There are no gaps between spans; time of which nothing is known is
//! a span of its own ([`EventKind::Unrecorded`]).

use crate::{EventKind, Phase};

/// Stands for "no layer" in a layer's place.
pub const NO_LAYER: u16 = u16::MAX;
/// Stands for "nobody" in a block's place.
pub const NO_BLOCK: u16 = u16::MAX;
/// Stands for "no SM" in an SM's place.
pub const NO_SM: u16 = u16::MAX;
/// Version of the dump's layout.
pub const DUMP_VERSION: u32 = 3;

/// From `clock` on, and until the next stamp of the role, the block does this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Ticks of the block's own clock ([`Dump::clock_hz`]).
    pub clock: u64,
    /// What the time is spent on; [`EventKind::Unrecorded`] after the role's last span.
    pub kind: EventKind,
    /// For work: the phase. For a wait on an exchange: the phase whose output is waited for. For
    /// a wait on the ring: the phase whose weights it is about.
    pub phase: Phase,
    /// The layer of that phase, or [`NO_LAYER`].
    pub layer: u16,
    /// For a wait on an exchange: the block whose value was seen last, or [`NO_BLOCK`] if no value
    /// was seen to arrive (all were there at the first look, or arrived within the recording's
    /// delay). For everything else [`NO_BLOCK`].
    pub producer: u16,
}

/// One bulk copy of weights, from being issued to having arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Ticks of the block's own clock when the copy was issued.
    pub issue_clock: u64,
    /// And when the last of its bytes was seen to be there.
    pub arrival_clock: u64,
    /// Size.
    pub bytes: u32,
    /// The phase whose weights they are.
    pub phase: Phase,
    /// The layer of that phase, or [`NO_LAYER`].
    pub layer: u16,
}

/// The same moment on the block's own clock and on the one that all blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Ticks of the block's own clock.
    pub clock: u64,
    /// The shared clock, in nanoseconds, with a resolution of [`Dump::global_step_ns`].
    pub global_ns: u64,
}

/// The record of one block, in the order of its clock (copies in the order of their issue).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDump {
    /// The SM it ran on, or [`NO_SM`].
    pub sm: u16,
    /// The consumers' stamps, by the one warp or thread that records for the block. On a GPU a wait
    /// on an exchange lasts until all consumer warps have what they gather, and work on a matvec
    /// until the epilogue has all warps' sums.
    pub consumer: Vec<Stamp>,
    /// The loader's stamps; empty where no role of its own streams the weights.
    pub loader: Vec<Stamp>,
    /// The epilogue's stamps; empty where the consumers themselves publish.
    pub epilogue: Vec<Stamp>,
    /// The weight stream's copies; empty where the loader's stamps are.
    pub copies: Vec<Copied>,
    /// At least two.
    pub anchors: Vec<Anchor>,
    /// Stamps, copies and anchors that did not fit in the engine's buffers.
    pub lost: u64,
}

/// Time of a token in a decode loop, launch to launch, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// In the build that records nothing.
    pub headline_ns: f64,
    /// In the build that recorded this dump, every step recording.
    pub instrumented_ns: f64,
}

/// The record of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// Engine name, `cpu` or `cuda`.
    pub engine: String,
    /// Row of the variant table whose time it shows, for example `bf16-flag`.
    pub variant: String,
    /// What the step ran on, in the machine's own words.
    pub device: String,
    /// Model whose step it is.
    pub model: String,
    /// What names the kernels (a hash), empty where there are none.
    pub build: String,
    /// Number of layers in the model.
    pub layers: u16,
    /// Position of the recorded step (tokens already cached).
    pub position: u32,
    /// Nominal ticks a second of the blocks' own clocks; alignment measures each.
    pub clock_hz: u64,
    /// Resolution of the shared clock: 64 ns on an H200.
    pub global_step_ns: u64,
    /// Bytes that each phase reads in this step, all layers together: weights, and for attention
    /// the KV cache. Phases that read none are left out.
    pub phase_bytes: Vec<(Phase, u64)>,
    /// How fast the loop around the step ran, if that was measured.
    pub pace: Option<Pace>,
    /// By block.
    pub blocks: Vec<BlockDump>,
}
