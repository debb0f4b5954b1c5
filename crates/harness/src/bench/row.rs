//! One line of `rows.jsonl`.

use crate::environment::{Energy, Environment, Telemetry};
use crate::gate::Rule;
use crate::predict::{Parts, Prediction};
use crate::prompts::PromptIds;
use crate::subject::{Ours, Subject};
use serde::{Deserialize, Serialize};

/// Version of the row's layout.
pub const SCHEMA_VERSION: u32 = 3;

/// What a test decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Decoding after every prompt in turn; its prefill is not timed.
    Prompts {
        /// Tokens per prompt.
        steps: usize,
    },
    /// Decoding with positions cached.
    Depth {
        /// Cached positions before the first step.
        depth: usize,
        /// Tokens.
        steps: usize,
    },
    /// Processing of one prompt, from an empty cache to the first token.
    Prompt {
        /// Its tokens.
        tokens: usize,
    },
}

impl Test {
    /// Returns the test's name, as llama-bench writes it.
    pub fn name(self) -> String {
        match self {
            Test::Prompts { steps } => format!("tg{steps} @ prompts"),
            Test::Depth { depth: 0, steps } => format!("tg{steps}"),
            Test::Depth { depth, steps } => format!("tg{steps} @ d{depth}"),
            Test::Prompt { tokens } => format!("pp{tokens}"),
        }
    }

    /// Returns the positions cached before the first decoded token (with the prompts: their mean)
    /// and the number of tokens; `None` without any.
    pub fn decoded(self, prompts: &PromptIds) -> Option<(f64, usize)> {
        match self {
            Test::Depth { depth, steps } => Some((depth as f64, steps)),
            Test::Prompts { steps } => {
                let total: usize = prompts.ids.iter().map(Vec::len).sum();
                Some((total as f64 / prompts.ids.len().max(1) as f64, steps))
            }
            Test::Prompt { .. } => None,
        }
    }

    /// Returns the mean number of positions cached before a decoded token; `None` without any.
    pub fn mean_position(self, prompts: &PromptIds) -> Option<f64> {
        let (first, steps) = self.decoded(prompts)?;
        Some(first + (steps.max(1) - 1) as f64 / 2.0)
    }

    /// Positions cached before the first timed step; `None`: each prompt's own length.
    fn depth(self) -> Option<usize> {
        match self {
            Test::Prompts { .. } => None,
            Test::Depth { depth, .. } => Some(depth),
            Test::Prompt { .. } => Some(0),
        }
    }

    /// Timed tokens per run (for the prompts: per prompt), fed and decoded.
    fn timed(self) -> (usize, usize) {
        match self {
            Test::Prompts { steps } | Test::Depth { steps, .. } => (0, steps),
            Test::Prompt { tokens } => (tokens, 0),
        }
    }
}

/// A measured bandwidth, and where it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// GB/s (10^9 bytes).
    pub bandwidth_gb_s: f64,
    /// Where it was measured.
    pub source: String,
}

/// A prediction's error and its parts, us of a token. Not in rows before version 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// How much longer a token took than predicted, as a share of the prediction.
    #[serde(default)]
    pub prediction_error: Option<f64>,
    /// What the layers' weights take longer than their hand-offs and compute.
    #[serde(default)]
    pub predicted_weights_us: Option<f64>,
    /// The layers' hand-offs.
    #[serde(default)]
    pub predicted_hand_offs_us: Option<f64>,
    /// The layers' compute.
    #[serde(default)]
    pub predicted_compute_us: Option<f64>,
    /// The LM head.
    #[serde(default)]
    pub predicted_head_us: Option<f64>,
    /// The argmax.
    #[serde(default)]
    pub predicted_argmax_us: Option<f64>,
    /// The launch, and the embedding.
    #[serde(default)]
    pub predicted_launch_us: Option<f64>,
}

