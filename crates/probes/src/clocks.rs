//! `%globaltimer` and `clock64`.

use crate::ProbeError;
use crate::gpu::{Gpu, PATIENCE_NS};
use crate::kernels::Module;
use crate::kernels::shared::{MAIL_STRIDE, RATE_WORDS};
use crate::report::{Clock, Offsets, Timer};
use crate::statistics::{extremes, median};
use cudarc::driver::PushKernelArg;
use std::collections::BTreeSet;

const READS_MAX: u64 = 1 << 20;
/// Clocks after which a kernel stops if the timer stands still: 0.1 or 0.2 s.
const CLOCKS_MAX: u64 = 1 << 28;
const STEPS_MAX: u32 = 1 << 16;
const WINDOW_NS: u64 = 60_000_000;
const ROUNDS: u32 = 32;

pub(crate) fn timer(gpu: &Gpu) -> Result<Timer, ProbeError> {
    let module = gpu.load(Module::Clocks)?;
    let kernel = module.load_function("probe_steps")?;
    let mut steps = gpu.stream.alloc_zeros::<i64>(STEPS_MAX as usize)?;
    let mut totals = gpu.stream.alloc_zeros::<u64>(4)?;
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&READS_MAX).arg(&CLOCKS_MAX).arg(&mut steps).arg(&STEPS_MAX).arg(&mut totals);
    // SAFETY: the arguments are the kernel's, in order; it writes at most STEPS_MAX steps and
    // four totals, which the buffers hold.
    unsafe { launch.launch(gpu.blocks(1, 32, 0)) }?;
    let totals = gpu.stream.clone_dtoh(&totals)?;
    let mut steps = gpu.stream.clone_dtoh(&steps)?;
    steps.truncate(usize::try_from(totals[1]).unwrap_or(usize::MAX));
    timer_from_steps(&steps, totals[0], totals[1], totals[2])
}

fn timer_from_steps(
    steps: &[i64],
    reads: u64,
    changes: u64,
    span_ns: u64,
) -> Result<Timer, ProbeError> {
    if steps.is_empty() {
        return Err(ProbeError::Wrong(format!("%globaltimer stood still for {reads} reads")));
    }
    let (least, most) = extremes(steps);
    let forward: Vec<i64> = steps.iter().copied().filter(|&step| step > 0).collect();
    Ok(Timer {
        reads,
        steps_seen: changes,
        step_sizes: steps.iter().collect::<BTreeSet<_>>().len(),
        step_ns_min: forward.iter().copied().min().unwrap_or(least),
        step_ns_median: median(steps),
        step_ns_max: most,
        steps_backward: steps.len() - forward.len(),
        read_ns: span_ns as f64 / reads.max(1) as f64,
    })
}

pub(crate) fn clock(gpu: &Gpu) -> Result<Clock, ProbeError> {
    let module = gpu.load(Module::Clocks)?;
    let kernel = module.load_function("probe_rate")?;
    let config = gpu.one_block_each(&kernel, 32)?;
    let mut out = gpu.stream.alloc_zeros::<u64>(gpu.multiprocessors * RATE_WORDS)?;
    // Runs twice and uses the second result: an idle GPU takes a while to raise its clock.
    for _ in 0..2 {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&WINDOW_NS).arg(&CLOCKS_MAX).arg(&mut out);
        // SAFETY: the arguments are the kernel's, in order; every block writes its own
        // RATE_WORDS words, and the buffer has room for all blocks.
        unsafe { launch.launch_cooperative(config) }?;
    }
    clock_from_words(&gpu.stream.clone_dtoh(&out)?)
}

fn clock_from_words(words: &[u64]) -> Result<Clock, ProbeError> {
    let (blocks, _) = words.as_chunks::<RATE_WORDS>();
    let stopped = blocks.iter().filter(|[_, fine, ..]| *fine == 0).count();
    if stopped > 0 {
        let what = format!("%globaltimer stood still on {stopped} multiprocessors");
        return Err(ProbeError::Wrong(what));
    }
    let seen: BTreeSet<u64> = blocks.iter().map(|[multiprocessor, ..]| *multiprocessor).collect();
    let rates: Vec<f64> =
        blocks.iter().map(|[_, _, ns, clocks, _]| *clocks as f64 * 1e3 / *ns as f64).collect();
    let (slowest, fastest) = extremes(&rates);
    Ok(Clock {
        window_ms: blocks.iter().map(|[_, _, ns, ..]| *ns).min().unwrap_or(0) as f64 / 1e6,
        multiprocessors: seen.len(),
        rate_mhz_min: slowest,
        rate_mhz_median: median(&rates),
        rate_mhz_max: fastest,
    })
}

pub(crate) fn offsets(gpu: &Gpu) -> Result<Offsets, ProbeError> {
    let module = gpu.load(Module::Clocks)?;
    let kernel = module.load_function("probe_offsets")?;
    let config = gpu.one_block_each(&kernel, 32)?;
    let blocks = gpu.multiprocessors;
    let mut control = gpu.control()?;
    let mut mail = gpu.stream.alloc_zeros::<u64>(2 * blocks * MAIL_STRIDE)?;
    let mut stamps = gpu.stream.alloc_zeros::<u64>(blocks * ROUNDS as usize * 6)?;
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut control.0).arg(&PATIENCE_NS).arg(&mut mail).arg(&ROUNDS).arg(&mut stamps);
    // SAFETY: the arguments are the kernel's, in order; mail holds two lines per block, stamps six
    // words per block and round. Cooperative: all blocks are resident, or the launch is refused.
    unsafe { launch.launch_cooperative(config) }?;
    control.check(&gpu.stream)?;
    let words = gpu.stream.clone_dtoh(&stamps)?;
    // The first block has no mail.
    offsets_from_words(&words[ROUNDS as usize * 6..])
}

