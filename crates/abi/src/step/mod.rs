//! The step, once: its sizes, the phases and what each gathers, multiplies and publishes, who owns
//! what, and a block's shared memory. `cargo xtask generate` writes the same facts into
//! `crates/kernels/cu/step.cuh`; the engines, the kernels' table and the X-ray read them here.

#[macro_use]
mod width;
mod memory;
mod phases;

pub use memory::{Element, SHARED, SharedField, shared_bytes};
pub use phases::{
    Epilogue, HEAD, LAYER_MATVECS, MATVECS, Matvec, OUTPUTS, Output, matvec_at, output_of,
};
pub use width::Width;

use crate::formats::TILE_ROWS;
use crate::kernel::BLOCKS_MAX;

wire_inputs! {
    /// The dimensions of a model that enter into a step.
    Dims {
        /// Width of the residual stream.
        hidden;
        /// Width of the MLP.
        intermediate;
        /// Layers.
        layers;
        /// Query heads.
        heads;
        /// Heads of keys and values.
        kv_heads;
        /// Width of a head.
        head_dim;
        /// Rows of the embedding and of the LM head.
        vocab;
    }
}

wire_inputs! {
    /// What is chosen for a kernel besides the arithmetic: a row's numbers for one architecture.
    Tuning {
        /// Consumer warps; one more warp loads.
        consumer_warps;
        /// Teams of consumer warps. One team multiplies a stage, the next team the next stage:
        /// fewer warps pay a stage's fixed cost (the wait, the release). With all 16 warps at every
        /// bf16 stage, that cost was 250 ns of issue per stage on an H200. FP8 is fastest with one
        /// team (notes/fp8.md).
        teams;
        /// Stages of the ring.
        stages;
        /// Bytes of a stage.
        stage_bytes;
        /// Positions of the KV cache in a chunk; chunks go to the splits round-robin.
        kv_chunk;
        /// Number of splits of a head's KV range (split-KV); 0 if attention is not split.
        kv_splits;
        /// Positions whose keys and values a warp loads before it uses the first.
        kv_ahead;
        /// 1 if spans are recorded, else 0.
        xray;
    }
}

const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

const fn smaller(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

wire_sizes! {
    /// The sizes that follow from a model and a row: widths, threads, slots of the exchange (in
    /// units of 8 bytes), shared memory.
    Sizes of
        dims: Dims { hidden, intermediate, layers, heads, kv_heads, head_dim },
        tuning: Tuning { consumer_warps, teams, kv_splits, xray };
    fixed {
        /// Rows of a tile.
        tile_rows = TILE_ROWS;
        /// The largest number of blocks of a launch.
        blocks_max = BLOCKS_MAX as usize;
        /// Tiles whose products are summed over the warps together: one barrier per batch.
        batch_tiles = 8;
        /// Parts of the activation: hi + mid + lo in bf16 keep 24 bits of the fp32 value.
        parts = 3;
    }
    derived {
        /// Query heads of a KV head.
        group_heads: int = heads / kv_heads;
        /// All query heads.
        q_dim: int = heads * head_dim;
        /// All keys, or all values.
        kv_dim: int = kv_heads * head_dim;
        /// Queries, keys and values.
        qkv_dim: int = q_dim + 2 * kv_dim;
        /// Rows of the gate and up matrices.
        gate_up_dim: int = 2 * intermediate;
        /// The widest activation.
        widest: int = larger(larger(hidden, intermediate), q_dim);
        /// Values of the query heads of a KV head.
        group_dim: int = group_heads * head_dim;
        /// Values of a tile of gate and up: eight rows of gate and the matching eight rows of up.
        gate_rows: int = tile_rows / 2;

        /// Threads that compute.
        consumers: int = 32 * consumer_warps;
        /// The thread that loads; in X-ray builds also those of the observer and the watcher.
        loader: int = consumers;
        /// The observer.
        observer: int = loader + 32;
        /// The watcher.
        watcher: int = observer + 32;
        /// Threads of a block.
        threads: int = observer + 64 * xray;
        /// Warps of a team.
        team_warps: int = consumer_warps / teams;

        /// Where a layer's slots begin, in order of the phases.
        qkv_slot: int = 0;
        /// Attention.
        attention_slot: int = qkv_slot + qkv_dim;
        /// Output projection.
        o_proj_slot: int = attention_slot + q_dim;
        /// SwiGLU.
        gate_up_slot: int = o_proj_slot + hidden;
        /// Down projection.
        down_slot: int = gate_up_slot + intermediate;
        /// From one layer's slots to the next.
        layer_units: int = down_slot + hidden;

        /// For each query head and split: the unnormalized output, the largest score, the sum of
        /// weights.
        partial_units: int = head_dim + 2;
        /// From one layer's partial results to the next.
        layer_partials: int = heads * kv_splits * partial_units;
        /// Where the partial results begin.
        partials_base: u64 = layers * layer_units;
        /// Where the final slots begin.
        final_base: u64 = partials_base + layers * layer_partials;
        /// Units of a final slot: two per block, its largest logit and the logit's row.
        final_units: u64 = 2 * blocks_max;
        /// Units of all slots. The final slot has two copies, used by the parity of the step.
        slot_units: u64 = final_base + 2 * final_units;

        /// Rows of 16-bit words that the activation takes: its parts, and a row of zeros.
        x_rows: int = parts + 1;
        /// Heads that a block of attention gathers: the group's queries, a key and a value.
        attention_rows: int = group_heads + 2;
        /// Rows of a batch of tiles.
        batch_rows: int = batch_tiles * tile_rows;
        /// Stride from one part of the activation to the next: the parts' rows begin eight banks
        /// apart, so that the lanes of a warp, which read 8 bytes each from four rows, have no bank
        /// conflict.
        x_stride: int = widest + 16;
    }
}

/// A model's dimensions, a row's numbers, and the sizes that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Of the model.
    pub dims: Dims,
    /// Of the kernel.
    pub tuning: Tuning,
    /// What follows from both.
    pub sizes: Sizes,
}

