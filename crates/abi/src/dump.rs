//! The dump: the raw records that an engine leaves behind for one step.

use crate::{EventKind, Phase};

/// Stands for "no layer" in [`Record::layer`].
pub const NO_LAYER: u16 = u16::MAX;
/// Stands for "nobody" in [`Record::waits_on`].
pub const NO_BLOCK: u16 = u16::MAX;
/// Version of the record layout.
pub const DUMP_VERSION: u32 = 1;

/// One span of one block: 24 bytes, no padding, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Begin, nanoseconds on the engine's clock.
    pub begin_ns: u64,
    /// End, nanoseconds on the same clock.
    pub end_ns: u64,
    /// Layer, or [`NO_LAYER`].
    pub layer: u16,
    /// The block (GPU thread block, or CPU thread) that recorded the span.
    pub block: u16,
    /// For a wait: the block whose value arrived last, or [`NO_BLOCK`].
    pub waits_on: u16,
    /// For work: the phase. For a wait: the phase whose output was waited for.
    pub phase: Phase,
    /// What the time was spent on.
    pub kind: EventKind,
}

const _: () = assert!(size_of::<Record>() == 24 && align_of::<Record>() == 8);

/// Everything one instrumented step leaves behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// Engine name, `cpu` or `cuda`.
    pub engine: String,
    /// Row of the variant table, for example `bf16-cpu-avx512`.
    pub variant: String,
    /// What the step ran on, in the machine's own words.
    pub device: String,
    /// Number of blocks that took part.
    pub blocks: u16,
    /// Number of layers in the model.
    pub layers: u16,
    /// Position of the recorded step (tokens already cached).
    pub position: u32,
    /// Resolution of the clock: no stamp is truer than this.
    pub clock_error_ns: u64,
    /// Records that did not fit in the buffers.
    pub overflow: u64,
    /// The spans of each block in order of begin; blocks follow one another.
    pub records: Vec<Record>,
}
