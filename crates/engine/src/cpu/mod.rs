//! The CPU engine: a persistent team of threads runs the whole step, as the megakernel's blocks
//! do. Each thread owns fixed rows and heads. Threads exchange values through
//! [`monolith_handoff`] and are woken once per token. The first worker runs on the caller's thread.
//!
//! The result's bits are the same for every number of threads and for every SIMD level with fused
//! multiply-add, because a row's sum has one fixed order.

mod attention;
mod formats;
mod matvec;
mod record;

pub mod simd;
mod step;
mod team;

pub use team::Injected;

use crate::{Engine, EngineError, EngineInfo, HOST_CLOCK};
use monolith_abi::EventKind;
use monolith_abi::Phase;
use monolith_abi::dump::{Dump, NO_BLOCK, NO_LAYER};
use monolith_abi::kernel::{NO_ROW, NOT_A_NUMBER};
use monolith_handoff::Exchange;
use monolith_model::Config;
use monolith_pack::Pack;
use record::{SpanRecord, blocks_from};
use simd::Simd;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use step::{State, StepFault};
use team::{Ended, Failure, Shared, StepKind};

/// The default context, unless the model's maximum is lower.
const DEFAULT_CONTEXT: usize = 4096;

/// More threads than any machine has cores; block numbers are 16 bits wide.
const THREADS_MAX: usize = 4096;

/// A small stack is enough, because a step's arrays are on the heap.
const STACK_BYTES: usize = 1 << 20;

/// Options for [`CpuEngine::load`].
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Workers, the caller's thread included.
    pub threads: usize,
    /// Positions in the KV cache; `None`: 4,096, or the model's maximum if lower.
    pub context: Option<usize>,
    /// SIMD level.
    pub simd: Simd,
    /// How long a wait may last before it becomes a fault.
    pub timeout: Duration,
    /// An injected fault, for tests.
    pub injected: Option<Injected>,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            context: None,
            simd: Simd::detect(),
            // The first step may read its weights from a slow disk.
            timeout: Duration::from_secs(60),
            injected: None,
        }
    }
}

/// The CPU engine.
#[derive(Debug)]
pub struct CpuEngine {
    shared: Arc<Shared>,
    info: EngineInfo,
    own: State,
    others: Vec<JoinHandle<()>>,
    epoch: u32,
    /// Positions whose keys and values are cached.
    cached: usize,
}

impl CpuEngine {
    /// Loads a pack: checks the options, allocates everything, starts the team.
    ///
    /// # Errors
    /// No threads or too many, a context of 0 or beyond the model's maximum, or threads that the
    /// system does not grant.
    pub fn load(pack: Arc<Pack>, options: &CpuOptions) -> Result<CpuEngine, EngineError> {
        let context = check(pack.config(), options)?;
        let shared = Arc::new(Shared::new(pack, options, context));
        let mut engine = CpuEngine {
            info: EngineInfo {
                engine: "cpu",
                variant: format!("{}-cpu-{}", shared.formats().name(), options.simd.name()),
                device: device_name(),
                blocks: options.threads,
                context,
                kernels: None,
                cubin_sha256: None,
                nvrtc: None,
                steps_ahead: 1,
                launches_per_token: None,
                clock: HOST_CLOCK,
                any_shape: true,
            },
            own: State::new(&shared, 0),
            others: Vec::new(),
            epoch: 0,
            cached: 0,
            shared,
        };
        for worker in 1..options.threads {
            let shared = engine.shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("monolith-{worker}"))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work(worker))
                .map_err(|source| EngineError::Threads { wanted: options.threads, source })?;
            engine.others.push(thread);
        }
        Ok(engine)
    }

    /// Runs one step and returns the next token. After a headless step the token has no meaning.
    fn run_step(
        &mut self,
        token: u32,
        position: usize,
        kind: StepKind,
    ) -> Result<u32, EngineError> {
        let config = self.shared.config();
        if token as usize >= config.vocab {
            return Err(EngineError::Token { token, vocab: config.vocab });
        }
        if position >= self.info.context {
            return Err(EngineError::Context { position, context: self.info.context });
        }
        if position > self.cached {
            return Err(EngineError::Gap { position, cached: self.cached });
        }
        if self.shared.abort.is_raised() {
            return Err(EngineError::Stopped);
        }
        self.epoch = self.epoch.checked_add(1).ok_or(EngineError::Stopped)?;
        self.shared.start(self.epoch, token as usize, position, kind);
        if self.shared.take_part(&mut self.own, 0, self.epoch) == Ended::Failed {
            return Err(self.failure());
        }
        let next = self.argmax(kind)?;
        self.cached = position + 1;
        Ok(next)
    }

    /// Reads every worker's largest logit and returns the lowest index of the largest one. When it
    /// returns, every worker has finished the step.
    fn argmax(&mut self, kind: StepKind) -> Result<u32, EngineError> {
        let begin_ns = self.shared.now_ns();
        let (mut largest, mut index) = (f32::NEG_INFINITY, NO_ROW);
        let mut waited_for = None;
        for worker in 0..self.shared.plan.workers {
            let Shared { exchange, plan, timeout, abort, .. } = &*self.shared;
            let units = plan.final_units(Exchange::parity(self.epoch), worker);
            let mut pair = [0; 2];
            let gathered =
                exchange.gather(units, self.epoch, *timeout, abort, |at, value| pair[at] = value);
            match gathered {
                Ok(arrival) if arrival.last_blocked.is_some() => waited_for = Some(worker),
                Ok(_) => {}
                Err(fault) => {
                    let phase = Phase::LmHead;
                    let fault =
                        StepFault { worker: 0, waits_on: worker, layer: None, phase, fault };
                    self.shared.fail(Failure::Fault(fault));
                    return Err(self.failure());
                }
            }
            let logit = f32::from_bits(pair[0]);
            if pair[1] == NOT_A_NUMBER {
                return Err(EngineError::NotANumber);
            }
            // Workers own rows in order, so `>` keeps the lowest index of equal logits.
            if logit > largest {
                (largest, index) = (logit, pair[1]);
            }
        }
        if kind == StepKind::Recorded {
            self.record_argmax(begin_ns, waited_for);
        }
        let is_number = largest > f32::NEG_INFINITY || kind == StepKind::Headless;
        if is_number { Ok(index) } else { Err(EngineError::NotANumber) }
    }

    fn record_argmax(&mut self, begin_ns: u64, waited_for: Option<usize>) {
        let (kind, phase, waits_on) = match waited_for {
            Some(worker) => (EventKind::WaitExchange, Phase::LmHead, worker as u16),
            None => (EventKind::Work, Phase::Argmax, NO_BLOCK),
        };
        let (end_ns, layer) = (self.shared.now_ns(), NO_LAYER);
        self.own.records.push(SpanRecord {
            begin_ns,
            end_ns,
            layer,
            block: 0,
            waits_on,
            phase,
            kind,
        });
    }

    /// The team's first failure.
    fn failure(&self) -> EngineError {
        match self.shared.failure() {
            Some(Failure::Fault(StepFault { worker, waits_on, layer, phase, fault })) => {
                EngineError::Fault {
                    block: worker,
                    waits_on,
                    layer,
                    phase,
                    timeout: self.shared.timeout.0,
                    fault,
                }
            }
            Some(Failure::Panic { worker, message }) => {
                EngineError::Panic { block: worker, message }
            }
            None => EngineError::Stopped,
        }
    }
}

