//! Fits a calibration's numbers to measured steps.

use super::{HandOff, Parameters, PredictError, Work, predicted};
use std::collections::BTreeMap;

/// Measured steps.
#[derive(Clone, Debug)]
pub struct Observation {
    /// What they are, for messages.
    pub name: String,
    /// Their work.
    pub work: Work,
    /// First position.
    pub first: usize,
    /// Number of steps.
    pub steps: usize,
    /// Mean time of a step, us.
    pub step_us: f64,
}

/// The numbers that are measured by themselves, and not fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// [`Parameters::bandwidth_gb_s`].
    pub bandwidth_gb_s: f64,
    /// [`Parameters::hand_off_ns`].
    pub hand_off_ns: HandOff,
    /// [`Parameters::head_gb_s`].
    pub head_gb_s: BTreeMap<String, f64>,
    /// [`Parameters::argmax_us`].
    pub argmax_us: f64,
}

/// The fitted numbers: their places in the vector that is fitted. The fragments follow.
const LAYER: usize = 0;
const LAUNCH: usize = 1;
const GROUP: usize = 2;
const EXCHANGE: usize = 3;
const BATCH: usize = 4;
const FRAGMENTS: usize = 5;
/// Where the fit begins.
const START: [f64; FRAGMENTS] = [2.0, 5.0, 0.2, 0.1, 1.0];
const START_FRAGMENT_NS: f64 = 50.0;
const STEPS_MAX: usize = 200;
/// A step that gains less than this ends the fit.
const GAIN_MIN: f64 = 1e-10;

/// Fits the numbers by least squares of the relative errors (Levenberg-Marquardt); none is below 0.
///
/// With one depth attention's numbers cannot be told from the rest of a layer: they stay 0.
///
/// # Errors
/// Fewer observations than numbers, or a format without a head's rate.
pub fn fitted(all: &[Observation], measured: &Measured) -> Result<Parameters, PredictError> {
    let mut formats: Vec<&str> = all.iter().map(|each| each.work.format.name()).collect();
    formats.sort_unstable();
    formats.dedup();
    let mut values = START.to_vec();
    values.extend(formats.iter().map(|_| START_FRAGMENT_NS));
    let mut depths: Vec<usize> = all.iter().map(|each| each.first).collect();
    depths.sort_unstable();
    depths.dedup();
    let mut free: Vec<usize> = (0..values.len()).collect();
    if depths.len() < 2 {
        free.retain(|at| ![GROUP, EXCHANGE, BATCH].contains(at));
        values[GROUP] = 0.0;
        values[EXCHANGE] = 0.0;
        values[BATCH] = 0.0;
    }
    if all.len() < free.len() {
        let (rows, numbers) = (all.len(), free.len());
        let what = format!("{rows} rows for {numbers} numbers: fit to more depths or models");
        return Err(PredictError::Rows(what));
    }
    let fit = Fit { all, measured, formats: &formats };
    descend(&fit, &mut values, &free)?;
    Ok(fit.parameters(&values))
}

struct Fit<'a> {
    all: &'a [Observation],
    measured: &'a Measured,
    formats: &'a [&'a str],
}

impl Fit<'_> {
    fn parameters(&self, values: &[f64]) -> Parameters {
        let fragments = self.formats.iter().zip(&values[FRAGMENTS..]);
        Parameters {
            bandwidth_gb_s: self.measured.bandwidth_gb_s,
            hand_off_ns: self.measured.hand_off_ns.clone(),
            layer_us: values[LAYER],
            fragment_ns: fragments.map(|(name, ns)| ((*name).to_owned(), *ns)).collect(),
            group_us: values[GROUP],
            batch_us: values[BATCH],
            exchange_us: values[EXCHANGE],
            head_gb_s: self.measured.head_gb_s.clone(),
            argmax_us: self.measured.argmax_us,
            launch_us: values[LAUNCH],
        }
    }

    /// Each observation's error, as a share of the measured time.
    fn errors(&self, values: &[f64]) -> Result<Vec<f64>, PredictError> {
        let of = self.parameters(values);
        let error = |each: &Observation| {
            let parts = predicted(&each.work, each.first, each.steps, &of)?;
            Ok(parts.step_us() / each.step_us - 1.0)
        };
        self.all.iter().map(error).collect()
    }
}

fn squares(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum()
}