/// Timer and clock when a message was sent, answered and received.
type Round = [[u64; 2]; 3];

/// Bounds on how far one multiprocessor's clock is ahead of the first block's.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i64,
    high: i64,
}

impl Bounds {
    /// `which`: 0 for the timer, 1 for the clock.
    fn of(rounds: &[Round], which: usize) -> Bounds {
        let ahead = |at: usize| {
            move |round: &Round| round[1][which].wrapping_sub(round[at][which]).cast_signed()
        };
        Bounds {
            low: rounds.iter().map(ahead(2)).max().unwrap_or(0),
            high: rounds.iter().map(ahead(0)).min().unwrap_or(0),
        }
    }

    fn middle(self) -> f64 {
        (self.low as f64 + self.high as f64) / 2.0
    }

    fn half_width(self) -> f64 {
        (self.high as f64 - self.low as f64).abs() / 2.0
    }
}

fn offsets_from_words(words: &[u64]) -> Result<Offsets, ProbeError> {
    let (pairs, _) = words.as_chunks::<2>();
    let (rounds, _) = pairs.as_chunks::<3>();
    let others: Vec<&[Round]> = rounds.chunks_exact(ROUNDS as usize).collect();
    if others.is_empty() {
        return Err(ProbeError::Wrong("there is only one multiprocessor to compare".into()));
    }
    let bounds =
        |which| -> Vec<Bounds> { others.iter().map(|rounds| Bounds::of(rounds, which)).collect() };
    let spread = |bounds: &[Bounds]| {
        // The first block is at zero.
        let middles = bounds.iter().map(|bounds| bounds.middle()).chain([0.0]);
        let (least, most) = extremes(&middles.collect::<Vec<_>>());
        most - least
    };
    let width = |bounds: &[Bounds]| {
        extremes(&bounds.iter().map(|bounds| bounds.half_width()).collect::<Vec<_>>()).1
    };
    let trips = rounds.iter().map(|[sent, _, back]| back[0].wrapping_sub(sent[0]) as f64);
    let (timer, clock) = (bounds(0), bounds(1));
    Ok(Offsets {
        multiprocessors: others.len() + 1,
        rounds: ROUNDS,
        round_trip_ns_median: median(&trips.collect::<Vec<_>>()),
        timer_ns_bound: timer
            .iter()
            .map(|bounds| bounds.low.abs().max(bounds.high.abs()))
            .max()
            .unwrap_or(0),
        timer_ns_spread: spread(&timer),
        timer_ns_uncertainty: width(&timer),
        clock64_clocks_spread: spread(&clock),
        clock64_clocks_uncertainty: width(&clock),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_size() {
        let timer = timer_from_steps(&[32, 64, 32, -32, 32], 10, 5, 100).unwrap();
        assert_eq!((timer.step_ns_min, timer.step_ns_median, timer.step_ns_max), (32, 32, 64));
        assert_eq!((timer.step_sizes, timer.steps_backward, timer.steps_seen), (3, 1, 5));
        assert_eq!(timer.read_ns, 10.0);
        let message = timer_from_steps(&[], 9, 0, 0).unwrap_err().to_string();
        assert!(message.contains("stood still for 9 reads"), "{message}");
    }

    #[test]
    fn rates_are_clocks_by_nanoseconds() {
        let words = [3, 1, 50_000_000, 99_000_000, 7, 4, 1, 60_000_000, 60_000_000, 7];
        let clock = clock_from_words(&words).unwrap();
        assert_eq!((clock.rate_mhz_min, clock.rate_mhz_max), (1000.0, 1980.0));
        assert_eq!((clock.multiprocessors, clock.window_ms), (2, 50.0));
        let message = clock_from_words(&[3, 0, 1, 1, 1]).unwrap_err().to_string();
        assert!(message.contains("on 1 multiprocessors"), "{message}");
    }

    /// Two other multiprocessors, one 40 ahead and one 10 behind, with round trips of 100 to 131.
    #[test]
    fn offsets_lie_between_question_and_answer() {
        let mut words = Vec::new();
        for ahead in [40i64, -10] {
            for round in 0..i64::from(ROUNDS) {
                let (sent, trip) = (1_000_000 + 1000 * round, 100 + round);
                let answered = sent + trip / 2 + ahead;
                for at in [sent, answered, sent + trip] {
                    // The clock: twice as fast.
                    words.extend([at.cast_unsigned(), (2 * at).cast_unsigned()]);
                }
            }
        }
        let offsets = offsets_from_words(&words).unwrap();
        assert_eq!((offsets.multiprocessors, offsets.timer_ns_bound), (3, 90));
        assert_eq!((offsets.timer_ns_spread, offsets.timer_ns_uncertainty), (50.0, 50.0));
        assert_eq!(offsets.clock64_clocks_spread, 100.0);
        assert_eq!(offsets.round_trip_ns_median, 115.0);
    }
}
