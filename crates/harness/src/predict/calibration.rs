//! The calibrated numbers, and where they come from.

use super::{Gpu, HandOff, PredictError};
use monolith_abi::WeightFormat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The shipped calibration: what `monolith predict --calibrate` wrote.
const SHIPPED: &str = include_str!("h200.json");

/// What one kernel costs on one GPU: a few kinds of numbers, each for one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Rate at which the kernel can read weights, GB/s: probes of the run, by bulk copies, as the
    /// kernel reads.
    pub bandwidth_gb_s: f64,
    /// A hand-off beside a stream of weights, pairs of TB/s and ns.
    pub hand_off_ns: HandOff,
    /// Compute of a layer that depends on no size: latencies of four products with their sums and
    /// epilogues, us. Fitted.
    pub layer_us: f64,
    /// Compute of one more fragment in the busiest warp, ns, by the layers' format: widening
    /// included. Fitted.
    pub fragment_ns: BTreeMap<String, f64>,
    /// Attention: 16 more cached positions in the busiest share, us: their way through the ring.
    /// Where all blocks' copies together take longer by the bandwidth, that counts instead. Fitted.
    pub group_us: f64,
    /// Attention: one more batch of groups, us: scores, softmax and sums of values. Fitted.
    pub batch_us: f64,
    /// Attention: what the exchange among ranks takes besides its hand-off, us: each publishes, and
    /// combines all results. Fitted.
    pub exchange_us: f64,
    /// Rate at which the LM head is read and multiplied, GB/s, by its format: the X-rays' critical
    /// paths.
    pub head_gb_s: BTreeMap<String, f64>,
    /// The argmax over all blocks, us: the X-rays' critical paths.
    pub argmax_us: f64,
    /// From one launch's end to the next one's first layer, us: the launch and the embedding.
    /// Fitted.
    pub launch_us: f64,
}

/// Where the numbers were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The run's folder.
    pub run: String,
    /// The GPU.
    pub gpu: String,
    /// When, UTC.
    pub date: String,
    /// The build's commit.
    pub commit: Option<String>,
    /// The rows that the fitted numbers come from.
    pub fitted_to: Vec<String>,
    /// Where the hand-off's times come from.
    pub hand_off_source: String,
}

/// Numbers and their origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Where they were measured.
    pub origin: Origin,
    /// The numbers.
    pub parameters: Parameters,
}

impl Calibration {
    /// The shipped calibration, of the H200.
    ///
    /// # Panics
    /// Never: a test reads the file.
    pub fn shipped() -> Calibration {
        serde_json::from_str(SHIPPED).expect("the shipped calibration is whole")
    }

    /// Reads a calibration from a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Calibration, PredictError> {
        let wrong = |what: String| PredictError::File { path: path.to_owned(), what };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let of: Calibration = serde_json::from_str(&text).map_err(|error| {
            wrong(format!("no calibration (`monolith predict --calibrate`): {error}"))
        })?;
        of.parameters.check().map_err(wrong)?;
        Ok(of)
    }

    /// The calibration as a file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers are JSON") + "\n"
    }

    /// The numbers for a GPU: those that were measured if it is the calibration's own, else scaled
    /// ([`Parameters::scaled`]).
    ///
    /// # Errors
    /// The calibration is of a GPU of which nothing is known.
    pub fn for_gpu(&self, gpu: &Gpu) -> Result<Parameters, PredictError> {
        if self.origin.gpu == gpu.name {
            return Ok(self.parameters.clone());
        }
        Ok(self.parameters.scaled(Gpu::find(&self.origin.gpu)?, gpu))
    }
}

impl Parameters {
    /// The numbers for another GPU, by the two that are known of it. Its bandwidth is its own.
    /// Hand-offs, compute and argmax take as many clocks; a stream loads the hand-offs by its share
    /// of the bandwidth. The launch takes the same time. The LM head is read at the GPU's
    /// bandwidth, unless its arithmetic is slower.
    #[must_use]
    pub fn scaled(&self, from: &Gpu, to: &Gpu) -> Parameters {
        let time = from.clock_mhz / to.clock_mhz;
        let bandwidth = to.bandwidth_gb_s / self.bandwidth_gb_s;
        let times = |all: &BTreeMap<String, f64>, by: f64| {
            all.iter().map(|(name, value)| (name.clone(), value * by)).collect()
        };
        Parameters {
            bandwidth_gb_s: to.bandwidth_gb_s,
            hand_off_ns: self.hand_off_ns.scaled(bandwidth, time),
            layer_us: self.layer_us * time,
            fragment_ns: times(&self.fragment_ns, time),
            group_us: self.group_us * time,
            batch_us: self.batch_us * time,
            exchange_us: self.exchange_us * time,
            head_gb_s: times(&self.head_gb_s, 1.0 / time),
            argmax_us: self.argmax_us * time,
            launch_us: self.launch_us,
        }
    }

    /// Checks that every number is one that a time can come from.
    fn check(&self) -> Result<(), String> {
        let rates = self.head_gb_s.values().chain([&self.bandwidth_gb_s]);
        let attention = [self.group_us, self.batch_us, self.exchange_us];
        let times = attention.into_iter().chain([self.layer_us, self.argmax_us, self.launch_us]);
        let times = self.fragment_ns.values().copied().chain(times);
        if rates.into_iter().all(|rate| rate.is_finite() && *rate > 0.0)
            && times.into_iter().all(|time| time.is_finite() && time >= 0.0)
        {
            return Ok(());
        }
        Err("a rate must be above 0 and a time at least 0".into())
    }
}

/// The figure of a format.
pub(super) fn of_format(
    all: &BTreeMap<String, f64>,
    format: WeightFormat,
) -> Result<f64, PredictError> {
    all.get(format.name()).copied().ok_or_else(|| PredictError::Format {
        format: format.name().into(),
        known: all.keys().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_whole_and_reads_back() {
        let shipped = Calibration::shipped();
        shipped.parameters.check().unwrap();
        assert_eq!(shipped.to_json(), SHIPPED);
        assert_eq!(shipped.origin.gpu, "NVIDIA H200");
        for format in ["bf16", "fp8"] {
            assert!(shipped.parameters.fragment_ns.contains_key(format));
            assert!(shipped.parameters.head_gb_s.contains_key(format));
        }
    }

    #[test]
    fn a_damaged_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Calibration::read(file.path()).unwrap_err().to_string()
        };
        assert!(message("{}").contains("no calibration"));
        let shipped = Calibration::shipped();
        let mut wrong = shipped.clone();
        wrong.parameters.group_us = -1.0;
        assert!(message(&wrong.to_json()).contains("at least 0"));
        std::fs::write(file.path(), shipped.to_json()).unwrap();
        assert_eq!(Calibration::read(file.path()).unwrap(), shipped);
    }

    #[test]
    fn its_own_gpu_is_not_scaled() {
        let shipped = Calibration::shipped();
        let of = |name| shipped.for_gpu(Gpu::named(name).unwrap()).unwrap();
        assert_eq!(of("NVIDIA H200"), shipped.parameters);
        let other = of("rtx-5090");
        assert_eq!(other.launch_us, shipped.parameters.launch_us);
        assert!(other.layer_us < shipped.parameters.layer_us, "its clock is faster");
        assert!(other.bandwidth_gb_s < shipped.parameters.bandwidth_gb_s);
    }
}
