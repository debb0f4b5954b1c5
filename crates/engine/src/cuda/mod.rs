//! The CUDA engine: the megakernel's host side. One launch per token; the token stays on the
//! device, so launches follow one another without waiting for the host.

mod device;
mod epoch;
mod fault;
mod launch;
mod params;
mod producer;
mod xray;

use crate::{Decoded, Engine, EngineError, EngineInfo, Timed};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream};
use device::{FaultWords, gpu_error, open, rope_table};
pub use device::{UsableGpu, usable};
use fault::{About, BLOCK_RECORDS};
use monolith_abi::Phase;
use monolith_abi::dump::Dump;
use monolith_abi::kernel::{
    BLOCKS_MAX, Control, EOS_MAX, FaultRecord, STEP_APPENDS, STEP_HAS_HEAD, STOPPED_END_OF_TEXT,
    STOPPED_NOT_A_NUMBER, StepArgs,
};
use monolith_abi::step::{Step, kv_capacity, output_of};
use monolith_kernels::Variant;
use monolith_model::Config;
use monolith_pack::{Formats, Pack, Section};
use producer::Producers;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use xray::Recording;
use zerocopy::{FromBytes, IntoBytes};

/// The default context, unless the model's maximum is lower.
const DEFAULT_CONTEXT: usize = 4096;

/// Prompt tokens that are launched before the host waits for them and reports progress: some tenths
/// of a second on the slowest GPU.
const PREFILL_CHUNK: usize = 64;

/// Index of [`Control::stopped`] among the control words.
const STOPPED_WORD: usize = std::mem::offset_of!(Control, stopped) / 4;

/// Options for loading the CUDA engine.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The number of the GPU.
    pub device: usize,
    /// Row of the variant table; `None`: the first row for the pack's formats.
    pub variant: Option<&'static Variant>,
    /// Whether steps can be recorded: selects the recording build of that row.
    pub records: bool,
    /// Blocks; `None`: as many as the kernel is tuned for, at most one per SM.
    pub blocks: Option<usize>,
    /// Positions in the KV cache; `None`: 4,096, or the model's maximum if lower.
    pub context: Option<usize>,
    /// How long a wait may last before it is a fault.
    pub timeout: Duration,
    /// An injected fault, for the tests of the fault path.
    pub injected: Option<Injected>,
    /// If not 0, the seed of pseudo-random delays, which are injected before some gathers.
    pub delay_seed: u32,
    /// Number of the step before the first: a test begins close to where 16 bits of it end.
    pub epoch_before: u32,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions {
            device: 0,
            variant: None,
            records: false,
            blocks: None,
            context: None,
            timeout: Duration::from_secs(2),
            injected: None,
            delay_seed: 0,
            epoch_before: 0,
        }
    }
}

/// A fault of one block in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// One of `monolith_abi::kernel::INJECTED_*`.
    pub kind: u32,
    /// The block.
    pub block: u32,
    /// The layer.
    pub layer: u32,
    /// The phase.
    pub phase: Phase,
}

/// The CUDA engine.
#[derive(Debug)]
pub struct CudaEngine {
    pack: Arc<Pack>,
    info: EngineInfo,
    stream: Arc<CudaStream>,
    launch: Box<dyn launch::Strategy>,
    args: StepArgs,
    buffers: Buffers,
    fault: FaultWords,
    variant: &'static Variant,
    step: Step,
    timeout: Duration,
    clock_hz: u64,
    /// Where a recording variant's steps write.
    recording: Option<Recording>,
    /// Positions whose keys and values are cached.
    cached: usize,
    stopped: bool,
}

/// After which of the queued steps an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The last one alone.
    Last,
    /// Each one.
    Each,
}

/// Steps that were queued and have run.
struct Queued {
    tokens: Vec<u32>,
    /// Before the first step.
    begin: CudaEvent,
    /// After the steps that [`Ends`] names.
    ends: Vec<CudaEvent>,
    /// Whether a stop token ended them early.
    stopped: bool,
}

