//! One worker's share of one step: the phases in order, a few lines each.
//!
//! A phase gathers the values that it needs (it polls those that have not arrived), computes the
//! rows or heads that this worker owns, and publishes them. A step allocates and locks nothing.

use super::attention::{Attend, HeadCache};
use super::matvec::{MatVec, Spread};
use super::record::SpanRecord;
use super::simd::{LANES, silu, sum_of_squares};
use super::team::{Injected, Shared};
use crate::rope::RopeTable;
use monolith_abi::dump::{NO_BLOCK, NO_LAYER};
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::kernel::{NO_ROW, NOT_A_NUMBER};
use monolith_abi::{EventKind, Phase};
use monolith_handoff::{Exchange, Fault};
use monolith_pack::{LayerSection, Section};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Tiles that are multiplied before their results are published: enough for streaming reads, and
/// few enough that a consumer of the first row does not wait for the last.
const TILES_PER_PUBLISH: usize = 8;

/// What a worker keeps from step to step: its part of the KV cache, and scratch arrays.
#[derive(Debug)]
pub(crate) struct State {
    /// `[layer][owned KV head]`
    caches: Vec<Vec<HeadCache>>,
    residual: Vec<f32>,
    scaled: Vec<f32>,
    gathered: Vec<f32>,
    spread: Spread,
    products: [[f32; TILE_ROWS]; TILES_PER_PUBLISH],
    q: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    scores: Vec<f32>,
    attended: Vec<f32>,
    /// The spans of a recorded step.
    pub(crate) records: Vec<SpanRecord>,
}

impl State {
    pub(crate) fn new(shared: &Shared, worker: usize) -> State {
        let config = shared.config();
        let heads = shared.plan.share(Phase::Attention, worker);
        let head = || HeadCache::new(shared.context, config.head_dim);
        let widest = config.hidden.max(config.intermediate).max(config.q_dim());
        let group_dim = config.group_heads() * config.head_dim;
        State {
            caches: (0..config.layers).map(|_| heads.clone().map(|_| head()).collect()).collect(),
            residual: vec![0.0; config.hidden],
            scaled: vec![0.0; config.hidden],
            gathered: vec![0.0; widest],
            spread: Spread::with_capacity(widest),
            products: [[0.0; TILE_ROWS]; TILES_PER_PUBLISH],
            q: vec![0.0; group_dim],
            key: vec![0.0; config.head_dim],
            value: vec![0.0; config.head_dim],
            scores: vec![0.0; shared.context.next_multiple_of(LANES)],
            attended: vec![0.0; group_dim],
            records: Vec::with_capacity(most_records(config.layers, heads.len())),
        }
    }
}

/// The largest number of records of one step: a wait and work for each phase; three waits and work
/// for each owned KV head; the embedding, the head and the argmax.
fn most_records(layers: usize, heads: usize) -> usize {
    layers * (2 * Phase::LAYER.len() + 4 * heads) + 6
}

/// A wait that failed, and the value that it waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepFault {
    pub(crate) worker: usize,
    pub(crate) waits_on: usize,
    pub(crate) layer: Option<usize>,
    pub(crate) phase: Phase,
    pub(crate) fault: Fault,
}

/// One worker's part of one step. With `XRAY` the step takes stamps; without it the code for stamps
/// is not compiled.
pub(crate) struct Step<'a, const XRAY: bool> {
    pub(crate) shared: &'a Shared,
    pub(crate) state: &'a mut State,
    pub(crate) worker: usize,
    pub(crate) epoch: u32,
    pub(crate) token: usize,
    pub(crate) position: usize,
}

