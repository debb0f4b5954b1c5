//! The time of a step: its parts, and the load that follows from its own result.

use super::calibration::of_format;
use super::work::{Attention, Stretch};
use super::{Parameters, PredictError, Work};
use serde::{Deserialize, Serialize};

/// The parts of a step, us; the step is their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// What reading the layers' bytes takes longer than their hand-offs and compute.
    pub weights_us: f64,
    /// The layers' hand-offs.
    pub hand_offs_us: f64,
    /// The layers' compute.
    pub compute_us: f64,
    /// The LM head.
    pub head_us: f64,
    /// The argmax over all blocks.
    pub argmax_us: f64,
    /// The launch, and the embedding.
    pub launch_us: f64,
}

impl Parts {
    /// The step, us.
    pub fn step_us(&self) -> f64 {
        let Parts { weights_us, hand_offs_us, compute_us, head_us, argmax_us, launch_us } = self;
        weights_us + hand_offs_us + compute_us + head_us + argmax_us + launch_us
    }

    /// Tokens per second.
    pub fn tok_s(&self) -> f64 {
        1e6 / self.step_us()
    }

    fn add(&mut self, other: &Parts, share: f64) {
        self.weights_us += share * other.weights_us;
        self.hand_offs_us += share * other.hand_offs_us;
        self.compute_us += share * other.compute_us;
        self.head_us += share * other.head_us;
        self.argmax_us += share * other.argmax_us;
        self.launch_us += share * other.launch_us;
    }
}

/// One layer: what its time follows from.
#[derive(Clone, Copy, Debug)]
struct Layer {
    /// Bytes that are read.
    bytes: f64,
    hand_offs: f64,
    compute_us: f64,
}

/// Halvings of the interval that holds a layer's time: more than the bits of its mantissa.
const HALVINGS: usize = 60;

impl Layer {
    /// The layer's time, us: it needs its bytes, and its hand-offs under the load that its bytes in
    /// this time are. More time is less load and so needs less time: there is one solution.
    fn time_us(&self, of: &Parameters) -> f64 {
        let stream_us = self.bytes / of.bandwidth_gb_s * 1e-3;
        let needs = |time: f64| stream_us.max(self.hand_offs_us(of, time) + self.compute_us);
        // At rest a layer takes at least the lower bound; at full load at most the upper one.
        let (mut low, mut high) = (needs(f64::INFINITY), needs(0.0));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if needs(middle) > middle { low = middle } else { high = middle }
        }
        high
    }

    /// The hand-offs of a layer that takes this time.
    fn hand_offs_us(&self, of: &Parameters, time_us: f64) -> f64 {
        self.hand_offs * of.hand_off_ns.ns(self.bytes / time_us * 1e-6) * 1e-3
    }
}

impl Attention {
    /// Its compute, us.
    fn compute_us(&self, of: &Parameters) -> f64 {
        let group_us = of.group_us.max(self.group_bytes / of.bandwidth_gb_s * 1e-3);
        // The first batch counts among a layer's fixed latencies.
        let batches = self.batches.saturating_sub(1);
        self.groups as f64 * group_us
            + batches as f64 * of.batch_us
            + if self.shares > 1 { of.exchange_us } else { 0.0 }
    }
}

