//! The step, once: its sizes, the phases and what each gathers, multiplies and publishes, who owns
//! what, and a block's shared memory. `cargo xtask generate` writes the same facts into
//! `crates/kernels/cu/step.cuh`; the engines, the kernels' table and the X-ray read them here.

#[macro_use]
mod width;
mod memory;
mod phases;

pub use memory::{Element, SHARED, SharedField, shared_bytes};
pub use phases::{
    Epilogue, HEAD, LAYER_MATVECS, MATVECS, Matvec, OUTPUTS, Output, Slot, matvec_at, output_of,
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
        /// Blocks of the grid that the row is tuned for. Other grids give the same bits.
        grid;
        /// Copies of the ring in flight in the layers.
        flight;
        /// Copies in flight while keys and values are loaded.
        kv_flight;
        /// One more copy is in flight if the consumers have taken the stage of so many copies
        /// ago; 0: never.
        low_water;
        /// Copies in flight in the LM head, which has no hand-off.
        head_flight;
        /// Stages of the ring.
        stages;
        /// Bytes of a stage.
        stage_bytes;
        /// Positions of the KV cache in a chunk; chunks go to the splits round-robin.
        kv_chunk;
        /// Number of splits of a head's KV range (split-KV); 0 if attention is not split.
        kv_splits;
        /// Positions up to which every block of a KV head attends to all of them.
        kv_local;
        /// Blocks that share a multiprocessor: of one kernel and the next, where each is a phase.
        residents;
        /// 1 if a kernel of one phase asks for the next one's weights, else 0.
        prefetch;
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
        tuning: Tuning { consumer_warps, grid, stages, kv_chunk, kv_splits, xray };
    fixed {
        /// Rows of a tile.
        tile_rows = TILE_ROWS;
        /// The largest number of blocks of a launch.
        blocks_max = BLOCKS_MAX as usize;
        /// Tiles of a round of partial sums, at most.
        round_tiles = 3;
        /// Parts of the activation: hi + lo in bf16 keep 16 bits, as a unit does.
        parts = 2;
        /// Units of a line of 128 bytes.
        line_units = 16;
        /// Tiles of an item of the O projection: those of a rank, by the columns of a KV head.
        item_tiles = 4;
        /// Positions of a group: the rows or columns of a fragment of keys or values.
        kv_group = 16;
        /// Columns of a run: a warp owns every `consumer_warps`-th run of a matrix's columns.
        run_columns = 32;
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
        /// Pairs of a head's dimensions.
        head_pairs: int = head_dim / 2;
        /// Values of the query heads of a KV head.
        group_dim: int = group_heads * head_dim;
        /// Values of a tile of gate and up: eight rows of gate and the eight rows of up that go
        /// with them.
        gate_rows: int = tile_rows / 2;

        /// Threads that compute.
        consumers: int = 32 * consumer_warps;
        /// Those and the epilogue's.
        epilogue_threads: int = consumers + 32;
        /// The thread that loads; in X-ray builds also those of the observer and the watcher.
        loader: int = epilogue_threads;
        /// The observer.
        observer: int = loader + 32;
        /// The watcher.
        watcher: int = observer + 32;
        /// Threads of a block.
        threads: int = observer + 64 * xray;

        /// Ranks of a KV head: the items of the O projection that share it.
        ranks: int = (hidden + item_tiles * tile_rows - 1) / (item_tiles * tile_rows);
        /// Splits of a head's KV range, at most one a rank.
        splits: int = smaller(kv_splits, ranks);
        /// Positions of a round of attention, two chunks: their keys, or their values, are a stage.
        kv_round: int = 2 * kv_chunk;
        /// Positions that a block attends to at a time: a group a warp. The ring holds their keys.
        kv_batch: int = kv_round * smaller(stages, consumer_warps * kv_group / kv_round);
        /// Partial results of attention: one a warp, and the newest position.
        partial_results: int = consumer_warps + 1;
        /// Heads that the warps gather: the query heads of a KV head, its newest key and value.
        gathered_heads: int = group_heads + 2;
        /// Warps for each, at most.
        head_warps_most: int = consumer_warps / gathered_heads;
        /// Warps that share such a head: 4, 2 or 1.
        head_warps: int = 1 + smaller(head_warps_most / 2, 1) + 2 * smaller(head_warps_most / 4, 1);
        /// Columns of the queries as an operand: one a part.
        query_columns: int = parts * group_heads;
        /// Words of such a column: eight to spare, for the banks.
        query_words: int = head_dim / 2 + 8;
        /// Floats of a head's part of a partial result: 16 to spare, for the banks.
        head_outputs: int = head_dim + 16;
        /// Slices of an item's columns in the O projection.
        slices: int = consumer_warps / item_tiles;
        /// Splits of the down projection's columns: a warp's part of them is 12 steps at most.
        down_splits: int = 2 * ((intermediate + 6143) / 6144);
        /// Runs of a row of `hidden` columns that a warp owns, at most.
        warp_runs: int =
            (hidden + run_columns * consumer_warps - 1) / (run_columns * consumer_warps);
        /// Steps along K, of all tiles of a round, whose weights a warp holds in registers, four
        /// each: 12, or those of one tile of a wider model.
        steps_ahead: int = larger(12, 2 * warp_runs);
        /// Floats of a warp's part of the residual stream, in whole pairs a lane.
        residual_floats: int = 64 * ((warp_runs * run_columns / 2 + 31) / 32);

        /// Pairs of values that a block publishes in a phase, at the grid of the row; and from one
        /// block's first unit to the next one's, whole lines.
        qkv_per: int = tile_rows / 2 * ((qkv_dim + tile_rows * grid - 1) / (tile_rows * grid));
        /// Its lines.
        qkv_line: int = (qkv_per + line_units - 1) / line_units * line_units;
        /// Output projection: of an item.
        o_proj_per: int = item_tiles * tile_rows / 2;
        /// Its lines.
        o_proj_line: int = o_proj_per;
        /// SwiGLU.
        gate_up_per: int =
            gate_rows / 2 * ((intermediate + gate_rows * grid - 1) / (gate_rows * grid));
        /// Its lines.
        gate_up_line: int = (gate_up_per + line_units - 1) / line_units * line_units;
        /// Down projection: of a tile's split.
        down_per: int = tile_rows / 2;
        /// Its lines.
        down_line: int = line_units;

        /// Where a layer's slots begin, in order of the phases.
        qkv_slot: int = 0;
        /// Output projection: partial sums over the KV heads.
        o_proj_slot: int = qkv_slot + (qkv_dim / 2 + qkv_per - 1) / qkv_per * qkv_line;
        /// SwiGLU.
        gate_up_slot: int = o_proj_slot + ranks * kv_heads * o_proj_line;
        /// Down projection: partial sums over the splits.
        down_slot: int =
            gate_up_slot + (intermediate / 2 + gate_up_per - 1) / gate_up_per * gate_up_line;
        /// From one layer's slots to the next.
        layer_units: int =
            down_slot + (hidden / 2 + down_per - 1) / down_per * down_splits * down_line;

        /// Of each query head and split: the unnormalized output, the largest score, the sum of
        /// weights.
        partial_units: int = head_dim / 2 + 1;
        /// Its lines.
        partial_line: int = (partial_units + line_units - 1) / line_units * line_units;
        /// From one layer's partial results to the next.
        layer_partials: int = heads * splits * partial_line;
        /// Where the partial results begin.
        partials_base: u64 = layers * layer_units;
        /// Where the final slots begin.
        final_base: u64 = partials_base + layers * layer_partials;
        /// Units of a final slot: two a block, its largest logit and the logit's row.
        final_units: u64 = 2 * blocks_max;
        /// Where the outputs of attention as a phase of its own begin; the final slot exists twice,
        /// by the step's parity.
        outputs_base: u64 = final_base + 2 * final_units;
        /// From one KV head's output to the next: a unit a part of a pair of values.
        output_line: int = (parts * group_dim / 2 + line_units - 1) / line_units * line_units;
        /// From one layer's outputs to the next.
        layer_outputs: int = kv_heads * output_line;
        /// Copies of a counter, so that not all warps poll one word: one for each consumer warp.
        counter_copies: int = consumer_warps;
        /// Units from one counter to the next: a line a copy.
        counter_line: int = counter_copies * line_units;
        /// A layer's first counter of attention's outputs and partial results, one a KV head; those
        /// of the queries, keys and values, one a KV head, come before.
        attention_counter: int = kv_heads;
        /// Its counter of the output projection.
        o_proj_counter: int = attention_counter + kv_heads;
        /// Its first counter of SwiGLU, one a split of the down projection's columns.
        gate_up_counter: int = o_proj_counter + 1;
        /// Its counter of the down projection.
        down_counter: int = gate_up_counter + down_splits;
        /// From one layer's counters to the next.
        layer_counters: int = down_counter + 1;
        /// Counters of a step.
        step_counters: int = layers * layer_counters;
        /// Where the counters begin: a set for steps of either parity.
        counters_base: u64 = outputs_base + layers * layer_outputs;
        /// Units of a set.
        counters_units: u64 = step_counters * counter_line;
        /// Where the residual stream lies between kernels of a phase each, a unit a pair of values:
        /// the one that attention begins with, and the one that the MLP begins with.
        residual_base: u64 = counters_base + 2 * counters_units;
        /// Units of one of them.
        residual_units: int = consumer_warps * residual_floats / 2;
        /// Where the cosine and sine of the position's angles lie there, a unit a pair of
        /// dimensions.
        angles_base: u64 = residual_base + 2 * residual_units;
        /// Units of all slots.
        slot_units: u64 = angles_base + head_pairs;

        /// Rows of a round.
        round_rows: int = round_tiles * tile_rows;
        /// Floats from one row's partial sums to the next: four to spare, for the banks.
        partial_stride: int = consumer_warps + 4;
        /// Words of a warp's activation: at most `steps_ahead` steps of eight words, and eight to
        /// spare, in parts.
        activation_words: int = parts * (8 * steps_ahead + 8);
        /// Words of that or of a warp's partial result of attention.
        warp_words: int = larger(activation_words, group_heads * head_outputs);
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
    /// The model has no KV heads, or the row no grid.
    pub const fn of(dims: Dims, tuning: Tuning) -> Step {
        Step { dims, tuning, sizes: Sizes::of(&dims, &tuning) }
    }

    /// Shares of a KV head's positions in the step at a position: one, if every block of the head
    /// attends to all of them.
    pub fn splits_at(&self, position: usize) -> usize {
        let Tuning { kv_chunk, kv_local, .. } = self.tuning;
        active_splits(position + 1, kv_chunk, self.sizes.splits, kv_local)
    }
}

wire_rules! {
    /// Tiles that cover so many rows.
    int tiles(rows, tile_rows) = (rows + tile_rows - 1) / tile_rows;
    /// The first of `pieces` that a block owns; the next block's first is this one's end.
    u32 first_piece(block, blocks, pieces) = block * pieces / blocks;
    /// The block that owns a piece: the inverse of `first_piece`.
    u32 owner_of_piece(piece, blocks, pieces) = ((piece + 1) * blocks - 1) / pieces;
    /// Number of splits that have any of the first `positions` positions: always the first splits;
    /// one, if there are at most `local` positions.
    u32 active_splits(positions, kv_chunk, splits, local) = smaller(
        (positions + kv_chunk - 1) / kv_chunk,
        smaller(1 + (positions - 1) / local * splits, splits)
    );
    /// The split of a position: chunks of positions go to the splits round-robin.
    u32 split_of(position, kv_chunk, kv_splits) = position / kv_chunk % kv_splits;
    /// Positions of the cache that a context takes: whole chunks.
    u32 kv_capacity(context, kv_chunk) = (context + kv_chunk - 1) / kv_chunk * kv_chunk;
    /// The unit of a pair's partial sum within a slot: `per` pairs lie side by side, `line` units
    /// from one block's to the next one's, and each pair has `sums` partial sums.
    int unit_of_pair(pair, sum, per, line, sums) = (pair / per * sums + sum) * line + pair % per;
    /// An item of the O projection: the rows of a rank by the columns of a KV head's query heads.
    int output_item(rank, kv_head, kv_heads) = rank * kv_heads + kv_head;
    /// The KV head of an item.
    int kv_head_of_item(item, kv_heads) = item % kv_heads;
    /// The rank of an item.
    int rank_of_item(item, kv_heads) = item / kv_heads;
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
        for (rank, kv_head) in [(0, 0), (15, 7), (3, 5)] {
            let item = output_item(rank, kv_head, 8);
            assert_eq!((rank_of_item(item, 8), kv_head_of_item(item, 8)), (rank, kv_head));
        }
        assert_eq!(
            [1, 128, 129, 200, 2048].map(|n| active_splits(n, 32, 16, 128)),
            [1, 1, 5, 7, 16]
        );
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
            grid: 128,
            flight: 2,
            kv_flight: 4,
            low_water: 0,
            head_flight: 4,
            stages: 10,
            stage_bytes: 16_384,
            kv_chunk: 32,
            kv_splits: 16,
            kv_local: 192,
            residents: 1,
            prefetch: 0,
            xray: 1,
        };
        let sizes = Sizes::of(&dims, &tuning);
        assert_eq!((sizes.qkv_dim, sizes.widest, sizes.threads), (4096, 3072, 512 + 128));
        // Pairs of a block, in lines of 16 units, of 128 blocks.
        assert_eq!((sizes.qkv_per, sizes.qkv_line), (16, 16));
        assert_eq!((sizes.ranks, sizes.splits, sizes.down_splits), (16, 16, 2));
        assert_eq!((sizes.gate_up_per, sizes.gate_up_line), (12, 16));
        assert_eq!(sizes.layer_units, 128 * (16 + 32 + 16 + 16));
        assert_eq!(sizes.layer_partials, 16 * 16 * 80);
        assert_eq!(sizes.outputs_base, 28 * (10_240 + 20_480) + 1024);
        assert_eq!((sizes.layer_outputs, sizes.layer_counters), (2048, 20));
        assert_eq!(sizes.counters_base, sizes.outputs_base + 28 * 2048);
        assert_eq!(sizes.residual_base, sizes.counters_base + 2 * 28 * 20 * 256);
        assert_eq!(sizes.slot_units, sizes.residual_base + 2 * 512 + 64);
        assert_eq!(dims.defines()[0], ("ML_HIDDEN".to_owned(), 1024));
        assert_eq!(tuning.defines().len(), Tuning::FIELDS.len());
    }
}
