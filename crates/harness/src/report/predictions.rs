//! Predictions beside measured rows, and predictions for GPUs that nobody here has measured.

use crate::HarnessError;
use crate::bench::{Row, Test, signed_percent};
use crate::markdown::cell;
use crate::predict::{
    Calibration, GPUS, Gpu, Measured, Observation, Origin, Parts, PredictError, Predictor, fitted,
    predicted,
};
use crate::runs::RunFolder;
use monolith_kernels::Variant;
use monolith_model::{Config, synth};
use monolith_pack::Formats;
use std::fmt::Write;

/// Shapes that a row is compared with to know its model's.
const SHAPES: [&str; 2] = ["qwen3-0.6b", "tiny"];
/// Tokens of a forecast's tests, as in the benchmark.
const STEPS: usize = 256;
/// Positions of a forecast's tests.
const DEPTHS: [usize; 2] = [16, 2048];

/// A measured row and its prediction.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Format, model, test.
    pub names: [String; 3],
    /// What was measured.
    pub observation: Observation,
    /// What is predicted.
    pub parts: Parts,
    /// Whether the calibration was fitted to the row.
    pub fitted: bool,
}

impl Compared {
    /// How much longer a token took than predicted, as a share of the prediction.
    pub fn error(&self) -> f64 {
        self.observation.step_us / self.parts.step_us() - 1.0
    }
}

/// Returns what a row measured, as the fit takes it; `None` if it decodes nothing, if its
/// kernel is not its formats' default, or if its model's shape is not known.
///
/// Rows do not state the shape: the bytes of a layer and of the head tell it.
fn observation(row: &Row, predictor: &Predictor) -> Option<Observation> {
    let counted = row.prediction.as_ref()?;
    let formats = Formats::from_name(&row.format)?;
    Variant::of_formats(formats.map()).filter(|own| own.name == row.variant)?;
    let configs = SHAPES.iter().filter_map(|name| synth::shape(name));
    let work = configs.filter_map(|config| predictor.work(&config, formats).ok()).find(|work| {
        (work.layers, work.layer_bytes, work.head_bytes)
            == (counted.layers, counted.layer_bytes, counted.head_bytes)
    })?;
    let mean = counted.kv_bytes / work.kv_bytes_per_position as f64;
    let first = mean - (row.n_gen.max(1) - 1) as f64 / 2.0;
    Some(Observation {
        name: row.test.clone(),
        first: row.position.unwrap_or(first.round() as usize),
        steps: row.n_gen,
        step_us: 1e6 / row.tok_s_median?,
        work,
    })
}

/// Compares a run's rows with what a calibration predicts for them.
///
/// # Errors
/// A folder that cannot be read, or a format without a figure.
pub fn compared(folder: &RunFolder, predictor: &Predictor) -> Result<Vec<Compared>, HarnessError> {
    let origin = &predictor.calibration.origin;
    let all = super::sorted_rows(folder)?.shown;
    let all = all.iter().filter_map(|row| Some((row, observation(row, predictor)?)));
    let compare = |(row, observation): (&Row, Observation)| {
        let Observation { work, first, steps, .. } = &observation;
        let parts = predicted(work, *first, *steps, predictor.parameters())?;
        let fitted = origin.run == folder.name && origin.fitted_to.contains(&fit_name(row));
        let names = [row.format.clone(), row.model.clone(), row.test.clone()];
        Ok(Compared { names, observation, parts, fitted })
    };
    all.map(compare).collect()
}

/// Names a row among those that a calibration was fitted to.
fn fit_name(row: &Row) -> String {
    format!("{} {} {}", row.model, row.format, row.test)
}