/// Device memory. The host only holds fields with an underscore; the kernel uses them.
#[derive(Debug)]
struct Buffers {
    _weights: CudaSlice<u8>,
    _kv: CudaSlice<u16>,
    _rope: CudaSlice<f32>,
    slots: CudaSlice<u64>,
    tokens: CudaSlice<u32>,
    greedy: CudaSlice<u32>,
    logits: CudaSlice<f32>,
    control: CudaSlice<u32>,
    waits: CudaSlice<u32>,
}

impl CudaEngine {
    /// Loads a pack: finds the kernel, copies the weights, allocates everything.
    ///
    /// # Errors
    /// No driver, no GPU, no kernel for the GPU or the model, or too little memory; an impossible
    /// context or number of blocks.
    pub fn load(pack: Arc<Pack>, options: &CudaOptions) -> Result<CudaEngine, EngineError> {
        let max = pack.config().max_positions;
        let context = options.context.unwrap_or(DEFAULT_CONTEXT.min(max));
        if context == 0 || context > max {
            return Err(EngineError::ContextSize { context, max });
        }
        let variant = choose(options, pack.header().formats)?;
        let gpu = open(options.device, variant, pack.config())?;
        let stream = gpu.stream.clone();
        let blocks = options.blocks.unwrap_or(gpu.multiprocessors.min(gpu.step.tuning.grid));
        if blocks == 0 || blocks > gpu.multiprocessors || blocks > BLOCKS_MAX as usize {
            let most = gpu.multiprocessors.min(BLOCKS_MAX as usize);
            return Err(EngineError::BlockCount { blocks, max: most, gpu: gpu.name });
        }
        let buffers = Buffers::new(&stream, &pack, context, &gpu.step).map_err(gpu_error)?;
        let recording = variant.xray.then(|| Recording::new(&stream, blocks));
        let recording = recording.transpose().map_err(gpu_error)?;
        let fault = FaultWords::new(&gpu.context)?;
        let mut args = params::args(&pack, options, context)?;
        buffers.point(&stream, &mut args);
        args.fault = fault.device_address();
        args.epoch = options.epoch_before;
        let launch = launch::strategy(variant, gpu.kernels, &gpu.step, blocks, &stream, &args)?;
        Ok(CudaEngine {
            info: EngineInfo {
                engine: "cuda",
                variant: variant.name.into(),
                device: gpu.name,
                blocks,
                context,
                kernels: Some(gpu.kernel_key),
                cubin_sha256: Some(gpu.cubin_sha256),
                nvrtc: gpu.nvrtc,
                steps_ahead: 16,
                launches_per_token: Some(launch.launches_per_step()),
                clock: "CUDA events",
                any_shape: false,
            },
            launch,
            stream,
            pack,
            args,
            buffers,
            fault,
            variant,
            step: gpu.step,
            timeout: options.timeout,
            clock_hz: gpu.clock_hz,
            recording,
            cached: 0,
            stopped: false,
        })
    }

