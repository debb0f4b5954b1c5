//! A prediction as rows record it.

use super::{Calibration, Gpu, Parameters, Parts, PredictError, Work, predicted};
use monolith_model::Config;
use monolith_pack::Formats;
use serde::{Deserialize, Serialize};

/// A prediction: what was counted, what follows, and what it is based on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Layers of the model.
    pub layers: usize,
    /// Bytes of one layer's weights.
    pub layer_bytes: u64,
    /// Bytes of the LM head.
    pub head_bytes: u64,
    /// Bytes of one layer's KV cache, mean over the steps.
    pub kv_bytes: f64,
    /// Hand-offs of a layer, mean over the steps. (`phases` in rows before version 3.)
    #[serde(alias = "phases")]
    pub hand_offs: f64,
    /// The parts of a step. `None` in rows before version 3: their predicted speed is the time to
    /// read the bytes, nothing else.
    #[serde(default)]
    pub parts: Option<Parts>,
    /// What it is based on. (Not in rows before version 3.)
    #[serde(default)]
    pub basis: Option<Basis>,
}

/// What a prediction is based on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// The run that the numbers were fitted to.
    pub run: String,
    /// The GPU of that run. The numbers are scaled if it is another one than the row's.
    pub gpu: String,
    /// Its date.
    pub date: String,
}

/// A calibration's numbers for one GPU.
#[derive(Clone, Debug)]
pub struct Predictor {
    /// The GPU.
    pub gpu: &'static Gpu,
    /// The calibration.
    pub calibration: Calibration,
    parameters: Parameters,
}

impl Predictor {
    /// Takes or scales a calibration's numbers for a GPU.
    ///
    /// # Errors
    /// Nothing is known of the GPU.
    pub fn new(calibration: Calibration, gpu: &str) -> Result<Predictor, PredictError> {
        let gpu = Gpu::find(gpu)?;
        let parameters = calibration.for_gpu(gpu)?;
        Ok(Predictor { gpu, calibration, parameters })
    }

    /// Whether the numbers are another GPU's, scaled.
    pub fn is_scaled(&self) -> bool {
        self.gpu.name != self.calibration.origin.gpu
    }

    /// The same with another bandwidth, GB/s.
    #[must_use]
    pub fn with_bandwidth(mut self, bandwidth_gb_s: f64) -> Predictor {
        self.parameters.bandwidth_gb_s = bandwidth_gb_s;
        self
    }

    /// The numbers.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The work of a model's steps on the GPU.
    ///
    /// # Errors
    /// No kernel runs the model or the formats.
    pub fn work(&self, config: &Config, formats: Formats) -> Result<Work, PredictError> {
        Work::of(config, formats, self.gpu.arch, self.gpu.multiprocessors)
    }

    /// Predicts the mean of `steps` steps from position `first` on.
    ///
    /// # Errors
    /// No kernel runs the model or the formats, or the calibration has no figure for them.
    pub fn predict(
        &self,
        config: &Config,
        formats: Formats,
        first: usize,
        steps: usize,
    ) -> Result<Prediction, PredictError> {
        let work = self.work(config, formats)?;
        let stretches = work.stretches(first, steps.max(1));
        let mean = |of: &dyn Fn(usize, f64) -> f64| -> f64 {
            let all = stretches.iter().map(|stretch| {
                let attention = stretch.attention;
                stretch.steps as f64 * of(attention.shares, attention.kv_bytes)
            });
            all.sum::<f64>() / steps.max(1) as f64
        };
        let origin = &self.calibration.origin;
        Ok(Prediction {
            layers: work.layers,
            layer_bytes: work.layer_bytes,
            head_bytes: work.head_bytes,
            kv_bytes: mean(&|_, bytes| bytes),
            hand_offs: mean(&|shares, _| (work.hand_offs + usize::from(shares > 1)) as f64),
            parts: Some(predicted(&work, first, steps, &self.parameters)?),
            basis: Some(Basis {
                run: origin.run.clone(),
                gpu: origin.gpu.clone(),
                date: origin.date.clone(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As rows of version 2 have it.
    const OLD: &str = r#"{"layers":28,"layer_bytes":31461888,"head_bytes":311164928,
        "kv_bytes":587776.0,"phases":5,"calibration":{"bandwidth_gb_s":4241.0,"hand_off_us":0.0,
        "compute_us":0.0,"argmax_us":0.0,"source":"the probe"}}"#;

    #[test]
    fn an_older_rows_prediction_is_read_and_has_no_parts() {
        let old: Prediction = serde_json::from_str(OLD).unwrap();
        assert_eq!((old.layers, old.hand_offs, old.parts), (28, 5.0, None));
        assert_eq!(old.basis, None);
    }

    #[test]
    fn a_prediction_reads_back_and_names_its_run() {
        let predictor = Predictor::new(Calibration::shipped(), "h200").unwrap();
        let config = Config::qwen3_0_6b();
        let of = predictor.predict(&config, Formats::BF16, 16, 256).unwrap();
        let text = serde_json::to_string(&of).unwrap();
        assert_eq!(serde_json::from_str::<Prediction>(&text).unwrap(), of);
        // At most half a position from the mean, since a stretch counts at a whole one.
        assert!((of.kv_bytes / 4096.0 - 143.5).abs() <= 0.5, "{of:?}");
        // The positions from 128 to 271 are shared.
        assert_eq!(of.hand_offs, 4.0 + 144.0 / 256.0);
        assert!(text.contains(&predictor.calibration.origin.run), "{text}");
        assert!(!predictor.is_scaled());
        assert!(Predictor::new(Calibration::shipped(), "rtx-5090").unwrap().is_scaled());
    }
}
