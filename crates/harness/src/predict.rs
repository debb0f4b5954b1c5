//! Predicts the time of a step from the pack's header and a few measured numbers.
//!
//! `t = layers x max(layer bytes / bandwidth, phases x hand-off + compute) + head bytes /
//! bandwidth + argmax`, where the layer's bytes include its share of the KV cache.

use monolith_pack::Header;
use serde::{Deserialize, Serialize};

/// Dependent phases of a layer, each with a hand-off.
pub const PHASES: usize = 5;

/// Numbers measured on the processor that the prediction is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Read bandwidth, GB/s (10^9 bytes).
    pub bandwidth_gb_s: f64,
    /// One hand-off, microseconds.
    pub hand_off_us: f64,
    /// A layer's arithmetic that overlaps with no read, microseconds.
    pub compute_us: f64,
    /// The last hand-off, microseconds.
    pub argmax_us: f64,
    /// Where the numbers were measured.
    pub source: String,
}

/// The inputs of a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Layers of the model.
    pub layers: usize,
    /// Bytes of one layer's weights.
    pub layer_bytes: u64,
    /// Bytes of the LM head.
    pub head_bytes: u64,
    /// Bytes of one layer's KV cache at the mean position.
    pub kv_bytes: f64,
    /// Hand-offs of a layer.
    pub phases: usize,
    /// The measured numbers.
    pub calibration: Calibration,
}

impl Prediction {
    /// The prediction's inputs for steps at this mean position.
    pub fn of(header: &Header, layers: usize, position: f64, calibration: &Calibration) -> Self {
        let bytes = |wanted: &dyn Fn(&str) -> bool| -> u64 {
            header.sections.iter().filter(|entry| wanted(&entry.name)).map(|e| e.bytes).sum()
        };
        Prediction {
            layers,
            layer_bytes: bytes(&|name| name.starts_with("layers.0.")),
            head_bytes: bytes(&|name| name == "lm_head"),
            kv_bytes: header.kv_bytes_per_position as f64 * position / layers.max(1) as f64,
            phases: PHASES,
            calibration: calibration.clone(),
        }
    }

    /// Seconds of one step.
    pub fn step_s(&self) -> f64 {
        let Calibration { bandwidth_gb_s, hand_off_us, compute_us, argmax_us, .. } =
            self.calibration;
        let stream = |bytes: f64| bytes / (bandwidth_gb_s * 1e9);
        let chain = (self.phases as f64 * hand_off_us + compute_us) * 1e-6;
        let layer = stream(self.layer_bytes as f64 + self.kv_bytes).max(chain);
        self.layers as f64 * layer + stream(self.head_bytes as f64) + argmax_us * 1e-6
    }

    /// Tokens per second.
    pub fn tok_s(&self) -> f64 {
        1.0 / self.step_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(hand_off_us: f64) -> Prediction {
        Prediction {
            layers: 28,
            layer_bytes: 31_000_000,
            head_bytes: 311_000_000,
            kv_bytes: 1_000_000.0,
            phases: PHASES,
            calibration: Calibration {
                bandwidth_gb_s: 4000.0,
                hand_off_us,
                compute_us: 1.0,
                argmax_us: 1.5,
                source: "a test".into(),
            },
        }
    }

    #[test]
    fn a_layer_takes_the_longer_of_stream_and_chain() {
        let by_stream = 28.0 * 32e6 / 4e12 + 311e6 / 4e12 + 1.5e-6;
        assert!((prediction(0.1).step_s() - by_stream).abs() < 1e-12);
        let by_chain = 28.0 * 11e-6 + 311e6 / 4e12 + 1.5e-6;
        assert!((prediction(2.0).step_s() - by_chain).abs() < 1e-12);
    }
}