    /// Overwrites the logits with NaN, so that a test sees which ones a step writes.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn poison_logits(&mut self) -> Result<(), EngineError> {
        let poison = vec![f32::NAN; self.pack.config().vocab];
        self.stream.memcpy_htod(&poison, &mut self.buffers.logits).map_err(gpu_error)
    }

    /// Checks all steps before the first one is launched.
    fn check(&self, tokens: &[u32], position: usize, steps: usize) -> Result<(), EngineError> {
        let vocab = self.pack.config().vocab;
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(EngineError::Token { token, vocab });
        }
        let last = (position + steps).saturating_sub(1);
        if last >= self.info.context {
            return Err(EngineError::Context { position: last, context: self.info.context });
        }
        if position > self.cached {
            return Err(EngineError::Gap { position, cached: self.cached });
        }
        if self.stopped { Err(EngineError::Stopped) } else { Ok(()) }
    }

    /// Launches one step on the stream.
    fn launch(&mut self, position: usize, flags: u32) -> Result<(), EngineError> {
        self.args.epoch = epoch::next(self.args.epoch).ok_or(EngineError::Stopped)?;
        if epoch::begins_turn(self.args.epoch) {
            // A unit holds 16 bits of its epoch: what was published a turn ago must not look fresh.
            self.stream.memset_zeros(&mut self.buffers.slots).map_err(gpu_error)?;
        }
        self.args.position = position as u32;
        self.args.flags = flags;
        // SAFETY: every address in the parameters is of memory that this engine holds, and the
        // position and token were checked against the sizes of that memory.
        unsafe { self.launch.launch(&self.stream, &self.args) }
    }

    /// Waits for the launched steps and returns their error, if any, or else whether a stop token
    /// ended them early.
    fn finish(&mut self) -> Result<bool, EngineError> {
        if let Err(error) = self.stream.synchronize() {
            self.stopped = true;
            return Err(gpu_error(error));
        }
        if let Some(record) = self.fault.read() {
            self.stopped = true;
            return Err(self.fault_error(&record));
        }
        let word = self.buffers.control.slice(STOPPED_WORD..=STOPPED_WORD);
        let stopped = self.stream.clone_dtoh(&word).map_err(gpu_error)?[0];
        if stopped == STOPPED_NOT_A_NUMBER {
            self.stopped = true;
            return Err(EngineError::NotANumber);
        }
        if stopped == STOPPED_END_OF_TEXT {
            // Cleared only now, since the launches after the stop token had to do nothing.
            let mut word = self.buffers.control.slice_mut(STOPPED_WORD..=STOPPED_WORD);
            self.stream.memset_zeros(&mut word).map_err(gpu_error)?;
        }
        Ok(stopped == STOPPED_END_OF_TEXT)
    }

    /// Returns the owners of the values of a step.
    fn producers(&self) -> Producers {
        Producers::new(self.step, self.info.blocks)
    }

    fn fault_error(&self, cause: &FaultRecord) -> EngineError {
        // Launches run in order, so epochs and positions increase together.
        let later = epoch::steps_between(cause.epoch, self.args.epoch);
        let position = self.args.position.saturating_sub(later) as usize;
        let producers = self.producers();
        let words = self.stream.clone_dtoh(&self.buffers.waits).unwrap_or_default();
        let waits = <[FaultRecord]>::ref_from_bytes(words.as_bytes()).unwrap_or_default();
        let about = About {
            variant: self.info.variant.clone(),
            device: self.info.device.clone(),
            model: self.pack.source().model.clone(),
            blocks: self.info.blocks,
            position,
            timeout: self.timeout,
            consumer_warps: self.step.tuning.consumer_warps as u32,
        };
        fault::error_from(cause, fault::waits_from(waits, &producers), &producers, about)
    }

    /// Decodes greedily, up to and including the first token that is one of `stops` (at most
    /// `EOS_MAX`); with a chosen step, every step records.
    ///
    /// All steps are queued at once. The step whose token is a stop token sets a flag on the
    /// device; later launches check the flag first and do nothing.
    fn decode_steps(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        stops: &[u32],
        chosen: Option<usize>,
    ) -> Result<Decoded, EngineError> {
        self.args.eos_count = stops.len() as u32;
        self.args.eos[..stops.len()].copy_from_slice(stops);
        // One end event for every step that can be the last one.
        let ends = if stops.is_empty() { Ends::Last } else { Ends::Each };
        let Queued { mut tokens, begin, mut ends, stopped } =
            self.queue_steps(token, position, steps, ends, chosen)?;
        if stopped {
            // Tokens after the first stop token are of earlier calls.
            let last = tokens.iter().position(|token| stops.contains(token));
            let ran = last.map_or(steps, |last| last + 1);
            tokens.truncate(ran);
            ends.truncate(ran);
        }
        self.cached = position + tokens.len();
        let elapsed = ends.last().map_or(Ok(0.0), |end| begin.elapsed_ms(end));
        Ok(Decoded { tokens, seconds: f64::from(elapsed.map_err(gpu_error)?) / 1e3 })
    }

    /// Queues steps and waits for them.
    fn queue_steps(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        which: Ends,
        chosen: Option<usize>,
    ) -> Result<Queued, EngineError> {
        self.check(&[token], position, steps)?;
        self.put_tokens(&[token], position)?;
        self.args.logits = 0;
        let begin = self.event()?;
        let mut ends = Vec::with_capacity(steps);
        for step in 0..steps {
            if let Some(chosen) = chosen {
                self.record(step == chosen)?;
            }
            self.launch(position + step, STEP_HAS_HEAD | STEP_APPENDS)?;
            if which == Ends::Each || step + 1 == steps {
                ends.push(self.event()?);
            }
        }
        let stopped = self.finish()?;
        let tokens = self.greedy(position, steps)?;
        Ok(Queued { tokens, begin, ends, stopped })
    }

    /// [`CudaEngine::decode_steps`] with more stop tokens than a launch can check: the host checks
    /// every token before it launches the next step.
    fn decode_step_by_step(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        stops: &[u32],
    ) -> Result<Decoded, EngineError> {
        self.check(&[token], position, steps)?;
        let mut decoded = Decoded { tokens: Vec::with_capacity(steps), seconds: 0.0 };
        let mut last = token;
        for step in 0..steps {
            let one = self.decode_steps(last, position + step, 1, &[], None)?;
            decoded.seconds += one.seconds;
            decoded.tokens.extend(&one.tokens);
            last = one.tokens[0];
            if stops.contains(&last) {
                break;
            }
        }
        Ok(decoded)
    }

    /// Records an event with a time on the stream.
    fn event(&self) -> Result<CudaEvent, EngineError> {
        self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(gpu_error)
    }

    /// Makes later steps record: the chosen one into the buffers that are read, the others into
    /// other ones.
    fn record(&mut self, chosen: bool) -> Result<(), EngineError> {
        let variant = &self.info.variant;
        let recording =
            self.recording.as_ref().ok_or_else(|| EngineError::NoXray(variant.clone()))?;
        self.args.xray = recording.address(&self.stream, chosen);
        Ok(())
    }

    /// Returns the dump of the chosen step, which had this epoch and position.
    fn dump(&self, epoch: u32, position: usize) -> Result<Dump, EngineError> {
        let no_xray = || EngineError::NoXray(self.info.variant.clone());
        let recording = self.recording.as_ref().ok_or_else(no_xray)?;
        let words = recording.words(&self.stream).map_err(gpu_error)?;
        let blocks = xray::blocks_from(&words, epoch, &self.producers())?;
        Ok(Dump {
            engine: self.info.engine.into(),
            variant: self.variant.headline().unwrap_or(self.variant).name.into(),
            device: self.info.device.clone(),
            model: self.pack.source().model.clone(),
            build: self.info.kernels.clone().unwrap_or_default(),
            layers: self.config().layers as u16,
            position: position as u32,
            clock_hz: self.clock_hz,
            global_step_ns: xray::timer_step_ns(&blocks),
            phase_bytes: crate::bytes::by_phase(self.pack.header(), position),
            pace: None,
            blocks,
        })
    }

    fn put_tokens(&mut self, tokens: &[u32], position: usize) -> Result<(), EngineError> {
        let mut place = self.buffers.tokens.slice_mut(position..position + tokens.len());
        self.stream.memcpy_htod(tokens, &mut place).map_err(gpu_error)
    }

    fn greedy(&self, position: usize, steps: usize) -> Result<Vec<u32>, EngineError> {
        let place = self.buffers.greedy.slice(position..position + steps);
        self.stream.clone_dtoh(&place).map_err(gpu_error)
    }
}