/// Predicts the mean of `steps` steps from position `first` on.
///
/// # Errors
/// The calibration has no figure for the format.
pub fn predicted(
    work: &Work,
    first: usize,
    steps: usize,
    of: &Parameters,
) -> Result<Parts, PredictError> {
    let fragment_ns = of_format(&of.fragment_ns, work.format)?;
    let head_gb_s = of_format(&of.head_gb_s, work.head_format)?.min(of.bandwidth_gb_s);
    let rest = Parts {
        head_us: work.head_bytes as f64 / head_gb_s * 1e-3,
        argmax_us: of.argmax_us,
        launch_us: of.launch_us,
        ..Parts::default()
    };
    let fixed_us = of.layer_us + work.fragments as f64 * fragment_ns * 1e-3;
    let mut mean = Parts::default();
    for Stretch { steps: own, attention } in work.stretches(first, steps.max(1)) {
        let layer = Layer {
            bytes: work.layer_bytes as f64 + attention.kv_bytes,
            hand_offs: (work.hand_offs + usize::from(attention.shares > 1)) as f64,
            compute_us: fixed_us + attention.compute_us(of),
        };
        let (time_us, layers) = (layer.time_us(of), work.layers as f64);
        let hand_offs_us = layer.hand_offs_us(of, time_us);
        let parts = Parts {
            weights_us: layers * (time_us - hand_offs_us - layer.compute_us).max(0.0),
            hand_offs_us: layers * hand_offs_us,
            compute_us: layers * layer.compute_us,
            ..rest
        };
        mean.add(&parts, own as f64 / steps.max(1) as f64);
    }
    Ok(mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Calibration, Gpu};
    use monolith_kernels::Arch;
    use monolith_model::synth;
    use monolith_pack::Formats;
    use proptest::prelude::*;

    fn work(shape: &str, formats: Formats) -> Work {
        Work::of(&synth::shape(shape).unwrap(), formats, Arch::SM_90A, 132).unwrap()
    }

    fn numbers() -> Parameters {
        Calibration::shipped().parameters
    }

    #[test]
    fn a_layer_takes_the_longer_of_stream_and_chain() {
        let of = numbers();
        let chain = Layer { bytes: 0.0, hand_offs: 4.0, compute_us: 2.0 };
        let idle = 4.0 * of.hand_off_ns.ns(0.0) * 1e-3 + 2.0;
        assert!((chain.time_us(&of) - idle).abs() < 1e-9);
        let stream = Layer { bytes: 1e9, hand_offs: 4.0, compute_us: 2.0 };
        let bound = 1e9 / of.bandwidth_gb_s * 1e-3;
        assert!((stream.time_us(&of) - bound).abs() < 1e-6);
    }

    #[test]
    fn a_format_without_a_figure_is_named() {
        let mut of = numbers();
        of.fragment_ns.remove("fp8");
        let error = predicted(&work("tiny", Formats::FP8), 16, 1, &of).unwrap_err().to_string();
        assert!(error.contains("fp8") && error.contains("bf16"), "{error}");
    }

    #[test]
    fn a_card_with_less_bandwidth_waits_for_weights() {
        let gpu = Gpu::find("rtx-5090").unwrap();
        let of = Calibration::shipped().for_gpu(gpu).unwrap();
        let work = work("qwen3-0.6b", Formats::BF16);
        let parts = predicted(&work, 16, 256, &of).unwrap();
        let bytes = (28 * work.layer_bytes + work.head_bytes) as f64;
        assert!(parts.weights_us > 0.0, "{parts:?}");
        assert!(parts.step_us() > bytes / gpu.bandwidth_gb_s * 1e-3, "{parts:?}");
    }

    /// Numbers in the range of any GPU.
    fn layers() -> impl Strategy<Value = (Layer, Parameters)> {
        let ranges = (500.0..8000.0f64, 0.0..4.0f64, 0.1..2.0f64);
        (0.0..2e8f64, 1.0..9.0f64, 0.0..50.0f64, ranges).prop_map(
            |(bytes, hand_offs, compute_us, (bandwidth, time, load))| {
                let mut of = numbers();
                of.bandwidth_gb_s = bandwidth;
                of.hand_off_ns = of.hand_off_ns.scaled(load, 0.1 + time);
                (Layer { bytes, hand_offs, compute_us }, of)
            },
        )
    }

    proptest! {
        #[test]
        fn the_solution_needs_as_much_as_it_takes((layer, of) in layers()) {
            let time = layer.time_us(&of);
            let stream = layer.bytes / of.bandwidth_gb_s * 1e-3;
            let needs = stream.max(layer.hand_offs_us(&of, time) + layer.compute_us);
            prop_assert!((needs - time).abs() <= 1e-9 * time, "{needs} {time}");
        }

        #[test]
        fn more_of_anything_takes_no_less((layer, of) in layers(), more in 1.0..3.0f64) {
            let time = layer.time_us(&of) * (1.0 - 1e-12);
            let bytes = Layer { bytes: layer.bytes * more, ..layer };
            prop_assert!(bytes.time_us(&of) >= time);
            let hand_offs = Layer { hand_offs: layer.hand_offs * more, ..layer };
            prop_assert!(hand_offs.time_us(&of) >= time);
            let compute = Layer { compute_us: layer.compute_us * more, ..layer };
            prop_assert!(compute.time_us(&of) >= time);
            let mut slower = of.clone();
            slower.bandwidth_gb_s /= more;
            prop_assert!(layer.time_us(&slower) >= time);
        }

        #[test]
        fn parts_add_up_and_none_is_negative(
            first in 0..4000usize,
            steps in 1..300usize,
            tiny: bool,
        ) {
            let work = work(if tiny { "tiny" } else { "qwen3-0.6b" }, Formats::FP8);
            let parts = predicted(&work, first, steps, &numbers()).unwrap();
            let layers = [parts.weights_us, parts.hand_offs_us, parts.compute_us];
            let rest = [parts.head_us, parts.argmax_us, parts.launch_us];
            let all = [layers, rest].concat();
            prop_assert!(all.iter().all(|part| *part >= 0.0));
            prop_assert!((all.iter().sum::<f64>() - parts.step_us()).abs() < 1e-9);
            prop_assert!((parts.tok_s() * parts.step_us() - 1e6).abs() < 1e-3);
        }
    }
}
