//! The whole step: phases in order, with the cache and the intermediates.

use crate::intermediates::{Intermediates, Place, Stop};
use crate::{KvFormat, LayerCache, ReferenceError, phases};
use monolith_abi::Phase;
use monolith_model::Weights;
use ndarray::{Array1, Array2, ArrayRef2, Axis};
use std::ops::ControlFlow;

/// A model and the positions it has seen.
pub struct Reference<'a> {
    weights: &'a dyn Weights,
    caches: Vec<LayerCache>,
}

/// The result of [`Reference::extend`], one row for each token.
#[derive(Clone, Debug)]
pub struct StepOutputs {
    /// Logits, `[tokens, vocab]`.
    pub logits: Array2<f32>,
    /// The greedy next token after each token.
    pub greedy: Vec<u32>,
}

/// A callback that gets every intermediate as it is computed, and may end the step.
type Observer<'o> = dyn FnMut(Place, &ArrayRef2<f32>) -> ControlFlow<()> + 'o;

impl<'a> Reference<'a> {
    /// The model with an empty cache.
    pub fn new(weights: &'a dyn Weights, format: KvFormat) -> Reference<'a> {
        let config = weights.config();
        let caches = vec![LayerCache::new(config.kv_dim(), format); config.layers];
        Reference { weights, caches }
    }

    /// Positions in the cache.
    pub fn positions(&self) -> usize {
        self.caches[0].positions()
    }

    /// The layers' caches, in order.
    pub fn caches(&self) -> &[LayerCache] {
        &self.caches
    }

    /// Forgets every position from `positions` on.
    pub fn truncate(&mut self, positions: usize) {
        for cache in &mut self.caches {
            cache.truncate(positions);
        }
    }

    /// Appends tokens and returns the logits and the greedy token after each.
    ///
    /// # Errors
    /// A token outside the vocabulary or more positions than the model has, with the cache
    /// unchanged; or a NaN logit.
    pub fn extend(&mut self, tokens: &[u32]) -> Result<StepOutputs, ReferenceError> {
        let residual = self.advance(tokens)?;
        let logits = phases::lm_head(self.weights, &residual);
        let greedy = phases::argmax(&logits)?;
        Ok(StepOutputs { logits, greedy })
    }

    /// Appends tokens and returns the residual after the last layer, `[tokens, hidden]`. Pass it to
    /// [`phases::lm_head`] if only a few positions of a long prompt need logits.
    ///
    /// # Errors
    /// As [`Reference::extend`], NaN logits aside.
    pub fn advance(&mut self, tokens: &[u32]) -> Result<Array2<f32>, ReferenceError> {
        self.check_positions(tokens.len())?;
        let embedded = phases::embed(self.weights, tokens)?;
        let layers = self.caches.len();
        Ok(self.run_layers(embedded, layers, &mut |_, _| ControlFlow::Continue(())).0)
    }

    /// Runs tokens at the next positions, up to `stop`, and returns every intermediate. The cache
    /// does not change.
    ///
    /// # Errors
    /// As [`Reference::extend`]; or a stop in a layer that the model does not have.
    pub fn trace(&mut self, tokens: &[u32], stop: Stop) -> Result<Intermediates, ReferenceError> {
        stop.check(self.weights.config().layers)?;
        self.check_positions(tokens.len())?;
        let positions = self.positions();
        let mut seen = Intermediates::default();
        let result = self.observe(tokens, stop, &mut |place, output| {
            seen.insert_view(place, output);
            if place == stop.place() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.truncate(positions);
        result.map(|()| seen)
    }

    fn observe(
        &mut self,
        tokens: &[u32],
        stop: Stop,
        observer: &mut Observer,
    ) -> Result<(), ReferenceError> {
        let embedded = phases::embed(self.weights, tokens)?;
        if observer(Place::EMBED, &embedded).is_break() {
            return Ok(());
        }
        let (residual, flow) = self.run_layers(embedded, stop.layers, observer);
        if flow.is_break() {
            return Ok(());
        }
        let logits = phases::lm_head(self.weights, &residual);
        if observer(Place::LM_HEAD, &logits).is_break() {
            return Ok(());
        }
        // Exact in f32: a vocabulary has fewer than 2^24 rows.
        let greedy = phases::argmax(&logits)?.into_iter().map(|id| id as f32).collect();
        let greedy = Array1::from_vec(greedy).insert_axis(Axis(1));
        let _ = observer(Place::ARGMAX, &greedy);
        Ok(())
    }

    /// The first `layers` layers; the residual after them, or after the phase where the observer
    /// ended the step.
    fn run_layers(
        &mut self,
        mut residual: Array2<f32>,
        layers: usize,
        observer: &mut Observer,
    ) -> (Array2<f32>, ControlFlow<()>) {
        for layer in 0..layers {
            let flow = self.run_layer(layer, &mut residual, observer);
            if flow.is_break() {
                return (residual, flow);
            }
        }
        (residual, ControlFlow::Continue(()))
    }

    fn run_layer(
        &mut self,
        layer: usize,
        residual: &mut Array2<f32>,
        observer: &mut Observer,
    ) -> ControlFlow<()> {
        let weights = self.weights;
        let place = |phase| Place { layer: Some(layer), phase };
        let qkv = phases::qkv(weights, layer, residual);
        observer(place(Phase::Qkv), &qkv)?;
        let attention = phases::attention(weights, layer, &qkv, &mut self.caches[layer]);
        observer(place(Phase::Attention), &attention)?;
        *residual = phases::o_proj(weights, layer, &attention, residual);
        observer(place(Phase::OProj), residual)?;
        let gate_up = phases::gate_up(weights, layer, residual);
        observer(place(Phase::GateUp), &gate_up)?;
        *residual = phases::down(weights, layer, &gate_up, residual);
        observer(place(Phase::Down), residual)
    }

    fn check_positions(&self, more: usize) -> Result<(), ReferenceError> {
        let max_positions = self.weights.config().max_positions;
        let wanted = self.positions() + more;
        if wanted > max_positions {
            return Err(ReferenceError::Positions { wanted, max_positions });
        }
        Ok(())
    }
}