/// Milliseconds as the driver gives them. At 100 ms an f32 resolves 8 ns.
fn nanoseconds(ms: f32) -> u64 {
    (f64::from(ms) * 1e6).round() as u64
}

/// The two values of a unit of the exchange, 24 bits each.
fn values_of(unit: u64) -> [f32; 2] {
    let first = (unit >> 32) as u32 & 0xffff_ff00;
    let second = (unit >> 8) as u32 & 0xffff_ff00;
    [f32::from_bits(first), f32::from_bits(second)]
}

/// Returns the row of the table for a pack's formats.
fn choose(options: &CudaOptions, formats: Formats) -> Result<&'static Variant, EngineError> {
    let map = formats.map();
    let no_kernel = || {
        let why = match map.layers() {
            Some(_) => "",
            None => {
                ": a kernel needs one format for all matrices of the layers, and may have another \
                 for LM head and embedding"
            }
        };
        EngineError::UnfitPack(format!("no kernel runs a pack in {}{why}", formats.name()))
    };
    let fitting = Variant::of_formats(map);
    let variant = options.variant.or(fitting).ok_or_else(no_kernel)?;
    if !variant.runs(map) {
        let (name, wants, is) = (variant.name, variant.formats(), formats.name());
        return Err(EngineError::UnfitPack(format!(
            "variant {name} runs weights in {wants}, but the pack is in {is}"
        )));
    }
    let no_record = || EngineError::NoXray(variant.name.into());
    if options.records { variant.recorded().ok_or_else(no_record) } else { Ok(variant) }
}

