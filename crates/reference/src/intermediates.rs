//! Named intermediates, and the first place where those of two engines differ.

use crate::ReferenceError;
use monolith_abi::Phase;
use ndarray::{Array2, ArrayRef2, ArrayView2};
use std::fmt;

/// Where in the step an intermediate is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The layer, for a phase that occurs once a layer.
    pub layer: Option<usize>,
    /// The phase.
    pub phase: Phase,
}

impl Place {
    /// The residual stream before the first layer.
    pub const EMBED: Place = Place { layer: None, phase: Phase::Embed };
    /// The logits.
    pub const LM_HEAD: Place = Place { layer: None, phase: Phase::LmHead };
    /// The greedy token.
    pub const ARGMAX: Place = Place { layer: None, phase: Phase::Argmax };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layer {layer} {}", self.phase.name()),
            None => f.write_str(self.phase.name()),
        }
    }
}

/// Where a traced step ends.
///
/// Only the first `layers` layers run. A phase of a layer ends the step in the last of them;
/// `embed` ends it before any; `lm_head` and `argmax` are applied to the residual after them, as
/// if the model had no more layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Layers to run.
    pub layers: usize,
    /// The last phase to run.
    pub after: Phase,
}

impl Stop {
    /// The last place whose output is made.
    pub fn place(self) -> Place {
        let layer = self.after.is_per_layer().then(|| self.layers.saturating_sub(1));
        Place { layer, phase: self.after }
    }

    /// Checks that the place exists in a model of `model_layers` layers.
    ///
    /// # Errors
    /// More layers than the model has, or a phase of a layer with zero layers to run.
    pub fn check(self, model_layers: usize) -> Result<(), ReferenceError> {
        if self.layers > model_layers || (self.after.is_per_layer() && self.layers == 0) {
            let (layers, phase) = (self.layers, self.after.name());
            return Err(ReferenceError::Stop { layers, phase, model_layers });
        }
        Ok(())
    }
}

/// Outputs of phases, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Intermediates {
    outputs: Vec<(Place, Array2<f32>)>,
}

impl Intermediates {
    /// Adds the output of `place`: rows (positions) of equal length, one after another.
    ///
    /// # Panics
    /// If `values` is not a whole number of rows.
    pub fn insert(&mut self, place: Place, rows: usize, values: Vec<f32>) {
        let columns = values.len() / rows.max(1);
        let output = Array2::from_shape_vec((rows, columns), values)
            .unwrap_or_else(|error| panic!("{place}: not {rows} rows: {error}"));
        self.outputs.push((place, output));
    }

    pub(crate) fn insert_view(&mut self, place: Place, output: &ArrayRef2<f32>) {
        self.outputs.push((place, output.to_owned()));
    }

    /// The output of a place, `[positions, width]`, if it was made.
    pub fn get(&self, place: Place) -> Option<ArrayView2<'_, f32>> {
        self.iter().find(|(at, _)| *at == place).map(|(_, output)| output)
    }

    /// Every output, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Place, ArrayView2<'_, f32>)> {
        self.outputs.iter().map(|(place, output)| (*place, output.view()))
    }
}

/// One element in which two engines differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Where the element was made.
    pub place: Place,
    /// Row: position within the traced tokens.
    pub row: usize,
    /// Index in the row.
    pub index: usize,
    /// The left engine's value.
    pub left: f32,
    /// The right engine's value.
    pub right: f32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { place, row, index, left, right } = self;
        let distance = (left - right).abs();
        write!(f, "{place}, row {row}, element {index}: {left} and {right} ({distance:.3e} apart)")
    }
}

/// The first element, in order of computation, in which the outputs that both hold differ by more
/// than `tolerance` times the largest finite magnitude of the left row. A NaN always differs.
///
/// The measure is relative to the row and not to the element: an element near zero is the
/// difference of terms of the row's size, and carries their rounding errors.
///
/// # Panics
/// If the two hold outputs of different shapes for one place: they come from different models.
pub fn first_difference(
    left: &Intermediates,
    right: &Intermediates,
    tolerance: f32,
) -> Option<Difference> {
    left.iter().find_map(|(place, a)| {
        let b = right.get(place)?;
        assert_eq!(a.shape(), b.shape(), "{place}: shapes differ");
        a.rows().into_iter().zip(b.rows()).enumerate().find_map(|(row, (a, b))| {
            let sizes = a.iter().map(|x| x.abs()).filter(|size| size.is_finite());
            let limit = tolerance * sizes.fold(0.0, f32::max);
            let close = |x: f32, y: f32| x == y || (x - y).abs() <= limit;
            let index = a.iter().zip(b).position(|(&x, &y)| !close(x, y))?;
            Some(Difference { place, row, index, left: a[index], right: b[index] })
        })
    })
}