impl Step {
    /// The step of a model and a row.
    ///
    /// # Panics
    /// The model has no KV heads, or the row no teams.
    pub const fn of(dims: Dims, tuning: Tuning) -> Step {
        Step { dims, tuning, sizes: Sizes::of(&dims, &tuning) }
    }
}

wire_rules! {
    /// Tiles that cover so many rows.
    int tiles(rows, tile_rows) = (rows + tile_rows - 1) / tile_rows;
    /// The first of `pieces` that a block owns; the next block's first is this one's end.
    u32 first_piece(block, blocks, pieces) = block * pieces / blocks;
    /// The block that owns a piece: the inverse of `first_piece`.
    u32 owner_of_piece(piece, blocks, pieces) = ((piece + 1) * blocks - 1) / pieces;
    /// Number of splits that have any of the first `positions` positions: always the first splits.
    u32 active_splits(positions, kv_chunk, kv_splits) =
        smaller((positions + kv_chunk - 1) / kv_chunk, kv_splits);
    /// The split of a position: chunks of positions go to the splits round-robin.
    u32 split_of(position, kv_chunk, kv_splits) = position / kv_chunk % kv_splits;
    /// A unit of attention is one KV head and one split; a block takes every `blocks`-th, from its
    /// own number on.
    int attention_unit(kv_head, split, kv_heads) = split * kv_heads + kv_head;
    /// The KV head of a unit.
    int kv_head_of(unit, kv_heads) = unit % kv_heads;
    /// The split of a unit.
    int split_of_unit(unit, kv_heads) = unit / kv_heads;
    /// The first query head whose splits a block combines; it takes every `blocks`-th from there.
    /// Counts backwards from the last block: the last blocks have no positions until the context
    /// is long.
    u32 first_combined(block, blocks) = blocks - 1 - block;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_rules_agree() {
        for (blocks, pieces) in [(1, 1), (132, 192), (132, 64), (170, 192), (7, 3), (3, 7)] {
            let owners = (0..blocks).flat_map(|block| {
                let range =
                    first_piece(block, blocks, pieces)..first_piece(block + 1, blocks, pieces);
                range.map(move |piece| (piece, block))
            });
            let owners: Vec<_> = owners.collect();
            assert_eq!(owners.len(), pieces);
            for (at, (piece, block)) in owners.into_iter().enumerate() {
                assert_eq!((at, owner_of_piece(piece, blocks, pieces)), (piece, block));
            }
        }
        for (kv_head, split) in [(0, 0), (7, 0), (3, 15)] {
            let unit = attention_unit(kv_head, split, 8);
            assert_eq!((kv_head_of(unit, 8), split_of_unit(unit, 8)), (kv_head, split));
        }
        for block in 0..132 {
            assert_eq!(first_combined(first_combined(block, 132), 132), block);
        }
    }

    #[test]
    fn the_numbers_of_the_named_model() {
        let dims = Dims {
            hidden: 1024,
            intermediate: 3072,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            vocab: 151_936,
        };
        let tuning = Tuning {
            consumer_warps: 16,
            teams: 4,
            stages: 8,
            stage_bytes: 16_384,
            kv_chunk: 64,
            kv_splits: 16,
            kv_ahead: 3,
            xray: 1,
        };
        let sizes = Sizes::of(&dims, &tuning);
        assert_eq!((sizes.qkv_dim, sizes.widest, sizes.threads), (4096, 3072, 512 + 96));
        assert_eq!(sizes.layer_units, 4096 + 2048 + 1024 + 3072 + 1024);
        assert_eq!(sizes.layer_partials, 16 * 16 * 130);
        assert_eq!(sizes.slot_units, 28 * (11_264 + 33_280) + 1024);
        assert_eq!(dims.defines()[0], ("ML_HIDDEN".to_owned(), 1024));
        assert_eq!(tuning.defines().len(), Tuning::FIELDS.len());
    }
}
