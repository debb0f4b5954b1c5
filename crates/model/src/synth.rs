//! Synthetic weights of any shape: the same bits on every machine, from a seed.
//!
//! A value depends only on the seed, the tensor's name and the element's index: a counter-based
//! hash gives four 16-bit uniforms, whose sum is close enough to a Gaussian, and IEEE additions,
//! multiplications and square roots do the rest. No mathematical library is used, so the values
//! depend neither on the machine nor on the number of threads.
//!
//! # Scales
//!
//! A random model with a tied embedding and small layers copies its input token, with a margin
//! that hides every fault. With large layers, attention that averages makes all positions alike,
//! and attention that picks by content turns rounding into other tokens. So:
//!
//! - The residual stream grows in every layer, until the input token's own logit is lost among the
//!   others ([`COPY_DEVIATIONS`]), so that one head of the last layer is larger than the usual gap
//!   between the two largest logits. It grows more in later layers: faults in earlier ones are
//!   amplified on the way.
//! - The first channels ([`POSITION_CHANNELS`]) hold a constant, read by the query and key
//!   projections only: scores depend mainly on the distance between two positions, through RoPE,
//!   and less on the content there. Which positions a head reads then hardly depends on rounding,
//!   differs between positions, and depends strongly on RoPE's base.
//! - QK-norm's weights are largest where RoPE rotates fastest ([`FAST_GAIN`]): otherwise RoPE
//!   hardly distinguishes neighbours.
//! - Of two heads that share a kv head, the output projection of the second is the negative of the
//!   first's: the part common to all positions cancels. Otherwise it would grow until every
//!   position gives the same token.
//!
//! `notes/synth.md` has the experiments. [`Deltas`] are changes to such weights by training.

mod deltas;
mod write;

pub use deltas::Deltas;
pub use write::{Progress, file_bytes, write};

use crate::{Config, LayerTensor, MemoryWeights, Tensor};
use half::bf16;

/// By how many standard deviations of the logits the input token's own logit is raised: the
/// embedding's share of the final residual, times the square root of its width. The largest of
/// 151,936 logits is 4.3 deviations up, so the token is copied only by chance.
const COPY_DEVIATIONS: f32 = 0.6;
/// Attention's share of the variance that a layer adds to the residual stream; the MLP has the
/// rest.
const ATTENTION_SHARE: f32 = 0.8;
/// Deviation of the embedding: logits of deviation 1 at 1,024 columns.
const EMBEDDING_DEVIATION: f32 = 1.0 / 32.0;
/// Mean of QK-norm's weights for the first eighth of a head, the elements that RoPE rotates
/// fastest: the scores' deviation is a quarter of its square.
const FAST_GAIN: f32 = 2.8;
/// Deviation of a norm's weights, relative to their mean.
const GAIN_SPREAD: f32 = 0.2;
/// Root mean square of attention's output for values of size 1, with scores as above.
const ATTENTION_SIZE: f32 = 0.68;
/// Root mean square of `silu(gate) * up` for standard Gaussian gate and up.
const MLP_SIZE: f32 = 0.6;

/// Channels of the residual stream that hold a constant: one tile, and one quantization group, so
/// that no other channel shares their scale. A quarter of the stream if it is very narrow.
const POSITION_CHANNELS: usize = 16;
/// Size of the position channels after a layer's first norm.
const POSITION_NORMED: f32 = 4.0;
/// Size of the constant part of a query or key before QK-norm, where the rest has size 1.
const POSITION_SIZE: f32 = 16.0;
/// The layers' output to the position channels, relative to other channels: small, so that the
/// constant stays constant.
const WRITE_SHELTER: f32 = 1.0 / 64.0;
/// The weight with which values and the MLP read the position channels, relative to other channels.
const READ_SHELTER: f32 = 1.0 / 16.0;

/// Returns the configuration of a named shape: `qwen3-0.6b`, or `tiny`, whose dimensions are small.
pub fn shape(name: &str) -> Option<Config> {
    let full = Config::qwen3_0_6b();
    match name {
        "qwen3-0.6b" => Some(full),
        "tiny" => Some(Config {
            hidden: 256,
            intermediate: 768,
            layers: 6,
            heads: 4,
            kv_heads: 2,
            vocab: 4096,
            max_positions: 4096,
            eos_ids: Vec::new(),
            ..full
        }),
        _ => None,
    }
}

