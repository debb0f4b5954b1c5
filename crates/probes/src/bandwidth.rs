//! Measures read bandwidth: reads every word of a buffer larger than the L2 cache, once.

use crate::ProbeError;
use crate::gpu::{Control, Gpu, PATIENCE_NS, allow_shared};
use crate::kernels::Module;
use crate::kernels::shared::{CONSUMER_WARPS, STAGES_MAX};
use crate::report::Bandwidth;
use crate::statistics::{extremes, median};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaFunction, CudaSlice, LaunchConfig, PushKernelArg};

/// Bytes that a launch reads: the weights of a token in bf16, FP8 and NVFP4.
const SIZES: [u64; 3] = [1_200_000_000, 600_000_000, 400_000_000];
const BUFFER_BYTES: u64 = SIZES[0];
const UNIT_BYTES: u64 = 16;
const PLAIN_BLOCKS_EACH: [usize; 3] = [1, 2, 4];
const PLAIN_THREADS: u32 = 512;
const STAGE_BYTES: [u32; 2] = [16 * 1024, 8 * 1024];
const RING_BYTES_MAX: u32 = 192 * 1024;
/// Static shared memory of the kernel: barriers, and one sum per warp.
const STATIC_BYTES_MAX: u32 = 2048;
/// The warps that read the ring, and one that fills it.
const BULK_THREADS: u32 = (CONSUMER_WARPS + 1) * 32;
const _: () = assert!(RING_BYTES_MAX / STAGE_BYTES[1] <= STAGES_MAX);
const WARM_UP: usize = 2;
const LAUNCHES: usize = 5;

/// A way to read.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain { blocks_each: usize },
    Bulk { stage_bytes: u32, stages: u32 },
}

/// A part of the buffer, in units of 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    units: u64,
}

pub(crate) fn probe(gpu: &Gpu) -> Result<Vec<Bandwidth>, ProbeError> {
    let reader = Reader::new(gpu)?;
    let plain = PLAIN_BLOCKS_EACH.map(|blocks_each| Way::Plain { blocks_each });
    let ring = RING_BYTES_MAX.min(gpu.arch.shared_bytes_max() - STATIC_BYTES_MAX);
    let bulk = STAGE_BYTES.map(|stage_bytes| Way::Bulk { stage_bytes, stages: ring / stage_bytes });
    let mut rows = Vec::new();
    for way in plain.into_iter().chain(bulk) {
        for bytes in SIZES {
            rows.push(reader.measure(way, bytes)?);
        }
    }
    Ok(rows)
}

impl Way {
    fn describe(self) -> String {
        match self {
            Way::Plain { blocks_each } => {
                let blocks = if blocks_each == 1 { "block" } else { "blocks" };
                format!("loads of 16 bytes, {blocks_each} {blocks} an SM")
            }
            Way::Bulk { stage_bytes, stages } => {
                format!("bulk copies of {} KiB, a ring of {stages}", stage_bytes / 1024)
            }
        }
    }
}

/// Returns the units that a launch reads; with bulk copies, every block reads the same number of
/// whole stages.
fn units_read(way: Way, bytes: u64, blocks: usize) -> u64 {
    match way {
        Way::Plain { .. } => bytes / UNIT_BYTES,
        Way::Bulk { stage_bytes, .. } => {
            let round = u64::from(stage_bytes) * blocks as u64;
            bytes / round * round / UNIT_BYTES
        }
    }
}

struct Reader<'a> {
    gpu: &'a Gpu,
    plain: CudaFunction,
    bulk: CudaFunction,
    expect: CudaFunction,
    buffer: CudaSlice<u32>,
}