/// Improves the free values until a step gains nothing.
fn descend(fit: &Fit, values: &mut Vec<f64>, free: &[usize]) -> Result<(), PredictError> {
    let mut damping = 1e-3;
    let mut errors = fit.errors(values)?;
    for _ in 0..STEPS_MAX {
        let slopes = slopes(fit, values, free, &errors)?;
        let mut better = None;
        while better.is_none() && damping < 1e9 {
            let mut next = values.clone();
            for (at, step) in free.iter().zip(step(&slopes, &errors, damping)) {
                next[*at] = (next[*at] + step).max(0.0);
            }
            let own = fit.errors(&next)?;
            if squares(&own) < squares(&errors) {
                better = Some((next, own));
                damping *= 0.3;
            } else {
                damping *= 4.0;
            }
        }
        let Some((next, own)) = better else { return Ok(()) };
        let gain = squares(&errors) - squares(&own);
        (*values, errors) = (next, own);
        if gain < GAIN_MIN * squares(&errors) {
            return Ok(());
        }
    }
    Ok(())
}

/// How each error changes with each free value: a row per observation.
fn slopes(
    fit: &Fit,
    values: &[f64],
    free: &[usize],
    errors: &[f64],
) -> Result<Vec<Vec<f64>>, PredictError> {
    let mut rows = vec![Vec::with_capacity(free.len()); errors.len()];
    for &at in free {
        let mut moved = values.to_vec();
        let by = (1e-4 * values[at]).max(1e-5);
        moved[at] += by;
        for (row, (after, before)) in rows.iter_mut().zip(fit.errors(&moved)?.iter().zip(errors)) {
            row.push((after - before) / by);
        }
    }
    Ok(rows)
}

/// The damped step that the slopes ask for: the normal equations, by elimination.
fn step(slopes: &[Vec<f64>], errors: &[f64], damping: f64) -> Vec<f64> {
    let count = slopes.first().map_or(0, Vec::len);
    let product = |a: usize, b: usize| slopes.iter().map(|row| row[a] * row[b]).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = (0..count)
        .map(|a| {
            let mut row: Vec<f64> = (0..count).map(|b| product(a, b)).collect();
            row[a] = row[a] * (1.0 + damping) + 1e-15;
            row.push(-slopes.iter().zip(errors).map(|(own, error)| own[a] * error).sum::<f64>());
            row
        })
        .collect();
    // Damped, the matrix is positive definite: no pivot is 0.
    for at in 0..count {
        let pivot = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at] / pivot[at];
            row.iter_mut().zip(&pivot).for_each(|(value, own)| *value -= factor * own);
        }
    }
    rows.iter().enumerate().map(|(at, row)| row[count] / row[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Calibration;
    use monolith_kernels::Arch;
    use monolith_model::synth;
    use monolith_pack::Formats;

    fn measured(of: &Parameters) -> Measured {
        Measured {
            bandwidth_gb_s: of.bandwidth_gb_s,
            hand_off_ns: of.hand_off_ns.clone(),
            head_gb_s: of.head_gb_s.clone(),
            argmax_us: of.argmax_us,
        }
    }

    /// Steps that take exactly what these numbers say.
    fn observations(of: &Parameters, depths: &[usize]) -> Vec<Observation> {
        let mut all = Vec::new();
        for (shape, formats) in
            ["tiny", "qwen3-0.6b"].iter().flat_map(|s| [(*s, Formats::BF16), (*s, Formats::FP8)])
        {
            let work = Work::of(&synth::shape(shape).unwrap(), formats, Arch::SM_90A, 132).unwrap();
            all.extend(depths.iter().map(|&first| {
                let step_us = predicted(&work, first, 64, of).unwrap().step_us();
                Observation {
                    name: shape.to_string(),
                    work: work.clone(),
                    first,
                    steps: 64,
                    step_us,
                }
            }));
        }
        all
    }

    #[test]
    fn numbers_are_found_again() {
        let of = Parameters {
            layer_us: 3.5,
            group_us: 0.4,
            launch_us: 6.0,
            ..Calibration::shipped().parameters
        };
        let found = fitted(&observations(&of, &[16, 2048]), &measured(&of)).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-2 * b.max(0.1);
        assert!(near(found.layer_us, 3.5) && near(found.group_us, 0.4), "{found:?}");
        assert!(near(found.launch_us, 6.0) && near(found.exchange_us, of.exchange_us), "{found:?}");
        for (format, ns) in &of.fragment_ns {
            assert!(near(found.fragment_ns[format], *ns), "{found:?}");
        }
    }

    #[test]
    fn one_depth_says_nothing_of_attention_and_too_few_rows_are_refused() {
        let of = Calibration::shipped().parameters;
        let all = observations(&of, &[16]);
        let found = fitted(&all, &measured(&of)).unwrap();
        assert_eq!((found.group_us, found.batch_us, found.exchange_us), (0.0, 0.0, 0.0));
        let message = fitted(&all[..2], &measured(&of)).unwrap_err().to_string();
        assert!(message.contains("2 rows for"), "{message}");
    }
}