impl Predicted {
    /// The parts and the error of a prediction for a test that made `tok_s`.
    fn of(parts: Option<Parts>, tok_s: f64) -> Predicted {
        let Some(parts) = parts else { return Predicted::default() };
        Predicted {
            prediction_error: Some(parts.tok_s() / tok_s - 1.0),
            predicted_weights_us: Some(parts.weights_us),
            predicted_hand_offs_us: Some(parts.hand_offs_us),
            predicted_compute_us: Some(parts.compute_us),
            predicted_head_us: Some(parts.head_us),
            predicted_argmax_us: Some(parts.argmax_us),
            predicted_launch_us: Some(parts.launch_us),
        }
    }
}

/// One test of one engine. Field names are llama-bench's where it has one. Unknown fields are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// [`SCHEMA_VERSION`].
    #[serde(default)]
    pub schema_version: u32,
    /// `monolith`, `transformers`, `llama.cpp` and so on.
    pub engine: String,
    /// Row of the engine's variant table, or its configuration.
    pub variant: String,
    /// Weight format.
    pub format: String,
    /// The model's name in its pack or file.
    #[serde(default)]
    pub model: String,
    /// Name of the GPU (or of the CPU, for one).
    pub gpu: String,
    /// `gpu` or `cpu`.
    #[serde(default)]
    pub kind: String,
    /// The test's name.
    pub test: String,
    /// Positions cached before the first timed step; null: each prompt's own length.
    pub position: Option<usize>,
    /// Tokens of a timed prompt; 0 if tokens are decoded, since their prefill is not timed.
    #[serde(default)]
    pub n_prompt: usize,
    /// Timed decoded tokens per run (per prompt).
    pub n_gen: usize,
    /// llama-bench's name for `position`.
    pub n_depth: Option<usize>,
    /// Tokens per second, median of the runs.
    pub tok_s_median: Option<f64>,
    /// Slowest run.
    pub tok_s_min: Option<f64>,
    /// Fastest run.
    pub tok_s_max: Option<f64>,
    /// Mean.
    pub avg_ts: Option<f64>,
    /// Standard deviation of the sample.
    pub stddev_ts: Option<f64>,
    /// Coefficient of variation, `stddev_ts / avg_ts`.
    #[serde(default)]
    pub cv: Option<f64>,
    /// Tokens per second of each run.
    #[serde(default)]
    pub samples_ts: Vec<f64>,
    /// Nanoseconds of `n_prompt` or `n_gen` tokens, mean.
    #[serde(default)]
    pub avg_ns: Option<f64>,
    /// Their standard deviation.
    #[serde(default)]
    pub stddev_ns: Option<f64>,
    /// Nanoseconds of `n_prompt` or `n_gen` tokens in each run (for the prompts: mean over them).
    #[serde(default)]
    pub samples_ns: Vec<f64>,
    /// Kernel launches per token.
    #[serde(default)]
    pub launches_per_token: Option<f64>,
    /// Bytes that a step must read: weights and KV cache at the mean position.
    #[serde(default)]
    pub bytes_per_token: Option<f64>,
    /// `bytes_per_token` times the median speed, GB/s.
    #[serde(default)]
    pub gb_s: Option<f64>,
    /// `gb_s` as a fraction of the measured bandwidth.
    #[serde(default)]
    pub roofline_share: Option<f64>,
    /// The measured bandwidth.
    #[serde(default)]
    pub roofline: Option<Roofline>,
    /// The prediction. (In rows before version 3: the time to read the bytes, and nothing else.)
    #[serde(default)]
    pub predicted_tok_s: Option<f64>,
    /// The prediction's error and parts.
    #[serde(flatten)]
    pub predicted: Predicted,
    /// What was counted for the prediction, and what it is based on.
    #[serde(default)]
    pub prediction: Option<Prediction>,
    /// Whether the gate of this build, weights and run passed; false: the speed is unverified, and
    /// no run's folder keeps the row; null: another engine.
    pub gate_passed: Option<bool>,
    /// Hash of the gate's record.
    #[serde(default)]
    pub gate_sha256: Option<String>,
    /// The rule by which the gate allowed a divergence.
    #[serde(default)]
    pub gate_rule: Option<Rule>,
    /// Whole rows of logits that the gate compared. (Not in older rows.)
    #[serde(default)]
    pub gate_rows: Option<usize>,
    /// Hash of the executable (or the version, for another engine).
    pub build: String,
    /// Hash of the kernels' sources and options.
    #[serde(default)]
    pub kernels: Option<String>,
    /// Hash of the machine code that was loaded onto the GPU. (Not in rows before version 2.)
    #[serde(default)]
    pub cubin_sha256: Option<String>,
    /// Version of the NVRTC that compiled it. (Not in rows before version 2.)
    #[serde(default)]
    pub nvrtc: Option<String>,
    /// Git commit of the build. (Not in rows before version 2.)
    #[serde(default)]
    pub commit: Option<String>,
    /// Hash of the weights.
    #[serde(default)]
    pub weights_sha256: String,
    /// Hash of the prompts' ids.
    #[serde(default)]
    pub prompt_ids_sha256: String,
    /// Hash of the output tokens, the same in every run.
    #[serde(default)]
    pub tokens_sha256: String,
    /// The measuring run.
    pub run_id: String,
    /// What the time includes.
    pub scope: String,
    /// The clock.
    #[serde(default)]
    pub clock: String,
    /// Blocks (threads) of a step.
    #[serde(default)]
    pub blocks: usize,
    /// The engine's context.
    #[serde(default)]
    pub context: usize,
    /// When the test ended, UTC.
    #[serde(default)]
    pub test_time: String,
    /// Whether spans were recorded.
    #[serde(default)]
    pub xray: bool,
    /// The GPU's state after each run.
    #[serde(default)]
    pub telemetry: Option<Telemetry>,
    /// Energy at this position, measured separately from the timed runs.
    #[serde(default)]
    pub energy: Option<Energy>,
    /// Whether clocks were throttled, for any reason.
    #[serde(default)]
    pub throttled: Option<bool>,
}