impl<const XRAY: bool> Step<'_, XRAY> {
    /// The whole step, or all of it but the head.
    pub(crate) fn run(&mut self, has_head: bool) -> Result<(), StepFault> {
        self.embed();
        for layer in 0..self.shared.config().layers {
            self.qkv(layer)?;
            self.attention(layer)?;
            self.o_proj(layer)?;
            self.gate_up(layer)?;
            self.down(layer)?;
        }
        if has_head {
            return self.lm_head();
        }
        // A worker publishes here after its last read of the step, and the host starts the next
        // step when all workers have published. Otherwise a fast worker could lap a slow one.
        self.publish_final(f32::NEG_INFINITY, NO_ROW);
        Ok(())
    }

    /// Every worker holds the whole residual stream, so the embedding needs no hand-off.
    fn embed(&mut self) {
        let begin = self.stamp();
        let embedding = self.shared.pack.matrix(Section::Embedding);
        embedding.read_row(self.token, &mut self.state.residual);
        self.worked(Phase::Embed, None, begin);
    }

    fn qkv(&mut self, layer: usize) -> Result<(), StepFault> {
        self.gather_residual(layer.checked_sub(1), Phase::Down)?;
        let begin = self.stamp();
        let section = Section::Layer(layer, LayerSection::Qkv);
        let scale = self.norm(&self.shared.norms[layer].input, section);
        let tiles = self.shared.plan.share(Phase::Qkv, self.worker);
        self.product(section, tiles, |step, row, values| {
            step.publish_rows(layer, Phase::Qkv, row, values.map(|value| value * scale));
        });
        self.worked(Phase::Qkv, Some(layer), begin);
        Ok(())
    }

    /// QK-norm, RoPE, the KV write and attention, for the KV heads that this worker owns.
    fn attention(&mut self, layer: usize) -> Result<(), StepFault> {
        for (at, kv_head) in self.shared.plan.share(Phase::Attention, self.worker).enumerate() {
            let config = self.shared.config();
            let (head_dim, group_dim) = (config.head_dim, self.state.q.len());
            let keys = config.q_dim() + kv_head * head_dim;
            let values = keys + config.kv_dim();
            self.gather(layer, kv_head * group_dim..(kv_head + 1) * group_dim, |s| &mut s.q)?;
            self.gather(layer, keys..keys + head_dim, |s| &mut s.key)?;
            self.gather(layer, values..values + head_dim, |s| &mut s.value)?;
            let begin = self.stamp();
            self.attend(layer, at);
            let base = self.shared.plan.base(layer, Phase::Attention) + kv_head * group_dim;
            if !self.skips(layer, Phase::Attention) {
                for (unit, value) in self.state.attended.iter().enumerate() {
                    self.shared.exchange.publish(base + unit, value.to_bits(), self.epoch);
                }
            }
            self.worked(Phase::Attention, Some(layer), begin);
        }
        Ok(())
    }

    fn attend(&mut self, layer: usize, at: usize) {
        let Shared { norms, rope, simd, .. } = self.shared;
        let config = self.shared.config();
        let State { caches, q, key, value, scores, attended, .. } = &mut *self.state;
        let eps = config.norm_eps as f32;
        let scale = 1.0 / (config.head_dim as f32).sqrt();
        norm_and_rotate(key, &norms[layer].key, eps, rope, self.position);
        for q in q.chunks_exact_mut(config.head_dim) {
            norm_and_rotate(q, &norms[layer].query, eps, rope, self.position);
            q.iter_mut().for_each(|value| *value *= scale);
        }
        let cache = &mut caches[layer][at];
        cache.store(self.position, key, value);
        simd.run(Attend { cache, positions: self.position + 1, q, scores, out: attended });
    }

    fn o_proj(&mut self, layer: usize) -> Result<(), StepFault> {
        self.gather_activation(layer, Phase::Attention, LayerSection::OProj)?;
        self.add_to_residual(layer, Phase::OProj, LayerSection::OProj);
        Ok(())
    }

    fn gate_up(&mut self, layer: usize) -> Result<(), StepFault> {
        self.gather_residual(Some(layer), Phase::OProj)?;
        let begin = self.stamp();
        let section = Section::Layer(layer, LayerSection::GateUp);
        let scale = self.norm(&self.shared.norms[layer].post, section);
        let tiles = self.shared.plan.share(Phase::GateUp, self.worker);
        self.product(section, tiles, |step, row, values| {
            let (gate, up) = values.split_at(TILE_ROWS / 2);
            let mut gated = [0.0; TILE_ROWS / 2];
            for ((out, gate), up) in gated.iter_mut().zip(gate).zip(up) {
                *out = silu(gate * scale) * (up * scale);
            }
            step.publish_rows(layer, Phase::GateUp, row / 2, gated);
        });
        self.worked(Phase::GateUp, Some(layer), begin);
        Ok(())
    }

    fn down(&mut self, layer: usize) -> Result<(), StepFault> {
        self.gather_activation(layer, Phase::GateUp, LayerSection::Down)?;
        self.add_to_residual(layer, Phase::Down, LayerSection::Down);
        Ok(())
    }

    /// Computes the logits of the owned rows and publishes the largest in the final slot.
    fn lm_head(&mut self) -> Result<(), StepFault> {
        self.gather_residual(Some(self.shared.config().layers - 1), Phase::Down)?;
        let begin = self.stamp();
        let scale = self.norm(&self.shared.final_norm, Section::LmHead);
        let tiles = self.shared.plan.share(Phase::LmHead, self.worker);
        let (mut largest, mut index) = (f32::NEG_INFINITY, NO_ROW);
        self.product(Section::LmHead, tiles, |step, row, values| {
            for (row, logit) in (row..step.shared.config().vocab).zip(values) {
                let logit = logit * scale;
                step.shared.logits[row].store(logit.to_bits(), Ordering::Relaxed);
                // Rows come in order, so `>` keeps the lowest index of equal logits.
                if logit > largest {
                    (largest, index) = (logit, row as u32);
                } else if logit.is_nan() {
                    (largest, index) = (f32::INFINITY, NOT_A_NUMBER);
                }
            }
        });
        self.publish_final(largest, index);
        self.worked(Phase::LmHead, None, begin);
        Ok(())
    }

    /// Publishes this worker's largest logit and its index.
    fn publish_final(&self, largest: f32, index: u32) {
        let units = self.shared.plan.final_units(Exchange::parity(self.epoch), self.worker);
        self.shared.exchange.publish(units.start, largest.to_bits(), self.epoch);
        self.shared.exchange.publish(units.start + 1, index, self.epoch);
    }

    /// Publishes `residual + W x`, for o_proj and down.
    fn add_to_residual(&mut self, layer: usize, phase: Phase, section: LayerSection) {
        let begin = self.stamp();
        let tiles = self.shared.plan.share(phase, self.worker);
        self.product(Section::Layer(layer, section), tiles, |step, row, values| {
            let mut sums = values;
            for (sum, residual) in sums.iter_mut().zip(&step.state.residual[row..]) {
                *sum += residual;
            }
            step.publish_rows(layer, phase, row, sums);
        });
        self.worked(phase, Some(layer), begin);
    }

    /// Spreads `residual * weight` for the matrix of a section and returns the reciprocal RMS, by
    /// which the caller multiplies the product. That saves a pass over the activation, and the
    /// pack keeps the published weights.
    fn norm(&mut self, weight: &[f32], section: Section) -> f32 {
        let format = self.shared.formats().of(section);
        let State { residual, scaled, spread, .. } = &mut *self.state;
        for ((out, value), weight) in scaled.iter_mut().zip(&*residual).zip(weight) {
            *out = value * weight;
        }
        spread.set(scaled, format);
        let mean = sum_of_squares(residual) / residual.len() as f32;
        1.0 / (mean + self.shared.config().norm_eps as f32).sqrt()
    }

    /// Multiplies tiles by the spread activation and calls `each(step, first row, values)` for each
    /// tile.
    fn product(
        &mut self,
        section: Section,
        tiles: Range<usize>,
        mut each: impl FnMut(&mut Self, usize, [f32; TILE_ROWS]),
    ) {
        let matrix = self.shared.pack.matrix(section);
        for first in tiles.clone().step_by(TILES_PER_PUBLISH) {
            let batch = first..(first + TILES_PER_PUBLISH).min(tiles.end);
            let State { spread, products, .. } = &mut *self.state;
            let out = &mut products[..batch.len()];
            self.shared.simd.run(MatVec {
                tiles: matrix.tile_range(batch.clone()),
                x: spread,
                out,
            });
            for tile in batch.clone() {
                let values = self.state.products[tile - first];
                each(self, tile * TILE_ROWS, values);
            }
        }
    }

    /// Publishes the values of those rows of a tile that exist; padding rows are dropped.
    fn publish_rows<const N: usize>(
        &self,
        layer: usize,
        phase: Phase,
        row: usize,
        values: [f32; N],
    ) {
        let plan = &self.shared.plan;
        let base = plan.base(layer, phase);
        if self.skips(layer, phase) {
            return;
        }
        for (row, value) in (row..plan.width(phase)).zip(values) {
            self.shared.exchange.publish(base + row, value.to_bits(), self.epoch);
        }
    }

    /// Gathers the residual stream after `phase` of `layer`. `None`: the stream is the embedding.
    fn gather_residual(&mut self, layer: Option<usize>, phase: Phase) -> Result<(), StepFault> {
        let Some(layer) = layer else { return Ok(()) };
        let width = self.shared.plan.width(phase);
        self.gather_phase(layer, phase, 0..width, |state| &mut state.residual)
    }

    /// Gathers a phase's whole output and spreads it for a matrix of the layer.
    fn gather_activation(
        &mut self,
        layer: usize,
        phase: Phase,
        section: LayerSection,
    ) -> Result<(), StepFault> {
        let width = self.shared.plan.width(phase);
        self.gather_phase(layer, phase, 0..width, |state| &mut state.gathered)?;
        let format = self.shared.formats().of(Section::Layer(layer, section));
        let State { gathered, spread, .. } = &mut *self.state;
        spread.set(&gathered[..width], format);
        Ok(())
    }

    /// Gathers part of a layer's q, k and v.
    fn gather(
        &mut self,
        layer: usize,
        range: Range<usize>,
        into: impl FnOnce(&mut State) -> &mut Vec<f32>,
    ) -> Result<(), StepFault> {
        self.gather_phase(layer, Phase::Qkv, range, into)
    }

    fn gather_phase(
        &mut self,
        layer: usize,
        phase: Phase,
        range: Range<usize>,
        into: impl FnOnce(&mut State) -> &mut Vec<f32>,
    ) -> Result<(), StepFault> {
        if let Some(Injected::Delays { seed }) = self.shared.injected {
            super::team::delay(seed, self.worker, self.epoch, layer, phase);
        }
        let begin = self.stamp();
        let Shared { exchange, plan, timeout, abort, .. } = self.shared;
        let base = plan.base(layer, phase);
        let units = base + range.start..base + range.end;
        let into = into(self.state);
        let arrival = exchange
            .gather(units, self.epoch, *timeout, abort, |at, bits| into[at] = f32::from_bits(bits))
            .map_err(|fault| StepFault {
                worker: self.worker,
                waits_on: plan.owner(phase, fault.unit - base),
                layer: Some(layer),
                phase,
                fault,
            })?;
        if XRAY && let Some(at) = arrival.last_blocked {
            let waits_on = plan.owner(phase, range.start + at) as u16;
            self.record(EventKind::WaitExchange, phase, Some(layer), waits_on, begin);
        }
        Ok(())
    }

    /// Whether an injected fault keeps this worker from publishing its output of this phase.
    fn skips(&self, layer: usize, phase: Phase) -> bool {
        matches!(self.shared.injected, Some(Injected::Skip { worker, layer: at, phase: of })
            if worker == self.worker && at == layer && of == phase)
    }

    fn stamp(&self) -> u64 {
        if XRAY { self.shared.now_ns() } else { 0 }
    }

    fn worked(&mut self, phase: Phase, layer: Option<usize>, begin_ns: u64) {
        if XRAY {
            self.record(EventKind::Work, phase, layer, NO_BLOCK, begin_ns);
        }
    }

    fn record(
        &mut self,
        kind: EventKind,
        phase: Phase,
        layer: Option<usize>,
        waits_on: u16,
        begin_ns: u64,
    ) {
        let layer = layer.map_or(NO_LAYER, |layer| layer as u16);
        let (block, end_ns) = (self.worker as u16, self.shared.now_ns());
        self.state.records.push(SpanRecord {
            begin_ns,
            end_ns,
            layer,
            block,
            waits_on,
            phase,
            kind,
        });
    }
}

/// RMSNorm of one head, then RoPE at `position`.
fn norm_and_rotate(head: &mut [f32], weight: &[f32], eps: f32, rope: &RopeTable, position: usize) {
    let scale = 1.0 / (sum_of_squares(head) / head.len() as f32 + eps).sqrt();
    for (value, weight) in head.iter_mut().zip(weight) {
        *value *= scale * weight;
    }
    rope.rotate(head, position);
}