impl Engine for CpuEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn config(&self) -> &Config {
        self.shared.config()
    }

    fn cached(&self) -> usize {
        self.cached
    }

    fn step(&mut self, token: u32, position: usize) -> Result<u32, EngineError> {
        self.run_step(token, position, StepKind::Plain)
    }

    fn prefill_with(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<u32, EngineError> {
        let Some((&last, before)) = tokens.split_last() else {
            return Err(EngineError::Gap { position: 0, cached: 0 });
        };
        for (position, &token) in before.iter().enumerate() {
            self.run_step(token, position, StepKind::Headless)?;
            crate::report(progress, position + 1, tokens.len())?;
        }
        let next = self.step(last, before.len())?;
        crate::report(progress, tokens.len(), tokens.len())?;
        Ok(next)
    }

    fn step_recorded(&mut self, token: u32, position: usize) -> Result<(u32, Dump), EngineError> {
        let next = self.run_step(token, position, StepKind::Recorded)?;
        self.shared.hand_in(&mut self.own.records);
        let dump = Dump {
            engine: self.info.engine.into(),
            variant: self.info.variant.clone(),
            device: self.info.device.clone(),
            model: self.shared.pack.source().model.clone(),
            build: String::new(),
            layers: self.config().layers as u16,
            position: position as u32,
            clock_hz: 1_000_000_000,
            global_step_ns: clock_step_ns(),
            phase_bytes: crate::bytes::by_phase(self.shared.pack.header(), position),
            pace: None,
            blocks: blocks_from(self.shared.collect(), self.info.blocks),
        };
        Ok((next, dump))
    }

    fn logits(&self, out: &mut Vec<f32>) {
        out.clear();
        let bits = self.shared.logits.iter().map(|logit| logit.load(Ordering::Relaxed));
        out.extend(bits.map(f32::from_bits));
    }

    fn intermediate(&self, layer: usize, phase: Phase) -> Option<Vec<f32>> {
        if layer >= self.config().layers || !phase.is_per_layer() || self.epoch == 0 {
            return None;
        }
        let base = self.shared.plan.base(layer, phase);
        let units = base..base + self.shared.plan.width(phase);
        Some(units.map(|unit| f32::from_bits(self.shared.exchange.peek(unit).0)).collect())
    }
}

impl Drop for CpuEngine {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.others.drain(..) {
            // A worker's panic was caught and reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Checks the options against the model and returns the context.
fn check(config: &Config, options: &CpuOptions) -> Result<usize, EngineError> {
    let context = options.context.unwrap_or(DEFAULT_CONTEXT.min(config.max_positions));
    if context == 0 || context > config.max_positions {
        return Err(EngineError::ContextSize { context, max: config.max_positions });
    }
    if options.threads == 0 || options.threads > THREADS_MAX {
        return Err(EngineError::ThreadCount { threads: options.threads, max: THREADS_MAX });
    }
    Ok(context)
}

/// The processor's name, as the system reports it.
pub fn device_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned());
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The smallest observed step of the clock.
fn clock_step_ns() -> u64 {
    let begin = std::time::Instant::now();
    let steps = (0..64).map(|_| {
        loop {
            let (before, after) = (begin.elapsed(), begin.elapsed());
            if after > before {
                break (after - before).as_nanos() as u64;
            }
        }
    });
    steps.min().unwrap_or(1)
}
