//! The X-ray's buffers: what a recording kernel writes, and how a record is coded.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

wire_enum! {
    /// What a note says the consumers of a block do from here on. Thread 0 notes it, so it is of
    /// its warp alone, unless it says otherwise. 0 stands for "no note yet".
    Moment {
        /// Nothing: a place for a note.
        None = 0, "none";
        /// The launch begins.
        Began = 1, "began";
        /// Attention begins with work before its gather. Which: the layer.
        Attends = 2, "attends";
        /// A round of a matvec begins: the warp takes its weights, unless it has to wait for them.
        /// With this the round before it ends, whose sums are the epilogue's from here on. Which:
        /// the matvec's index, four a layer, then the LM head.
        Entered = 3, "entered";
        /// The wait for a matvec's gather begins. Which: the matvec's index.
        Asked = 4, "asked";
        /// The wait for heads begins. Which: the layer.
        AskedHeads = 5, "asked_heads";
        /// The wait for the ranks' partial results begins. Which: the layer.
        AskedPartials = 6, "asked_partials";
        /// The warp has what it gathers. Other warps of the block may still wait: which unit was
        /// the block's last, and when, is in [`Moment::Saw`] or in the round's record.
        Gathered = 7, "gathered";
        /// Nothing that the consumers do: when any thread of the block saw the unit that was waited
        /// for last. Which: 1 + the unit, counted from the first slot, or 0 if there was none. By
        /// the watcher, before every [`Moment::Passed`].
        Saw = 8, "saw";
        /// The warp arrives at a barrier of all consumers.
        Arrived = 9, "arrived";
        /// It leaves that barrier.
        Passed = 10, "passed";
        /// A stall begins: a stage's weights have not arrived yet.
        Starved = 11, "starved";
        /// The stall ends.
        Fed = 12, "fed";
        /// The warp's step is done; the epilogue's is not.
        Ended = 13, "ended";
    }
}

/// Notes of a block's consumers that one step has room for.
pub const XRAY_NOTES: usize = 4096;
/// Rounds of a block's epilogue that one step has room for, and one record more: its argmax.
pub const XRAY_ROUNDS: usize = 2048;
/// Copies that one step has room for: their issue by the loader, their arrival by the observer.
pub const XRAY_COPIES: usize = 2048;
/// Anchors that one step has room for.
pub const XRAY_ANCHORS: usize = 2048;

/// Bits of a [`Moment`] in a note; above them, which.
pub const XRAY_MOMENT_BITS: u32 = 4;
const _: () = assert!(Moment::ALL.len() <= 1 << XRAY_MOMENT_BITS);

/// In the place of a layer in a copy's tag: none.
pub const XRAY_NO_LAYER: u32 = 0xff;

wire_rules! {
    /// A copy's tag: an `EventKind`, a `Phase`, the layer, and the size in units of 16 bytes.
    u32 copy_tag(kind, phase, layer, units) = kind | phase << 4 | layer << 8 | units << 16;
}

wire_struct! {
    /// The header of a block's buffers.
    XrayHeader {
        /// `clock64` when the observer began: what the records' 32 bits count from.
        begin_clock: u64, "u64 @";
        /// The SM when the observer began.
        sm_begin: u32, "u32 @";
        /// The SM when it ended.
        sm_end: u32, "u32 @";
        /// Notes of the consumers; more than fit are counted and lost.
        notes: u32, "u32 @";
        /// Copies of the loader, and one record more: its end.
        copies: u32, "u32 @";
        /// Arrivals.
        arrivals: u32, "u32 @";
        /// Anchors.
        anchors: u32, "u32 @";
        /// The step's epoch, written last: a header with another epoch is not of this step.
        epoch: u32, "u32 @";
        /// Rounds of the epilogue, and one record more: its argmax.
        rounds: u32, "u32 @";
        /// Reserved; makes the size explicit.
        reserved: [u32; 6], "u32 @[6]";
    }
}

wire_struct! {
    /// What the consumers do from a clock on.
    XrayNote {
        /// The low 32 bits of the clock.
        clock: u32, "u32 @";
        /// A [`Moment`], and above its bits which.
        word: u32, "u32 @";
    }
}

wire_struct! {
    /// A round of the epilogue; clocks are the low 32 bits. The last record is the argmax's: it
    /// begins when the block has published the best of its logits.
    XrayRound {
        /// When the last consumer warp had handed over its sums.
        begin: u32, "u32 @";
        /// When the results were published.
        end: u32, "u32 @";
        /// When any thread of the block saw the unit that was waited for last.
        seen: u32, "u32 @";
        /// 1 + that unit, counted from the first slot; 0 if no unit had to be waited for yet.
        unit: u32, "u32 @";
    }
}

wire_struct! {
    /// A copy of the loader. The last record is of no copy.
    XrayCopy {
        /// When it looked for a free stage in vain, or 0.
        looked: u32, "u32 @";
        /// When it issued the copy.
        issued: u32, "u32 @";
        /// A [`copy_tag`]. A size of 0: a stage that was handed over unfilled.
        tag: u32, "u32 @";
        /// When it began to wait for copies of its own, of which only so many may be in flight; 0:
        /// it did not. Before `looked`.
        held: u32, "u32 @";
    }
}

wire_struct! {
    /// One moment on both clocks.
    XrayAnchor {
        /// All 64 bits of the SM's clock.
        clock: u64, "u64 @";
        /// The timer that all SMs share, in nanoseconds.
        global_ns: u64, "u64 @";
    }
}

/// One block's buffers, as they lie in global memory.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct XrayBlock {
    /// How much of each part is filled.
    pub header: XrayHeader,
    /// By the watcher.
    pub notes: [XrayNote; XRAY_NOTES],
    /// By the epilogue warp.
    pub rounds: [XrayRound; XRAY_ROUNDS],
    /// By the loader.
    pub copies: [XrayCopy; XRAY_COPIES],
    /// By the observer: when each copy had arrived, the low 32 bits of the clock.
    pub arrivals: [u32; XRAY_COPIES],
    /// By the observer.
    pub anchors: [XrayAnchor; XRAY_ANCHORS],
}

impl XrayBlock {
    /// Name, CUDA declaration and offset of every field. The kernel stores a record by one
    /// instruction: its types are the vector types of the same size.
    pub const FIELDS: &'static [(&'static str, &'static str, usize)] = &[
        ("header", "XrayHeader @", std::mem::offset_of!(XrayBlock, header)),
        ("notes", "uint2 @[XRAY_NOTES]", std::mem::offset_of!(XrayBlock, notes)),
        ("rounds", "uint4 @[XRAY_ROUNDS]", std::mem::offset_of!(XrayBlock, rounds)),
        ("copies", "uint4 @[XRAY_COPIES]", std::mem::offset_of!(XrayBlock, copies)),
        ("arrivals", "u32 @[XRAY_COPIES]", std::mem::offset_of!(XrayBlock, arrivals)),
        ("anchors", "ulonglong2 @[XRAY_ANCHORS]", std::mem::offset_of!(XrayBlock, anchors)),
    ];
}

const _: () = assert!(size_of::<XrayHeader>() == 64 && size_of::<XrayBlock>().is_multiple_of(32));