/// Returns the model of this configuration and seed in memory: the values that [`write()`] writes.
pub fn weights(config: &Config, seed: u64) -> MemoryWeights {
    let mut current: Option<(Tensor, Values)> = None;
    MemoryWeights::from_fn(config, |tensor, row, col| {
        let values = match &current {
            Some((of, values)) if *of == tensor => *values,
            _ => Values::new(config, seed, tensor),
        };
        current = Some((tensor, values));
        values.at(row, col).to_f32()
    })
}

/// The values of one tensor.
#[derive(Clone, Copy)]
struct Values {
    key: u64,
    cols: usize,
    usual: Spread,
    /// A part of the tensor that has another spread.
    special: Option<(First, Spread)>,
    /// Columns of a head, where every second head is the negative of the head before it.
    mirrored: Option<usize>,
}

/// The first rows or columns of a tensor.
#[derive(Clone, Copy)]
enum First {
    Rows(usize),
    Columns(usize),
}

/// Mean and deviation of values, the latter divided by that of the sum of four uniforms.
#[derive(Clone, Copy)]
struct Spread {
    mean: f32,
    scale: f32,
}

impl Spread {
    fn new(mean: f32, deviation: f32) -> Spread {
        // The sum of four uniforms over 0 to 65,535 has variance 4 (65,536^2 - 1) / 12.
        let sum_deviation = ((65_536f64 * 65_536.0 - 1.0) / 3.0).sqrt() as f32;
        Spread { mean, scale: deviation / sum_deviation }
    }
}

/// Odd, with its bits well spread: 2^64 divided by the golden ratio.
const COUNTER_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Values {
    fn new(config: &Config, seed: u64, tensor: Tensor) -> Values {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let name = tensor.name().bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        let (_, cols) = tensor.shape(config);
        let (usual, special) = spreads(config, tensor);
        let mirror = matches!(tensor, Tensor::Layer(_, LayerTensor::OProj))
            && config.group_heads().is_multiple_of(2);
        let mirrored = mirror.then_some(config.head_dim);
        Values { key: mix(name ^ mix(seed)), cols, usual, special, mirrored }
    }

    fn at(&self, row: usize, col: usize) -> bf16 {
        let spread = self.spread(row, col);
        match self.mirrored {
            Some(head) if (col / head) % 2 == 1 => {
                -self.element(row * self.cols + col - head, spread)
            }
            _ => self.element(row * self.cols + col, spread),
        }
    }

    fn spread(&self, row: usize, col: usize) -> Spread {
        match self.special {
            Some((First::Rows(count), spread)) if row < count => spread,
            Some((First::Columns(count), spread)) if col < count => spread,
            _ => self.usual,
        }
    }

    #[inline]
    fn element(&self, index: usize, spread: Spread) -> bf16 {
        let hash = mix(self.key.wrapping_add((index as u64).wrapping_mul(COUNTER_STEP)));
        let sum = (hash & 0xffff) + (hash >> 16 & 0xffff) + (hash >> 32 & 0xffff) + (hash >> 48);
        let centred = sum as i32 - 2 * 65_535;
        rounded(spread.mean + spread.scale * centred as f32)
    }

    /// The little-endian bytes of one row: the values of [`Values::at`], computed without
    /// looking up each element's spread.
    fn row(&self, row: usize, bytes: &mut [u8]) {
        if self.mirrored.is_some() {
            for (col, pair) in bytes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                *pair = self.at(row, col).to_le_bytes();
            }
            return;
        }
        let first = match self.special {
            Some((First::Columns(count), _)) => count,
            _ => 0,
        };
        let (special, rest) = bytes.as_chunks_mut::<2>().0.split_at_mut(first);
        let begin = row * self.cols;
        let sections =
            [(special, begin, self.spread(row, 0)), (rest, begin + first, self.spread(row, first))];
        for (section, begin, spread) in sections {
            for (col, pair) in section.iter_mut().enumerate() {
                *pair = self.element(begin + col, spread).to_le_bytes();
            }
        }
    }
}

