//! Predicts the time of a step from counted work and a few calibrated numbers.
//!
//! ```text
//! step  = layers x layer + head + argmax + launch
//! layer = max(layer bytes / bandwidth, hand-offs x h(load) + compute)
//! ```
//!
//! A layer's bytes include its KV cache. `h(load)` is the time of a hand-off while weights stream
//! at that rate, and the rate follows from the result, layer bytes / layer: `model` solves that.
//! `work` counts bytes, hand-offs and the busiest warp's work from the model's shape and the
//! kernel's row; `calibration` holds the numbers that were fitted to a named run, and `fit` fits
//! them. How well they predict rows that they were not fitted to: `notes/prediction.md`.

mod calibration;
mod fit;
mod gpus;
mod hand_off;
mod model;
mod record;
mod work;

pub use calibration::{Calibration, Origin, Parameters};
pub use fit::{Measured, Observation, fitted};
pub use gpus::{GPUS, Gpu};
pub use hand_off::HandOff;
pub use model::{Parts, predicted};
pub use record::{Basis, Prediction, Predictor};
pub use work::{Attention, Stretch, Work};

use std::path::PathBuf;

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// No kernel runs the model or the formats.
    #[error("{0}")]
    Kernel(String),
    /// The GPU is not in the table.
    #[error(
        "no prediction for \"{name}\": its bandwidth and clock are not known; the GPUs in \
         crates/harness/src/predict/gpus.rs are {}", known.join(", ")
    )]
    UnknownGpu {
        /// The name.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// The calibration has no figure for a format.
    #[error(
        "the calibration has no figure for weights in {format}, only for {}: fit one to a run that \
         measured them (`monolith predict --calibrate`)", known.join(", ")
    )]
    Format {
        /// The format.
        format: String,
        /// The formats that it has.
        known: Vec<String>,
    },
    /// A calibration file that contradicts itself.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Rows that no calibration can be fitted to.
    #[error("no calibration can be fitted: {0}")]
    Rows(String),
}