/// Fits a calibration to a run's rows at some depths; its other rows test the calibration.
///
/// # Errors
/// A folder that cannot be read, a GPU of which nothing is known, or too few rows.
pub fn calibrated(
    folder: &RunFolder,
    depths: &[usize],
    models: &[String],
    measured: &Measured,
    hand_off_source: &str,
) -> Result<Calibration, HarnessError> {
    let environment = folder.environment()?;
    let mut calibration = Calibration::shipped();
    // Only its table of GPUs and kernels is needed to count the work.
    let counter = Predictor::new(calibration.clone(), &environment.gpu)?;
    let rows = super::sorted_rows(folder)?.shown;
    let chosen = rows.iter().filter(|row| {
        row.position.is_some_and(|position| depths.contains(&position))
            && (models.is_empty() || models.contains(&row.model))
    });
    let chosen: Vec<(&Row, Observation)> =
        chosen.filter_map(|row| Some((row, observation(row, &counter)?))).collect();
    let Some((first, _)) = chosen.first() else {
        let what = format!("{} has no verified row at these depths", folder.name);
        return Err(PredictError::Rows(what).into());
    };
    calibration.origin = Origin {
        run: folder.name.clone(),
        gpu: environment.gpu.clone(),
        date: environment.date.clone(),
        commit: first.commit.clone(),
        fitted_to: chosen.iter().map(|(row, _)| fit_name(row)).collect(),
        hand_off_source: hand_off_source.into(),
    };
    let observations: Vec<Observation> = chosen.into_iter().map(|(_, own)| own).collect();
    calibration.parameters = fitted(&observations, measured)?;
    Ok(calibration)
}

/// Renders measured rows with their predictions.
pub fn comparison(all: &[Compared]) -> String {
    let mut text = String::from(
        "us a token, and the parts of the prediction\n\n\
         | format | model | test | measured | predicted | error | weights | hand-offs | compute \
         | head | argmax | launch | calibrated with |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for row in all {
        let names = row.names.each_ref().map(|name| cell(name)).join(" | ");
        let (measured, predicted) = (row.observation.step_us, row.parts.step_us());
        let error = signed_percent(Some(row.error()));
        let fitted = if row.fitted { "yes" } else { "held out" };
        let parts = cells(&row.parts);
        let _ = writeln!(
            text,
            "| {names} | {measured:.1} | {predicted:.1} | {error} | {parts} | {fitted} |"
        );
    }
    text += "\nError: how much longer a token took than predicted.\n";
    for (name, fitted) in [("calibrated with", true), ("held out", false)] {
        let errors: Vec<f64> =
            all.iter().filter(|row| row.fitted == fitted).map(Compared::error).collect();
        if let Some(worst) = errors.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())) {
            let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
            let _ = writeln!(
                text,
                "Rows {name}: {}, mean size of the error {:.1}%, worst {:+.1}%.",
                errors.len(),
                100.0 * mean,
                100.0 * worst
            );
        }
    }
    text
}

/// The parts, in the order of the tables' columns.
fn cells(parts: &Parts) -> String {
    let Parts { weights_us, hand_offs_us, compute_us, head_us, argmax_us, launch_us } = *parts;
    let all = [weights_us, hand_offs_us, compute_us, head_us, argmax_us, launch_us];
    all.map(|us| format!("{us:.1}")).join(" | ")
}

/// What a table of predictions is for.
#[derive(Clone, Debug)]
pub struct Forecast<'a> {
    /// The model's name in the table.
    pub model: &'a str,
    /// Its shape.
    pub config: &'a Config,
    /// The formats, a row each.
    pub formats: &'a [Formats],
    /// Positions before the first token, a row each.
    pub depths: &'a [usize],
    /// Tokens of each test.
    pub steps: usize,
}

