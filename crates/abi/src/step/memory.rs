//! A block's shared memory. The CUDA struct is generated from this list, and the host computes its
//! size from it, so that a ring has as many stages as the memory allows.

use super::{Step, Width};

/// A field of a block's shared memory: an array.
#[derive(Clone, Copy, Debug)]
pub struct SharedField {
    /// Its comment.
    pub doc: &'static str,
    /// Name.
    pub name: &'static str,
    /// Type of an element.
    pub element: Element,
    /// Lengths, outermost first.
    pub extents: &'static [Width],
    /// Alignment in bytes; 0: the element's.
    pub align: usize,
}

/// The type of an element of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its name in CUDA.
    pub name: &'static str,
    /// Its size in bytes, and its alignment.
    pub bytes: usize,
}

const U8: Element = Element { name: "u8", bytes: 1 };
const U32: Element = Element { name: "u32", bytes: 4 };
const U64: Element = Element { name: "u64", bytes: 8 };
const INT2: Element = Element { name: "int2", bytes: 8 };
const FLOAT2: Element = Element { name: "float2", bytes: 8 };
const FLOAT: Element = Element { name: "float", bytes: 4 };

const fn field(
    name: &'static str,
    element: Element,
    extents: &'static [Width],
    doc: &'static str,
) -> SharedField {
    SharedField { doc, name, element, extents, align: 0 }
}

const fn aligned(align: usize, field: SharedField) -> SharedField {
    SharedField { align, ..field }
}

/// The fields, in order.
#[rustfmt::skip]
pub const SHARED: &[SharedField] = &[
    aligned(128, field("ring", U8, &[tuning!(stages), tuning!(stage_bytes)],
        "Stages of packed weights; written by bulk copies alone.")),
    aligned(16, field("x", U32, &[tuning!(consumer_warps), size!(activation_words)],
        "Each warp's own columns of the activation, in parts (mma/activation.cuh).")),
    aligned(16, field("partial", FLOAT, &[number!(2), size!(round_rows), size!(partial_stride)],
        "Sums of each warp over its columns, for a round's rows; two rounds in turn.")),
    aligned(16, field("squares", FLOAT, &[number!(2), tuning!(consumer_warps)],
        "Norm: each warp's sum of squares, with the partial sums of a phase's first round.")),
    aligned(16, field("residual", FLOAT, &[tuning!(consumer_warps), size!(residual_floats)],
        "Each warp's columns of the residual stream: every block has all of it.")),
    aligned(16, field("zeros", U8, &[number!(1024)],
        "A run of weights that are zero.")),
    aligned(16, field("angles", FLOAT2, &[size!(head_pairs)],
        "Attention: cosine and sine of the position's angles.")),
    aligned(16, field("scores", FLOAT,
        &[size!(group_heads), size!(kv_batch), size!(quarters)],
        "Attention: scores of a batch's positions, in parts over the dimensions.")),
    aligned(16, field("newest_scores", FLOAT, &[size!(group_heads)],
        "Attention: the newest position's scores.")),
    aligned(16, field("newest_value", U32, &[size!(head_pairs)],
        "Attention: its value, in bf16.")),
    aligned(16, field("query_squares", FLOAT, &[size!(group_heads), size!(quarters)],
        "Attention: sums of squares of the queries, in parts over the dimensions.")),
    aligned(16, field("outputs", U32, &[size!(slices), size!(activation_words)],
        "Attention: the O projection's activation, a slice of its columns each.")),
    aligned(16, field("merged", FLOAT, &[size!(item_tiles), size!(group_dim)],
        "Attention: sums over the ranks' results.")),
    aligned(16, field("merged_largest", FLOAT, &[size!(group_heads), size!(item_tiles)],
        "Attention: the largest score of some ranks.")),
    aligned(16, field("merged_weights", FLOAT, &[size!(group_heads), size!(item_tiles)],
        "Attention: the sum of weights of some ranks.")),
    field("shares", INT2, &[number!(5)],
        "Which pieces of each matvec are this block's: the first and the end."),
    field("full", U64, &[tuning!(stages)],
        "The ring's barriers: a stage's weights have arrived."),
    field("empty", U64, &[tuning!(stages)],
        "The ring's barriers: a stage is released."),
    field("read", U64, &[number!(2)],
        "The epilogue has read a buffer of partial sums."),
    field("failed", U32, &[number!(1)],
        "Not 0: a wait of this block has failed; it publishes nothing more."),
];

impl SharedField {
    fn bytes(&self, step: &Step) -> usize {
        let elements: usize = self.extents.iter().map(|extent| extent.of(step)).product();
        elements * self.element.bytes
    }

    /// Alignment in bytes.
    pub fn align(&self) -> usize {
        self.align.max(self.element.bytes)
    }
}

/// Bytes of a block's shared memory: what `sizeof` gives for the struct in CUDA.
pub fn shared_bytes(step: &Step) -> usize {
    let place =
        |end: usize, field: &SharedField| end.next_multiple_of(field.align()) + field.bytes(step);
    let align = SHARED.iter().map(SharedField::align).max().unwrap_or(1);
    SHARED.iter().fold(0, place).next_multiple_of(align)
}