impl<'a> Reader<'a> {
    /// Allocates the buffer and fills it.
    fn new(gpu: &'a Gpu) -> Result<Reader<'a>, ProbeError> {
        let module = gpu.load(Module::Bandwidth)?;
        let mut buffer = gpu.stream.alloc_zeros::<u32>(BUFFER_BYTES as usize / 4)?;
        let fill = module.load_function("probe_fill")?;
        let units = BUFFER_BYTES / UNIT_BYTES;
        let mut launch = gpu.stream.launch_builder(&fill);
        launch.arg(&mut buffer).arg(&units);
        // SAFETY: the arguments are the kernel's, in order; it writes the given number of units,
        // which is the buffer's size.
        unsafe { launch.launch(gpu.blocks(gpu.multiprocessors * 4, PLAIN_THREADS, 0)) }?;
        Ok(Reader {
            gpu,
            plain: module.load_function("probe_read_plain")?,
            bulk: module.load_function("probe_read_bulk")?,
            expect: module.load_function("probe_expect")?,
            buffer,
        })
    }

    fn measure(&self, way: Way, bytes: u64) -> Result<Bandwidth, ProbeError> {
        let units = units_read(way, bytes, self.gpu.multiprocessors);
        // Reads another part each time, if there are several, so that the L2 cache cannot help.
        let parts: Vec<Part> = (0..BUFFER_BYTES / bytes)
            .map(|part| Part { first: part * bytes / UNIT_BYTES, units })
            .collect();
        let expected = parts.iter().map(|part| self.expected(*part)).collect::<Result<Vec<_>, _>>();
        let expected = expected?;
        let mut times_us = Vec::new();
        for launch in 0..WARM_UP + LAUNCHES {
            let at = launch % parts.len();
            let (time_us, got) = self.read(way, parts[at])?;
            if got != expected[at] {
                let what =
                    format!("{}: read {got:#x}, expected {:#x}", way.describe(), expected[at]);
                return Err(ProbeError::Wrong(what));
            }
            times_us.push(time_us);
        }
        let times_us = &times_us[WARM_UP..];
        let bytes = units * UNIT_BYTES;
        let rate = |time_us: f64| bytes as f64 / time_us / 1e3;
        let (least, most) = extremes(times_us);
        Ok(Bandwidth {
            way: way.describe(),
            bytes,
            launches: times_us.len(),
            us_median: median(times_us),
            gb_per_s_median: rate(median(times_us)),
            gb_per_s_min: rate(most),
            gb_per_s_max: rate(least),
        })
    }

    /// Computes the exclusive or of a part without reading it.
    fn expected(&self, part: Part) -> Result<u32, ProbeError> {
        let config = self.gpu.blocks(self.gpu.multiprocessors, PLAIN_THREADS, 0);
        let mut out = self.out(&config)?;
        let mut launch = self.gpu.stream.launch_builder(&self.expect);
        launch.arg(&part.first).arg(&part.units).arg(&mut out);
        // SAFETY: the arguments are the kernel's, in order; it writes one word per block.
        unsafe { launch.launch(config) }?;
        self.folded(&out)
    }

    /// Reads a part; returns the time in us and the exclusive or.
    fn read(&self, way: Way, part: Part) -> Result<(f64, u32), ProbeError> {
        match way {
            Way::Plain { blocks_each } => self.read_plain(blocks_each, part),
            Way::Bulk { stage_bytes, stages } => self.read_bulk(stage_bytes, stages, part),
        }
    }

    fn read_plain(&self, blocks_each: usize, part: Part) -> Result<(f64, u32), ProbeError> {
        let config = self.gpu.blocks(self.gpu.multiprocessors * blocks_each, PLAIN_THREADS, 0);
        let mut out = self.out(&config)?;
        let mut launch = self.gpu.stream.launch_builder(&self.plain);
        launch.arg(&self.buffer).arg(&part.first).arg(&part.units).arg(&mut out);
        launch.record_kernel_launch(CUevent_flags::CU_EVENT_DEFAULT);
        // SAFETY: the arguments are the kernel's, in order; the part is within the buffer, and
        // every block writes one word.
        let events = unsafe { launch.launch(config) }?;
        self.timed(events, &out)
    }

    fn read_bulk(
        &self,
        stage_bytes: u32,
        stages: u32,
        part: Part,
    ) -> Result<(f64, u32), ProbeError> {
        let blocks = self.gpu.multiprocessors;
        let bytes = stage_bytes * stages;
        allow_shared(&self.bulk, bytes)?;
        let config = self.gpu.blocks(blocks, BULK_THREADS, bytes);
        let chunks = (part.units * UNIT_BYTES / u64::from(stage_bytes) / blocks as u64) as u32;
        let mut control: Control = self.gpu.control()?;
        let mut out = self.out(&config)?;
        let mut launch = self.gpu.stream.launch_builder(&self.bulk);
        launch.arg(&mut control.0).arg(&PATIENCE_NS).arg(&self.buffer).arg(&part.first);
        launch.arg(&chunks).arg(&stage_bytes).arg(&stages).arg(&mut out);
        launch.record_kernel_launch(CUevent_flags::CU_EVENT_DEFAULT);
        // SAFETY: the arguments are the kernel's, in order; the blocks' ranges together are the
        // part, which is within the buffer; the ring is the launch's dynamic shared memory, with
        // no more stages than the kernel has barriers.
        let events = unsafe { launch.launch(config) }?;
        control.check(&self.gpu.stream)?;
        self.timed(events, &out)
    }

    fn out(&self, config: &LaunchConfig) -> Result<CudaSlice<u32>, ProbeError> {
        Ok(self.gpu.stream.alloc_zeros(config.grid_dim.0 as usize)?)
    }

    fn folded(&self, out: &CudaSlice<u32>) -> Result<u32, ProbeError> {
        let words = self.gpu.stream.clone_dtoh(out)?;
        Ok(words.into_iter().fold(0, |all, word| all ^ word))
    }

    fn timed(
        &self,
        events: Option<(cudarc::driver::CudaEvent, cudarc::driver::CudaEvent)>,
        out: &CudaSlice<u32>,
    ) -> Result<(f64, u32), ProbeError> {
        let got = self.folded(out)?;
        let Some((begin, end)) = events else {
            return Err(ProbeError::Wrong("the launch was not timed".into()));
        };
        Ok((f64::from(begin.elapsed_ms(&end)?) * 1e3, got))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_kernels::Arch;

    #[test]
    fn shares_are_whole_stages_and_lie_within_the_buffer() {
        for blocks in [1, 132, 170, 188] {
            for bytes in SIZES {
                assert_eq!(bytes % UNIT_BYTES, 0);
                for stage_bytes in STAGE_BYTES {
                    let units = units_read(Way::Bulk { stage_bytes, stages: 4 }, bytes, blocks);
                    let share = units * UNIT_BYTES / blocks as u64;
                    assert_eq!(share % u64::from(stage_bytes), 0);
                    assert!(units * UNIT_BYTES <= bytes && units * UNIT_BYTES > bytes / 100 * 99);
                }
            }
        }
    }

    #[test]
    fn the_ring_fits_every_architecture() {
        for arch in Arch::ALL {
            let ring = RING_BYTES_MAX.min(arch.shared_bytes_max() - STATIC_BYTES_MAX);
            for stage_bytes in STAGE_BYTES {
                assert!((4..=STAGES_MAX).contains(&(ring / stage_bytes)), "{arch}");
            }
        }
    }
}