/// `bf16::from_f32` (to nearest, ties to even) without its branch for NaN, which would keep the
/// compiler from making straight-line code of a row. The NaNs of arithmetic stay NaNs.
#[inline]
fn rounded(value: f32) -> bf16 {
    let bits = value.to_bits();
    bf16::from_bits((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
}

/// The finalizer of splitmix64: every bit of the input affects every bit of the output.
#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The spread of a tensor's values, and the spread of the part that has another one.
fn spreads(config: &Config, tensor: Tensor) -> (Spread, Option<(First, Spread)>) {
    let channels = position_channels(config);
    let columns = |mean, deviation| Some((First::Columns(channels), Spread::new(mean, deviation)));
    let rows = |deviation| Some((First::Rows(channels), Spread::new(0.0, deviation)));
    let gain = Spread::new(1.0, GAIN_SPREAD);
    let (layer, tensor) = match tensor {
        Tensor::Layer(layer, tensor) => (layer, tensor),
        Tensor::FinalNorm => return (gain, None),
        Tensor::Embedding => {
            let constant = columns(position_constant(config), 0.0);
            return (Spread::new(0.0, EMBEDDING_DEVIATION), constant);
        }
        Tensor::LmHead => return (Spread::new(0.0, EMBEDDING_DEVIATION), None),
    };
    let (_, cols) = Tensor::Layer(layer, tensor).shape(config);
    // Keeps the size of its input.
    let unit = 1.0 / (cols as f32).sqrt();
    match tensor {
        LayerTensor::InputNorm => (gain, columns(position_gain(config, layer), 0.0)),
        LayerTensor::PostNorm => (gain, None),
        LayerTensor::QNorm | LayerTensor::KNorm => {
            let fast = Spread::new(FAST_GAIN, FAST_GAIN * GAIN_SPREAD);
            (gain, Some((First::Columns(config.head_dim / 8), fast)))
        }
        LayerTensor::QProj | LayerTensor::KProj => {
            let reads = POSITION_SIZE / (POSITION_NORMED * (channels as f32).sqrt());
            (Spread::new(0.0, unit), columns(0.0, reads))
        }
        LayerTensor::VProj | LayerTensor::GateProj | LayerTensor::UpProj => {
            (Spread::new(0.0, unit), columns(0.0, unit * READ_SHELTER))
        }
        LayerTensor::OProj => {
            let size = written(config, layer, ATTENTION_SHARE) * unit / ATTENTION_SIZE;
            (Spread::new(0.0, size), rows(size * WRITE_SHELTER))
        }
        LayerTensor::DownProj => {
            let size = written(config, layer, 1.0 - ATTENTION_SHARE) * unit / MLP_SIZE;
            (Spread::new(0.0, size), rows(size * WRITE_SHELTER))
        }
    }
}

fn position_channels(config: &Config) -> usize {
    POSITION_CHANNELS.min(config.hidden / 4).max(1)
}

/// The value of the position channels: together they are as large as the rest of the embedding.
fn position_constant(config: &Config) -> f32 {
    EMBEDDING_DEVIATION * (config.hidden as f32 / position_channels(config) as f32).sqrt()
}

/// Weight of a layer's first norm that gives the position channels [`POSITION_NORMED`].
fn position_gain(config: &Config, layer: usize) -> f32 {
    let rest = residual_size(config, layer);
    let size = (rest * rest + EMBEDDING_DEVIATION * EMBEDDING_DEVIATION).sqrt();
    POSITION_NORMED * size / position_constant(config)
}

/// Root mean square of the residual stream before a layer, position channels aside.
fn residual_size(config: &Config, layer: usize) -> f32 {
    let pace = pace(config);
    (0..layer).fold(EMBEDDING_DEVIATION, |size, layer| size * growth(config, layer, pace))
}

/// Root mean square of the output of a layer's attention or MLP that has this share of the variance
/// that the layer adds to the residual stream.
fn written(config: &Config, layer: usize, share: f32) -> f32 {
    let growth = growth(config, layer, pace(config));
    residual_size(config, layer) * (share * (growth * growth - 1.0)).sqrt()
}

/// Factor by which a layer enlarges the residual stream: more in later layers, which amplify what
/// early layers add.
fn growth(config: &Config, layer: usize, pace: f32) -> f32 {
    1.0 + pace * (0.5 + layer as f32 / config.layers as f32)
}

/// The growth with which the last residual has the size for [`COPY_DEVIATIONS`], by bisection.
fn pace(config: &Config) -> f32 {
    let wanted = (config.hidden as f32).sqrt() / COPY_DEVIATIONS;
    let (mut low, mut high) = (0.0f32, 2.0 * wanted);
    for _ in 0..40 {
        let pace = (low + high) / 2.0;
        let total: f32 = (0..config.layers).map(|layer| growth(config, layer, pace)).product();
        if total < wanted { low = pace } else { high = pace }
    }
    low
}

#[cfg(test)]
mod tests;
