//! What a step has to do, counted: bytes, hand-offs, and the work of the busiest warp. Everything
//! follows from the model's shape, the format and the kernel's row; nothing is measured.

use super::PredictError;
use monolith_abi::WeightFormat;
use monolith_abi::formats::ProductPath;
use monolith_abi::step::{Step, tiles};
use monolith_kernels::{Arch, Shape, Variant};
use monolith_model::Config;
use monolith_pack::{Formats, Section};

/// Bytes of a value in the KV cache.
const CACHE_BYTES: usize = 2;

/// The work of every step of a model, apart from its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Layers of the model.
    pub layers: usize,
    /// Bytes of one layer's weights.
    pub layer_bytes: u64,
    /// Bytes of the LM head.
    pub head_bytes: u64,
    /// Bytes that one position adds to one layer's KV cache.
    pub kv_bytes_per_position: u64,
    /// Format of the layers' matrices.
    pub format: WeightFormat,
    /// Format of the LM head.
    pub head_format: WeightFormat,
    /// Hand-offs of a layer, that between the blocks of a KV head aside.
    pub hand_offs: usize,
    /// Fragments of weights that the busiest warp multiplies in a layer.
    pub fragments: usize,
    step: Step,
}

/// The part of a layer's work that depends on the position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Blocks of a KV head that share its positions and exchange their results; 1: each attends to
    /// all of them, and nothing is exchanged.
    pub shares: usize,
    /// Groups of cached positions that the busiest share takes: their keys and values come through
    /// the ring of each of its blocks.
    pub groups: usize,
    /// Batches of groups that a block attends to one after the other: in a batch a warp has one.
    pub batches: usize,
    /// Bytes of the KV cache that all blocks together read in the time of a group.
    pub group_bytes: f64,
    /// Bytes of one layer's KV cache.
    pub kv_bytes: f64,
}

/// Consecutive steps whose attention has the same form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Number of steps.
    pub steps: usize,
    /// Their attention, at the mean position.
    pub attention: Attention,
}

impl Work {
    /// Counts the work of a model's steps on an architecture with so many multiprocessors.
    ///
    /// # Errors
    /// No kernel runs these formats or this shape.
    pub fn of(
        config: &Config,
        formats: Formats,
        arch: Arch,
        multiprocessors: usize,
    ) -> Result<Work, PredictError> {
        let shape = Shape::of(config).map_err(|error| PredictError::Kernel(error.to_string()))?;
        let variant = Variant::of_formats(formats.map()).ok_or_else(|| {
            PredictError::Kernel(format!("no kernel runs weights in {}", formats.name()))
        })?;
        let step = variant.step(arch, &shape);
        let blocks = multiprocessors.min(step.tuning.grid);
        let bytes = |section: &Section| section.bytes(config, formats.of(*section));
        let sections = Section::all(config);
        let of = |wanted: &dyn Fn(&Section) -> bool| -> u64 {
            sections.iter().filter(|section| wanted(section)).map(bytes).sum()
        };
        Ok(Work {
            layers: config.layers,
            layer_bytes: of(&|section| matches!(section, Section::Layer(0, _))),
            head_bytes: of(&|section| *section == Section::LmHead),
            kv_bytes_per_position: config.kv_bytes_per_position() / config.layers.max(1) as u64,
            format: variant.format,
            head_format: variant.head_format,
            hand_offs: HAND_OFFS,
            fragments: fragments(&step, variant.format, blocks),
            step,
        })
    }

    /// The attention of the step at a position.
    pub fn attention(&self, position: usize) -> Attention {
        let Step { tuning, sizes, dims } = &self.step;
        let shares = self.step.splits_at(position);
        let kv_bytes = (self.kv_bytes_per_position as usize * position) as f64;
        let row = 2 * dims.head_dim * CACHE_BYTES;
        let group_bytes = (shares * dims.kv_heads * sizes.kv_group * row) as f64;
        let groups = groups(position, shares, tuning.kv_chunk, sizes.kv_group);
        Attention {
            shares,
            groups,
            batches: groups.div_ceil(sizes.kv_batch / sizes.kv_group),
            group_bytes: group_bytes.min(kv_bytes),
            kv_bytes,
        }
    }

    /// The steps from a position on, as stretches of equal form.
    pub fn stretches(&self, first: usize, steps: usize) -> Vec<Stretch> {
        let mut all: Vec<Stretch> = Vec::new();
        let mut begin = first;
        for position in first..first + steps {
            let here = self.attention(position);
            let same = |last: &Stretch| {
                (last.attention.shares, last.attention.groups) == (here.shares, here.groups)
            };
            match all.last_mut().filter(|last| same(last)) {
                Some(last) => {
                    last.steps += 1;
                    last.attention = self.attention(begin.midpoint(position));
                }
                None => {
                    begin = position;
                    all.push(Stretch { steps: 1, attention: here });
                }
            }
        }
        all
    }
}

/// Groups of the busiest share: the first one, whose last chunk may be the only one of its row, and
/// then may be incomplete. (The newest position is not in the cache, and in no group.)
fn groups(cached: usize, shares: usize, chunk: usize, group: usize) -> usize {
    let row = shares * chunk;
    cached / row * (chunk / group) + (cached % row).min(chunk).div_ceil(group)
}

