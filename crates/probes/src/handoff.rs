//! Measures hand-offs between all blocks, one block per multiprocessor, and checks that the values
//! arrive.

use crate::ProbeError;
use crate::gpu::{Control, Gpu, PATIENCE_NS};
use crate::kernels::Module;
use crate::kernels::shared::{EXCHANGES_MAX, HANDOFF_THREADS};
use crate::report::Handoff;
use crate::statistics::{extremes, median};
use cudarc::driver::{CudaFunction, CudaSlice, PushKernelArg};

/// Hand-offs per launch.
const EXCHANGES: u32 = 272;
/// The first hand-offs, during which blocks are still starting, do not count.
const EXCHANGES_SKIPPED: usize = 16;
const _: () = assert!(EXCHANGES <= EXCHANGES_MAX);
const WARM_UP: u32 = 1;
const LAUNCHES: u32 = 5;

pub(crate) fn probe(gpu: &Gpu) -> Result<Vec<Handoff>, ProbeError> {
    let module = gpu.load(Module::Handoff)?;
    let mut rows = Vec::new();
    for (name, units) in [("probe_gather_1024", 1024), ("probe_gather_3072", 3072)] {
        let kernel = module.load_function(name)?;
        rows.push(gather(gpu, &kernel, units)?);
    }
    rows.push(barrier(gpu, &module.load_function("probe_barrier")?)?);
    Ok(rows)
}

fn gather(gpu: &Gpu, kernel: &CudaFunction, units: usize) -> Result<Handoff, ProbeError> {
    let config = gpu.one_block_each(kernel, HANDOFF_THREADS)?;
    let mut slots = gpu.stream.alloc_zeros::<u64>(units * EXCHANGES as usize)?;
    let mut launches = Vec::new();
    for epoch in 1..=WARM_UP + LAUNCHES {
        let mut control = gpu.control()?;
        let mut out = stamps(gpu)?;
        let mut launch = gpu.stream.launch_builder(kernel);
        launch.arg(&mut control.0).arg(&PATIENCE_NS).arg(&mut slots).arg(&epoch);
        launch.arg(&EXCHANGES).arg(&mut out);
        // SAFETY: the arguments are the kernel's, in order; the slots hold `units` units for every
        // exchange, `out` holds EXCHANGES + 2 words per block, and the kernel has room for that
        // many exchanges. Cooperative: all blocks are resident, or the launch is refused.
        unsafe { launch.launch_cooperative(config) }?;
        launches.push(finish(gpu, &control, &out)?);
        check_slots(&gpu.stream.clone_dtoh(&slots)?, units, epoch)?;
    }
    let way = format!("all-gather of {units} fp32, each with its epoch in 8 bytes");
    Ok(handoff(gpu, way, &launches[WARM_UP as usize..]))
}

fn barrier(gpu: &Gpu, kernel: &CudaFunction) -> Result<Handoff, ProbeError> {
    let config = gpu.one_block_each(kernel, HANDOFF_THREADS)?;
    let mut launches = Vec::new();
    for _ in 0..WARM_UP + LAUNCHES {
        let mut control = gpu.control()?;
        let mut counter = gpu.stream.alloc_zeros::<u32>(1)?;
        let mut out = stamps(gpu)?;
        let mut launch = gpu.stream.launch_builder(kernel);
        launch.arg(&mut control.0).arg(&PATIENCE_NS).arg(&mut counter);
        launch.arg(&EXCHANGES).arg(&mut out);
        // SAFETY: the arguments are the kernel's, in order; the counter is zero, `out` holds
        // EXCHANGES + 2 words per block, and the kernel has room for that many exchanges.
        // Cooperative: all blocks are resident, or the launch is refused.
        unsafe { launch.launch_cooperative(config) }?;
        launches.push(finish(gpu, &control, &out)?);
    }
    let way = "grid barrier: red.release, ld.acquire".to_owned();
    Ok(handoff(gpu, way, &launches[WARM_UP as usize..]))
}

fn stamps(gpu: &Gpu) -> Result<CudaSlice<u64>, ProbeError> {
    Ok(gpu.stream.alloc_zeros(gpu.multiprocessors * (EXCHANGES as usize + 2))?)
}