/// The passed gate that verifies a row.
#[derive(Clone, Copy, Debug)]
pub struct PassedGate<'a> {
    /// Hash of its record.
    pub sha256: &'a str,
    /// The rule by which it allowed a divergence.
    pub rule: Rule,
    /// Whole rows of logits that it compared.
    pub rows: usize,
}

/// The inputs of a row.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// What was measured.
    pub subject: &'a Ours,
    /// The model's name.
    pub model: &'a str,
    /// Where.
    pub environment: &'a Environment,
    /// Which test.
    pub test: Test,
    /// Seconds of its tokens in each run.
    pub seconds: &'a [f64],
    /// Kernel launches per token.
    pub launches_per_token: Option<f64>,
    /// Bytes that a step must read; `None` if the bytes per token are not known.
    pub bytes_per_token: Option<f64>,
    /// The measured bandwidth.
    pub roofline: Option<Roofline>,
    /// The prediction.
    pub prediction: Option<Prediction>,
    /// The passed gate.
    pub gate: Option<PassedGate<'a>>,
    /// Hash of the prompts' ids.
    pub prompt_ids_sha256: &'a str,
    /// Hash of the tokens.
    pub tokens_sha256: &'a str,
    /// Positions that the engine had room for.
    pub context: usize,
    /// Which clock.
    pub clock: &'a str,
    /// The GPU's state.
    pub telemetry: Option<Telemetry>,
}