/// A layer's hand-offs: to attention, to gate and up, to down, to the next layer.
const HAND_OFFS: usize = 4;

/// Fragments of the busiest warp in a layer: its part of the columns of its block's tiles.
fn fragments(step: &Step, format: WeightFormat, blocks: usize) -> usize {
    let Step { dims, sizes, tuning } = step;
    let of_tile = |columns: usize| {
        format.geometry(ProductPath::MmaSync).fragments(columns).div_ceil(tuning.consumer_warps)
    };
    let busiest = |pieces: usize| pieces.div_ceil(blocks.max(1));
    let rows = |rows: usize| tiles(rows, sizes.tile_rows);
    busiest(rows(sizes.qkv_dim)) * of_tile(dims.hidden)
        + busiest(sizes.ranks * dims.kv_heads) * sizes.item_tiles * of_tile(sizes.group_dim)
        + busiest(rows(sizes.gate_up_dim)) * of_tile(dims.hidden)
        + busiest(rows(dims.hidden) * sizes.down_splits)
            * of_tile(dims.intermediate.div_ceil(sizes.down_splits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_model::synth;

    fn work(shape: &str, formats: Formats) -> Work {
        Work::of(&synth::shape(shape).unwrap(), formats, Arch::SM_90A, 132).unwrap()
    }

    #[test]
    fn bytes_are_those_of_the_pack() {
        // As the rows of 2026-11-30-h200-07 have them.
        let bf16 = work("qwen3-0.6b", Formats::BF16);
        assert_eq!((bf16.layer_bytes, bf16.head_bytes), (31_461_888, 311_164_928));
        let fp8 = work("qwen3-0.6b", Formats::FP8);
        assert_eq!((fp8.layer_bytes, fp8.head_bytes), (15_782_400, 156_190_208));
        assert_eq!(fp8.kv_bytes_per_position, 4096);
        let tiny = work("tiny", Formats::BF16);
        assert_eq!((tiny.layer_bytes, tiny.head_bytes), (1_967_616, 2_097_152));
    }

    #[test]
    fn the_busiest_warp_has_its_part_of_the_fragments() {
        assert_eq!(work("qwen3-0.6b", Formats::BF16).fragments, 2 * 4 + 4 + 3 * 4 + 6);
        assert_eq!(work("qwen3-0.6b", Formats::FP8).fragments, 2 * 2 + 4 + 3 * 2 + 3);
        assert!(work("tiny", Formats::BF16).fragments < 10);
    }

    #[test]
    fn attention_is_shared_from_129_positions_on_in_bf16() {
        let form = |work: &Work, position| {
            let attention = work.attention(position);
            (attention.shares, attention.groups)
        };
        let full = work("qwen3-0.6b", Formats::BF16);
        assert_eq!(
            [0, 1, 16, 17, 64, 65, 127].map(|position| form(&full, position)),
            [(1, 0), (1, 1), (1, 1), (1, 2), (1, 4), (1, 5), (1, 8)]
        );
        assert_eq!(
            [128, 511, 1024, 1025, 1041, 2048].map(|position| form(&full, position)),
            [(5, 2), (16, 2), (16, 4), (16, 5), (16, 6), (16, 8)]
        );
        assert_eq!(full.attention(2048).kv_bytes, 2048.0 * 4096.0);
        assert_eq!(full.attention(4000).batches, 1);
        // Fewer ranks, more groups.
        let tiny = work("tiny", Formats::BF16);
        assert!(form(&tiny, 2048).1 > form(&full, 2048).1);
        assert!(tiny.attention(2048).batches > 1);
        let fp8 = work("qwen3-0.6b", Formats::FP8);
        assert_eq!([255, 256].map(|position| form(&fp8, position)), [(1, 16), (9, 2)]);
    }

    /// The groups of a share, counted one by one as the kernel does (`Share` in `share.cuh`).
    #[test]
    fn the_busiest_share_is_the_kernels() {
        for shape in ["qwen3-0.6b", "tiny"] {
            let work = work(shape, Formats::FP8);
            let Step { tuning, sizes, .. } = &work.step;
            for cached in (0..1000).chain([2047, 2048, 2049, 4095]) {
                let Attention { shares, groups, .. } = work.attention(cached);
                let mut of_share = vec![0; shares];
                for begin in (0..cached).step_by(sizes.kv_group) {
                    of_share[begin / tuning.kv_chunk % shares] += 1;
                }
                let most = of_share.iter().max().copied();
                assert_eq!(Some(groups), most, "{shape}, {cached} cached");
            }
        }
    }

    #[test]
    fn stretches_cover_all_steps() {
        let work = work("tiny", Formats::FP8);
        for (first, steps) in [(0, 1), (16, 256), (2048, 256), (60, 10)] {
            let all = work.stretches(first, steps);
            assert_eq!(all.iter().map(|stretch| stretch.steps).sum::<usize>(), steps);
        }
        assert_eq!(work.stretches(16, 256)[0].steps, 1);
    }
}