/// Renders predictions for a GPU, and what they are based on.
///
/// # Errors
/// No kernel runs the model, or the calibration has no figure for a format.
pub fn forecast(predictor: &Predictor, of: &Forecast) -> Result<String, PredictError> {
    let gpu = predictor.gpu;
    // A bandwidth that somebody else measured stands beside the data sheet's.
    let nominal = predictor.clone().with_bandwidth(gpu.nominal_gb_s);
    let nominal = Some(nominal).filter(Predictor::is_scaled);
    let (head, rule) = match nominal {
        Some(_) => (format!(" tok/s at {:.0} GB/s |", gpu.nominal_gb_s), "--:|"),
        None => (String::new(), ""),
    };
    let mut text = format!(
        "us a token, and its parts; predicted, not measured\n\n\
         | format | model | test | tok/s | us | weights | hand-offs | compute | head | argmax \
         | launch |{head}\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|{rule}\n"
    );
    for (formats, depth) in
        of.formats.iter().flat_map(|formats| of.depths.iter().map(move |depth| (formats, *depth)))
    {
        let parts = |predictor: &Predictor| -> Result<Parts, PredictError> {
            let work = predictor.work(of.config, *formats)?;
            predicted(&work, depth, of.steps, predictor.parameters())
        };
        let own = parts(predictor)?;
        let nominal = nominal.as_ref().map(parts).transpose()?;
        let nominal = nominal.map_or(String::new(), |parts| format!(" {:.0} |", parts.tok_s()));
        let test = Test::Depth { depth, steps: of.steps }.name();
        let _ = writeln!(
            text,
            "| {} | {} | {test} | {:.0} | {:.1} | {} |{nominal}",
            cell(&formats.name()),
            cell(of.model),
            own.tok_s(),
            own.step_us(),
            cells(&own),
        );
    }
    Ok(text + "\n" + &basis(predictor))
}

/// Says what a GPU's predictions are based on.
fn basis(predictor: &Predictor) -> String {
    let (gpu, origin) = (predictor.gpu, &predictor.calibration.origin);
    let run = cell(&origin.run);
    let own = cell(&origin.gpu);
    let mut text = format!(
        "Predicted, not measured. Bandwidth {:.0} GB/s, clock {:.0} MHz, {} multiprocessors: {}. ",
        predictor.parameters().bandwidth_gb_s,
        gpu.clock_mhz,
        gpu.multiprocessors,
        gpu.source
    );
    text += &if predictor.is_scaled() {
        format!(
            "Hand-offs, compute and argmax are the {own}'s of {run}, in as many clocks; a \
             stream of weights slows hand-offs by its share of the bandwidth; the launch takes as \
             long as there. The weights are taken to stream as far ahead as there, with less \
             shared memory for them. How far another GPU's hand-offs and arithmetic differ, nobody \
             here has measured.\n"
        )
    } else {
        format!("Its numbers were fitted to {run}.\n")
    };
    if !gpu.published.is_empty() {
        let _ = writeln!(text, "\n{}", gpu.published);
    }
    text
}

/// Renders a section for every GPU with facts but without a measured run.
///
/// # Errors
/// Never for the shipped calibration and its formats; a test renders it.
pub(super) fn forecasts(measured: &[&str]) -> Result<String, HarnessError> {
    let config = Config::qwen3_0_6b();
    let of = Forecast {
        model: "qwen3-0.6b",
        config: &config,
        formats: &[Formats::BF16, Formats::FP8],
        depths: &DEPTHS,
        steps: STEPS,
    };
    let calibration = Calibration::shipped();
    let unmeasured =
        |gpu: &&Gpu| !measured.contains(&gpu.name) && gpu.name != calibration.origin.gpu;
    let mut text = String::new();
    for gpu in GPUS.iter().filter(unmeasured) {
        let predictor = Predictor::new(calibration.clone(), gpu.name)?;
        let _ = writeln!(text, "### {}: predicted, not measured\n", gpu.name);
        text += &(forecast(&predictor, &of)? + "\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_a_run_has_a_section_of_its_own() {
        let text = forecasts(&["NVIDIA H200"]).unwrap();
        let own = format!("NVIDIA H200's of {}", Calibration::shipped().origin.run);
        for part in [
            own.as_str(),
            "### NVIDIA GeForce RTX 5090: predicted, not measured",
            "| bf16 | qwen3-0.6b | tg256 @ d16 |",
            "| fp8 | qwen3-0.6b | tg256 @ d2048 |",
            "1,036 tok/s",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(forecasts(&["NVIDIA GeForce RTX 5090"]).unwrap(), "");
    }
}