impl Buffers {
    fn new(
        stream: &Arc<CudaStream>,
        pack: &Pack,
        context: usize,
        step: &Step,
    ) -> Result<Buffers, cudarc::driver::DriverError> {
        let config = pack.config();
        let positions = kv_capacity(context, step.tuning.kv_chunk);
        let kv = config.layers * 2 * config.kv_dim() * positions;
        Ok(Buffers {
            _weights: stream.clone_htod(pack.payload())?,
            _kv: stream.alloc_zeros(kv)?,
            _rope: stream.clone_htod(&rope_table(config, context))?,
            slots: stream.alloc_zeros(step.sizes.slot_units)?,
            tokens: stream.alloc_zeros(context + 1)?,
            greedy: stream.alloc_zeros(context)?,
            logits: stream.alloc_zeros(config.vocab)?,
            control: stream.alloc_zeros(size_of::<Control>() / 4)?,
            waits: stream
                .alloc_zeros(BLOCKS_MAX as usize * BLOCK_RECORDS * size_of::<FaultRecord>() / 4)?,
        })
    }
}

impl Drop for CudaEngine {
    fn drop(&mut self) {
        // After an error the kernel may still be running: waits for it before memory is freed.
        let _ = self.stream.synchronize();
    }
}

impl Engine for CudaEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn config(&self) -> &Config {
        self.pack.config()
    }

    fn cached(&self) -> usize {
        self.cached
    }

    fn step(&mut self, token: u32, position: usize) -> Result<u32, EngineError> {
        self.check(&[token], position, 1)?;
        self.put_tokens(&[token], position)?;
        self.args.logits = self.buffers.logits_address(&self.stream);
        self.launch(position, STEP_HAS_HEAD)?;
        self.finish()?;
        self.cached = position + 1;
        Ok(self.greedy(position, 1)?[0])
    }

    fn prefill_with(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<u32, EngineError> {
        let Some(last) = tokens.len().checked_sub(1) else {
            return Err(EngineError::Gap { position: 0, cached: 0 });
        };
        self.check(tokens, 0, tokens.len())?;
        self.put_tokens(tokens, 0)?;
        self.args.logits = self.buffers.logits_address(&self.stream);
        for first in (0..tokens.len()).step_by(PREFILL_CHUNK) {
            let end = tokens.len().min(first + PREFILL_CHUNK);
            for position in first..end {
                self.launch(position, if position == last { STEP_HAS_HEAD } else { 0 })?;
            }
            self.finish()?;
            self.cached = end;
            crate::report(progress, end, tokens.len())?;
        }
        Ok(self.greedy(last, 1)?[0])
    }

    fn decode_until(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        stop: &[u32],
    ) -> Result<Decoded, EngineError> {
        if stop.len() > EOS_MAX {
            return self.decode_step_by_step(token, position, steps, stop);
        }
        self.decode_steps(token, position, steps, stop, None)
    }

    fn decode_timed(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
    ) -> Result<Timed, EngineError> {
        self.args.eos_count = 0;
        let Queued { tokens, begin, ends, .. } =
            self.queue_steps(token, position, steps, Ends::Each, None)?;
        self.cached = position + tokens.len();
        let at_ns = ends.iter().map(|end| begin.elapsed_ms(end).map(nanoseconds));
        Ok(Timed { tokens, at_ns: at_ns.collect::<Result<_, _>>().map_err(gpu_error)? })
    }

    fn step_recorded(&mut self, token: u32, position: usize) -> Result<(u32, Dump), EngineError> {
        self.record(true)?;
        let next = self.step(token, position);
        self.args.xray = 0;
        Ok((next?, self.dump(self.args.epoch, position)?))
    }

    fn decode_recorded(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        chosen: usize,
    ) -> Result<(Decoded, Dump), EngineError> {
        if chosen >= steps {
            return Err(EngineError::Gap { position: position + chosen, cached: self.cached });
        }
        self.record(true)?;
        let decoded = self.decode_steps(token, position, steps, &[], Some(chosen));
        self.args.xray = 0;
        let decoded = decoded?;
        let epoch = epoch::before(self.args.epoch, (steps - 1 - chosen) as u32);
        Ok((decoded, self.dump(epoch, position + chosen)?))
    }

    fn logits(&self, out: &mut Vec<f32>) {
        out.resize(self.pack.config().vocab, f32::NAN);
        if self.stream.memcpy_dtoh(&self.buffers.logits, out).is_err() {
            out.fill(f32::NAN);
        }
    }

    fn intermediate(&self, layer: usize, phase: Phase) -> Option<Vec<f32>> {
        if layer >= self.step.dims.layers || !phase.is_per_layer() || self.args.epoch == 0 {
            return None;
        }
        let output = output_of(phase)?;
        let slot = output.slot?;
        let base = layer * self.step.sizes.layer_units + slot.begin.of(&self.step);
        let (pairs, sums) = (output.width.of(&self.step) / 2, slot.sums(&self.step));
        let end = base + slot.place(&self.step, pairs - 1, sums - 1);
        let words = self.stream.clone_dtoh(&self.buffers.slots.slice(base..=end)).ok()?;
        let values = |pair, sum| values_of(words[slot.place(&self.step, pair, sum)]);
        let added = |pair| {
            let all = (0..sums).map(|sum| values(pair, sum));
            all.reduce(|a, b| [a[0] + b[0], a[1] + b[1]]).unwrap_or_default()
        };
        let mut all: Vec<f32> = (0..pairs).flat_map(added).collect();
        // Partial sums are what a phase adds to the residual stream.
        if slot.sums.is_some() {
            let before = self.residual_before(layer, phase)?;
            all.iter_mut().zip(before).for_each(|(value, before)| *value += before);
        }
        Some(all)
    }
}

impl CudaEngine {
    /// The embedding of the last step's token.
    fn embedding_of_last(&self) -> Option<Vec<f32>> {
        let position = self.args.position as usize;
        let token = self.stream.clone_dtoh(&self.buffers.tokens.slice(position..=position)).ok()?;
        let mut row = vec![0.0; self.step.dims.hidden];
        self.pack.matrix(Section::Embedding).read_row(token[0] as usize, &mut row);
        Some(row)
    }

    /// The residual stream before a phase that adds to it: what the phase that did so before left,
    /// or the token's embedding.
    fn residual_before(&self, layer: usize, phase: Phase) -> Option<Vec<f32>> {
        match (layer, phase) {
            (_, Phase::Down) => self.intermediate(layer, Phase::OProj),
            (0, _) => self.embedding_of_last(),
            _ => self.intermediate(layer - 1, Phase::Down),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_kernels::variant::TABLE;
    use monolith_kernels::{Arch, Shape};

    /// The step of the plain kernel for Qwen3-0.6B on an H200.
    pub(super) fn step() -> Step {
        TABLE[0].step(Arch::SM_90A, &Shape::of(&Config::qwen3_0_6b()).unwrap())
    }
}