fn finish(gpu: &Gpu, control: &Control, out: &CudaSlice<u64>) -> Result<Launch, ProbeError> {
    control.check(&gpu.stream)?;
    Ok(launch_from_words(&gpu.stream.clone_dtoh(out)?))
}

/// Time of a hand-off in one launch.
#[derive(Clone, Copy, Debug)]
struct Launch {
    us_median: f64,
    us_mean: f64,
}

/// Every block's clocks at the start and after every exchange, then its time in nanoseconds.
fn launch_from_words(words: &[u64]) -> Launch {
    let mut times_us = Vec::new();
    for block in words.chunks_exact(EXCHANGES as usize + 2) {
        let (clocks, span_ns) = block.split_at(block.len() - 1);
        let (first, last) = (clocks[0], clocks[clocks.len() - 1]);
        let us_per_clock = span_ns[0] as f64 / last.saturating_sub(first).max(1) as f64 / 1e3;
        let steps = clocks.windows(2).skip(EXCHANGES_SKIPPED);
        times_us.extend(steps.map(|pair| pair[1].wrapping_sub(pair[0]) as f64 * us_per_clock));
    }
    let us_mean = times_us.iter().sum::<f64>() / times_us.len().max(1) as f64;
    Launch { us_median: median(&times_us), us_mean }
}

fn handoff(gpu: &Gpu, way: String, launches: &[Launch]) -> Handoff {
    let medians: Vec<f64> = launches.iter().map(|launch| launch.us_median).collect();
    let means: Vec<f64> = launches.iter().map(|launch| launch.us_mean).collect();
    let (least, most) = extremes(&medians);
    Handoff {
        way,
        blocks: gpu.multiprocessors,
        exchanges: EXCHANGES as usize - EXCHANGES_SKIPPED,
        launches: launches.len(),
        us_median: median(&medians),
        us_median_min: least,
        us_median_max: most,
        us_mean: median(&means),
    }
}

/// The value that handoff.cu computes from the previous exchange's value.
fn next_value(gathered: u32, index: u32) -> u32 {
    gathered.wrapping_mul(1_664_525).wrapping_add(1_013_904_223).wrapping_add(index)
}

/// Recomputes the chain of values: a lost or torn value changes all later ones.
fn check_slots(words: &[u64], units: usize, epoch: u32) -> Result<(), ProbeError> {
    let mut values: Vec<u32> = (0..units as u32).collect();
    for (exchange, slot) in words.chunks_exact(units).enumerate() {
        let expected = values.iter().map(|value| u64::from(epoch) << 32 | u64::from(*value));
        let wrong = slot.iter().copied().zip(expected).position(|(got, wanted)| got != wanted);
        if let Some(unit) = wrong {
            let what = format!("unit {unit} of exchange {exchange} holds {:#x}", slot[unit]);
            return Err(ProbeError::Wrong(what));
        }
        let next =
            (0..units).map(|index| next_value(values[(index * 7 + 1) % units], index as u32));
        values = next.collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_the_time_between_two_stamps() {
        let exchanges = u64::from(EXCHANGES);
        // Two clocks per nanosecond, 1,500 clocks per hand-off; the second block is twice as slow.
        let block = |clocks: u64| {
            let stamps = (0..=exchanges).map(move |at| 77 + at * clocks);
            stamps.chain([exchanges * clocks / 2])
        };
        let words: Vec<u64> = block(1500).chain(block(3000)).collect();
        let launch = launch_from_words(&words);
        assert!((launch.us_median - 0.75).abs() < 1e-9, "{launch:?}");
        assert!((launch.us_mean - 1.125).abs() < 1e-9, "{launch:?}");
    }

    #[test]
    fn a_wrong_value_in_a_slot_is_named() {
        let units = 1024;
        let mut values: Vec<u32> = (0..1024).collect();
        let mut words = Vec::new();
        for _ in 0..3 {
            words.extend(values.iter().map(|value| 5 << 32 | u64::from(*value)));
            values = (0..1024)
                .map(|index: u32| next_value(values[(index as usize * 7 + 1) % units], index))
                .collect();
        }
        assert!(check_slots(&words, units, 5).is_ok());
        words[2 * units + 9] ^= 1;
        let message = check_slots(&words, units, 5).unwrap_err().to_string();
        assert!(message.contains("unit 9 of exchange 2"), "{message}");
        assert!(check_slots(&words[..units], units, 4).is_err());
    }
}