/// Returns the row of a test. It looks nothing up: the same inputs give the same row, except for
/// the time of day.
///
/// # Panics
/// Without runs.
pub fn row(facts: &Facts) -> Row {
    let (subject, (n_prompt, n_gen)) = (facts.subject, facts.test.timed());
    let tokens = (n_prompt + n_gen) as f64;
    let speeds: Vec<f64> = facts.seconds.iter().map(|seconds| tokens / seconds).collect();
    let times: Vec<f64> = facts.seconds.iter().map(|seconds| seconds * 1e9).collect();
    let mut sorted = speeds.clone();
    sorted.sort_by(f64::total_cmp);
    let (middle, last) = (median(&sorted), sorted.len() - 1);
    let ((avg_ts, stddev_ts), (avg_ns, stddev_ns)) = (moments(&speeds), moments(&times));
    let gb_s = facts.bytes_per_token.map(|bytes| bytes * middle / 1e9);
    let roofline = facts.roofline.clone();
    let parts = facts.prediction.as_ref().and_then(|prediction| prediction.parts);
    let depth = facts.test.depth();
    Row {
        schema_version: SCHEMA_VERSION,
        engine: subject.engine.clone(),
        variant: subject.variant.clone(),
        format: subject.format.clone(),
        model: facts.model.into(),
        gpu: subject.gpu.clone(),
        kind: facts.environment.kind.clone(),
        test: facts.test.name(),
        position: depth,
        n_prompt,
        n_gen,
        n_depth: depth,
        tok_s_median: Some(middle),
        tok_s_min: Some(sorted[0]),
        tok_s_max: Some(sorted[last]),
        avg_ts: Some(avg_ts),
        stddev_ts: Some(stddev_ts),
        cv: Some(stddev_ts / avg_ts),
        samples_ts: speeds,
        avg_ns: Some(avg_ns),
        stddev_ns: Some(stddev_ns),
        samples_ns: times,
        launches_per_token: facts.launches_per_token,
        bytes_per_token: facts.bytes_per_token,
        gb_s,
        roofline_share: gb_s.zip(roofline.as_ref()).map(|(gb_s, of)| gb_s / of.bandwidth_gb_s),
        roofline,
        predicted_tok_s: parts.as_ref().map(Parts::tok_s),
        predicted: Predicted::of(parts, middle),
        prediction: facts.prediction.clone(),
        gate_passed: Some(facts.gate.is_some()),
        gate_sha256: facts.gate.map(|gate| gate.sha256.into()),
        gate_rule: facts.gate.map(|gate| gate.rule),
        gate_rows: facts.gate.map(|gate| gate.rows),
        build: subject.build.clone(),
        kernels: subject.kernels.clone(),
        cubin_sha256: subject.cubin_sha256.clone(),
        nvrtc: subject.nvrtc.clone(),
        commit: subject.commit.clone(),
        weights_sha256: subject.weights_sha256.clone(),
        prompt_ids_sha256: facts.prompt_ids_sha256.into(),
        tokens_sha256: facts.tokens_sha256.into(),
        run_id: subject.run_id.clone(),
        scope: scope(facts.test, facts.launches_per_token),
        clock: facts.clock.into(),
        blocks: subject.blocks,
        context: facts.context,
        test_time: crate::now(),
        xray: false,
        throttled: facts.telemetry.as_ref().map(|seen| !seen.throttle_reasons.is_empty()),
        telemetry: facts.telemetry.clone(),
        energy: None,
    }
}

/// Describes what the time includes.
fn scope(test: Test, launches_per_token: Option<f64>) -> String {
    let launches = match launches_per_token {
        None => "no launches".into(),
        Some(1.0) => "one launch a token".into(),
        Some(count) => format!("{count} launches a token"),
    };
    let what = match test {
        Test::Prompt { .. } => "prompt processing, to the first token",
        _ => "decode only, argmax included",
    };
    format!("{what}, {launches}")
}

impl Row {
    /// Returns the row's subject, as the row states it.
    pub fn subject(&self) -> Subject {
        Subject::of_fields(Ours {
            engine: self.engine.clone(),
            variant: self.variant.clone(),
            format: self.format.clone(),
            gpu: self.gpu.clone(),
            blocks: self.blocks,
            build: self.build.clone(),
            kernels: self.kernels.clone(),
            cubin_sha256: self.cubin_sha256.clone(),
            nvrtc: self.nvrtc.clone(),
            commit: self.commit.clone(),
            weights_sha256: self.weights_sha256.clone(),
            run_id: self.run_id.clone(),
        })
    }
}

/// Returns the median of sorted values; of an even number, the mean of the middle two.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// Returns the mean and standard deviation of a sample (zero for one value).
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_moments() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(moments(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(moments(&[5.0]), (5.0, 0.0));
    }

    #[test]
    fn a_row_says_what_was_timed() {
        let decode = Test::Prompts { steps: 8 };
        assert_eq!(scope(decode, Some(1.0)), "decode only, argmax included, one launch a token");
        assert_eq!(scope(decode, Some(3.0)), "decode only, argmax included, 3 launches a token");
        assert_eq!(scope(decode, None), "decode only, argmax included, no launches");
        let prompt = scope(Test::Prompt { tokens: 8 }, None);
        assert_eq!(prompt, "prompt processing, to the first token, no launches");
    }
}
