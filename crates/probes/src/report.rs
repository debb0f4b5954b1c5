//! What the probes found. Field names end in their units.

use serde::{Deserialize, Serialize};

/// Changes when the meaning of a field does.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that one run of the probes found, of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// When, in UTC.
    pub date: String,
    /// Of which GPU.
    pub gpu: GpuInfo,
    /// Conversions to f16 against the formats' definitions.
    pub convert: Outcome<Convert>,
    /// The steps of `%globaltimer`.
    pub timer: Outcome<Timer>,
    /// The rate of `clock64`.
    pub clock: Outcome<Clock>,
    /// How far both are apart between multiprocessors.
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

/// What a probe found, or why it found nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// It was measured.
    Measured(T),
    /// It was not, and this is why.
    Failed(String),
}

impl<T> Outcome<T> {
    /// Why there is nothing, if there is nothing.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Measured(_) => None,
            Outcome::Failed(why) => Some(why),
        }
    }
}

/// The GPU and what runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// The name that the driver gives it.
    pub name: String,
    /// What the kernels were compiled for.
    pub arch: String,
    /// Compute capability.
    pub compute_capability: String,
    /// The driver's version, where NVML tells it.
    pub driver: Option<String>,
    /// The newest CUDA that the driver knows.
    pub cuda: String,
    /// How many multiprocessors.
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

/// A conversion, against its reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How many inputs, each of two codes: all that there are.
    pub inputs: usize,
    /// How many of them gave other bits than the reference.
    pub mismatches: usize,
    /// The first of those.
    pub first_mismatch: Option<Mismatch>,
    /// The f16 that the codes that are not a number became.
    pub nan_f16_hex: Vec<String>,
}

/// One input that gave other bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Two codes.
    pub input_hex: String,
    /// Two f16; `None` for any that is not a number.
    pub expected_hex: [Option<String>; 2],
    /// Two f16.
    pub got_hex: [String; 2],
}

/// The steps of `%globaltimer`, as one thread sees them that reads it in a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// How often it was read.
    pub reads: u64,
    /// How often it had changed.
    pub steps_seen: u64,
    /// How many different sizes the steps had.
    pub step_sizes: usize,
    /// The smallest step.
    pub step_ns_min: i64,
    /// The typical step: the one in the middle.
    pub step_ns_median: i64,
    /// The largest step.
    pub step_ns_max: i64,
    /// How often it went back.
    pub steps_backward: usize,
    /// Time between two reads.
    pub read_ns: f64,
}

/// The rate of `clock64` against `%globaltimer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Over how long it was measured.
    pub window_ms: f64,
    /// On how many multiprocessors.
    pub multiprocessors: usize,
    /// The slowest.
    pub rate_mhz_min: f64,
    /// The one in the middle.
    pub rate_mhz_median: f64,
    /// The fastest.
    pub rate_mhz_max: f64,
}

/// How far the clocks of multiprocessors are apart, by messages to and fro.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offsets {
    /// Multiprocessors compared with the first block's.
    pub multiprocessors: usize,
    /// Messages to each.
    pub rounds: u32,
    /// Time of a message and its answer.
    pub round_trip_ns_median: f64,
    /// `%globaltimer` is nowhere further from the first block's than this.
    pub timer_ns_bound: i64,
    /// From the one most behind to the one most ahead, by the middle of each one's bounds.
    pub timer_ns_spread: f64,
    /// Half the width of the widest bounds.
    pub timer_ns_uncertainty: f64,
    /// The same of `clock64`: from the one most behind to the one most ahead.
    pub clock64_clocks_spread: f64,
    /// Half the width of the widest bounds.
    pub clock64_clocks_uncertainty: f64,
}

/// Reading memory in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// How.
    pub way: String,
    /// How much, in one launch.
    pub bytes: u64,
    /// How many launches were timed.
    pub launches: usize,
    /// The launch in the middle.
    pub us_median: f64,
    /// Its rate, in 10^9 bytes a second.
    pub gb_per_s_median: f64,
    /// The slowest launch's.
    pub gb_per_s_min: f64,
    /// The fastest launch's.
    pub gb_per_s_max: f64,
}

/// Hand-offs in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    /// How.
    pub way: String,
    /// How many blocks, one a multiprocessor.
    pub blocks: usize,
    /// Hand-offs of a launch that count.
    pub exchanges: usize,
    /// How many launches were timed.
    pub launches: usize,
    /// The hand-off in the middle, of the launch in the middle.
    pub us_median: f64,
    /// The hand-off in the middle of the fastest launch.
    pub us_median_min: f64,
    /// The hand-off in the middle of the slowest launch.
    pub us_median_max: f64,
    /// All hand-offs together by their number, of the launch in the middle.
    pub us_mean: f64,
}

/// Whether Nsight Compute reads the hardware's counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Whether it does.
    pub work: bool,
    /// Nsight Compute's version.
    pub ncu: Option<String>,
    /// `sm__cycles_elapsed.max` of a small kernel, where they do.
    pub sm_cycles_elapsed_max: Option<f64>,
    /// Why they do not.
    pub why: Option<String>,
}

impl Report {
    /// The probes that failed: name and reason. Counters that cannot be read are an answer.
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

    /// The report as JSON, indented, with a newline at its end.
    pub fn to_json(&self) -> String {
        // Plain numbers and text: nothing in it can fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
