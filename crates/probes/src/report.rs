//! The probes' report. Field names end in their units.

use serde::{Deserialize, Serialize};

/// Changes when the meaning of a field does.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of one run of the probes on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The time, in UTC.
    pub date: String,
    /// The GPU.
    pub gpu: GpuInfo,
    /// Conversions to f16, compared with the formats' definitions.
    pub convert: Outcome<Convert>,
    /// The steps of `%globaltimer`.
    pub timer: Outcome<Timer>,
    /// The rate of `clock64`.
    pub clock: Outcome<Clock>,
    /// The offsets of both between multiprocessors.
    pub offsets: Outcome<Offsets>,
    /// Reading memory.
    pub bandwidth: Outcome<Vec<Bandwidth>>,
    /// Hand-offs between all blocks.
    pub handoff: Outcome<Vec<Handoff>>,
    /// Whether Nsight Compute reads the hardware's counters.
    pub counters: Outcome<Counters>,
    /// How long the probes took.
    pub seconds: f64,
}

/// A probe's result, or why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// The result.
    Measured(T),
    /// Why there is no result.
    Failed(String),
}

impl<T> Outcome<T> {
    /// Returns why there is no result, if there is none.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Measured(_) => None,
            Outcome::Failed(why) => Some(why),
        }
    }
}

/// The GPU and its software.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// The name that the driver gives it.
    pub name: String,
    /// The architecture that the kernels were compiled for.
    pub arch: String,
    /// Compute capability.
    pub compute_capability: String,
    /// The driver's version, if NVML reports it.
    pub driver: Option<String>,
    /// The newest CUDA that the driver supports.
    pub cuda: String,
    /// Number of multiprocessors.
    pub multiprocessors: usize,
    /// Size of the L2 cache.
    pub l2_bytes: usize,
    /// What compiled the kernels.
    pub kernels: String,
}

/// Conversions to f16.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Convert {
    /// `cvt.rn.f16x2.e4m3x2`.
    pub e4m3_by_cvt: Comparison,
    /// The code's low bits shifted left by 7: the value times 2^-8.
    pub e4m3_by_shift: Comparison,
    /// `cvt.rn.f16x2.e2m1x2`; absent where the GPU has no such instruction.
    pub e2m1_by_cvt: Option<Comparison>,
    /// The code's low bits shifted left by 9: the value times 2^-14.
    pub e2m1_by_shift: Comparison,
}

/// A conversion, compared with its reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Number of inputs, each of two codes: all that exist.
    pub inputs: usize,
    /// Number of inputs whose bits differ from the reference.
    pub mismatches: usize,
    /// The first inputs that differ.
    pub first_mismatch: Option<Mismatch>,
    /// The f16 values that NaN codes became.
    pub nan_f16_hex: Vec<String>,
}

/// An input whose bits differ from the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Two codes.
    pub input_hex: String,
    /// Two f16; `None` for any NaN.
    pub expected_hex: [Option<String>; 2],
    /// Two f16.
    pub got_hex: [String; 2],
}

/// The steps of `%globaltimer`, as one thread sees them while reading it in a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// Number of reads.
    pub reads: u64,
    /// Number of reads that saw a change.
    pub steps_seen: u64,
    /// Number of different step sizes.
    pub step_sizes: usize,
    /// The smallest step.
    pub step_ns_min: i64,
    /// The median step.
    pub step_ns_median: i64,
    /// The largest step.
    pub step_ns_max: i64,
    /// Number of times that the timer went back.
    pub steps_backward: usize,
    /// Time between two reads.
    pub read_ns: f64,
}

/// The rate of `clock64` against `%globaltimer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Duration of the measurement.
    pub window_ms: f64,
    /// Number of measured multiprocessors.
    pub multiprocessors: usize,
    /// The slowest rate.
    pub rate_mhz_min: f64,
    /// The median rate.
    pub rate_mhz_median: f64,
    /// The fastest rate.
    pub rate_mhz_max: f64,
}

/// The clock offsets between multiprocessors, measured by messages and their answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offsets {
    /// Number of multiprocessors compared with the first block's.
    pub multiprocessors: usize,
    /// Messages to each multiprocessor.
    pub rounds: u32,
    /// Time of a message and its answer.
    pub round_trip_ns_median: f64,
    /// Largest possible offset of `%globaltimer` from the first block's.
    pub timer_ns_bound: i64,
    /// Difference between the timers most behind and most ahead, by the middle of their bounds.
    pub timer_ns_spread: f64,
    /// Half the width of the widest bounds.
    pub timer_ns_uncertainty: f64,
    /// The same difference for `clock64`.
    pub clock64_clocks_spread: f64,
    /// Half the width of the widest bounds.
    pub clock64_clocks_uncertainty: f64,
}

/// The results of one way of reading memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// The way, in words.
    pub way: String,
    /// Bytes read per launch.
    pub bytes: u64,
    /// Number of timed launches.
    pub launches: usize,
    /// The median launch.
    pub us_median: f64,
    /// The median launch's rate, in 10^9 bytes per second.
    pub gb_per_s_median: f64,
    /// The slowest launch's.
    pub gb_per_s_min: f64,
    /// The fastest launch's.
    pub gb_per_s_max: f64,
}

/// The results of one kind of hand-off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    /// The kind, in words.
    pub way: String,
    /// Number of blocks, one per multiprocessor.
    pub blocks: usize,
    /// Number of counted hand-offs per launch.
    pub exchanges: usize,
    /// Number of timed launches.
    pub launches: usize,
    /// Median hand-off of the median launch.
    pub us_median: f64,
    /// Median hand-off of the fastest launch.
    pub us_median_min: f64,
    /// Median hand-off of the slowest launch.
    pub us_median_max: f64,
    /// Mean hand-off of the median launch.
    pub us_mean: f64,
}

/// Whether Nsight Compute reads the hardware's counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Whether Nsight Compute can read them.
    pub work: bool,
    /// Nsight Compute's version.
    pub ncu: Option<String>,
    /// `sm__cycles_elapsed.max` of a small kernel, if it was read.
    pub sm_cycles_elapsed_max: Option<f64>,
    /// Why the counters cannot be read.
    pub why: Option<String>,
}

impl Report {
    /// Returns the failed probes: name and reason. Unreadable counters are a result, not a failure.
    pub fn failures(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("convert", self.convert.failure()),
            ("timer", self.timer.failure()),
            ("clock", self.clock.failure()),
            ("offsets", self.offsets.failure()),
            ("bandwidth", self.bandwidth.failure()),
            ("handoff", self.handoff.failure()),
            ("counters", self.counters.failure()),
        ];
        all.into_iter().filter_map(|(name, why)| why.map(|why| (name, why))).collect()
    }

    /// Returns the report as indented JSON with a newline at its end.
    pub fn to_json(&self) -> String {
        // Plain numbers and text: this cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
