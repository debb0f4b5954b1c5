//! The team: one persistent thread per worker, woken once per step.

use super::record::SpanRecord;
use super::simd::Simd;
use super::step::{State, Step, StepFault};
use crate::plan::Plan;
use crate::rope::RopeTable;
use monolith_abi::Phase;
use monolith_handoff::{Abort, Doorbell, Exchange, STOPPED, Timeout};
use monolith_model::{Config, LayerTensor, Tensor};
use monolith_pack::{Formats, Pack};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An injected fault, to test that it is detected, or injected delays, to test that they change
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Injected {
    /// A worker does not publish its output of one phase of one layer.
    Skip {
        /// The worker.
        worker: usize,
        /// The layer.
        layer: usize,
        /// The phase.
        phase: Phase,
    },
    /// Every worker sleeps before some of its gathers, for up to 50 us, by a hash of the seed.
    Delays {
        /// Chooses the gathers and the times.
        seed: u64,
    },
}

/// Norm weights of one layer, as f32.
#[derive(Debug)]
pub(crate) struct LayerNorms {
    pub(crate) input: Vec<f32>,
    pub(crate) post: Vec<f32>,
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
}

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pack: Arc<Pack>,
    pub(crate) plan: Plan,
    pub(crate) exchange: Exchange,
    pub(crate) abort: Abort,
    pub(crate) timeout: Timeout,
    pub(crate) simd: Simd,
    pub(crate) context: usize,
    pub(crate) norms: Vec<LayerNorms>,
    pub(crate) final_norm: Vec<f32>,
    pub(crate) rope: RopeTable,
    /// The bits of one f32 for each vocabulary row, written by the row's owner.
    pub(crate) logits: Vec<AtomicU32>,
    pub(crate) injected: Option<Injected>,
    bell: Doorbell,
    command: Command,
    clock: Instant,
    /// The first wait that failed, or the first panic.
    failure: Mutex<Option<Failure>>,
    /// The records of a recorded step. Each worker adds its own when it has finished.
    records: Mutex<Vec<SpanRecord>>,
    /// How many workers have added their records.
    handed_in: AtomicUsize,
}

/// The host's request for a step: written before the ring, read after it.
#[derive(Debug, Default)]
struct Command {
    token: AtomicUsize,
    position: AtomicUsize,
    kind: AtomicU32,
}

/// What a step computes beside its keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// Nothing: the LM head does not run. For the tokens of a prompt except the last.
    Headless,
    /// The logits and the next token.
    Plain,
    /// The logits, the next token, and the spans of every worker.
    Recorded,
}

impl StepKind {
    fn read(from: &AtomicU32) -> StepKind {
        const ALL: [StepKind; 3] = [StepKind::Headless, StepKind::Plain, StepKind::Recorded];
        ALL[from.load(Ordering::Relaxed) as usize]
    }
}

/// How a worker's share of a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Done { recorded: bool },
    Failed,
}

/// Why the team stopped.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Fault(StepFault),
    Panic { worker: usize, message: String },
}

impl Shared {
    pub(crate) fn new(pack: Arc<Pack>, options: &super::CpuOptions, context: usize) -> Shared {
        let config = pack.config();
        let plan = Plan::new(config, options.threads);
        let norm = |layer, tensor| pack.norm(Tensor::Layer(layer, tensor));
        let norms = (0..config.layers)
            .map(|layer| LayerNorms {
                input: norm(layer, LayerTensor::InputNorm),
                post: norm(layer, LayerTensor::PostNorm),
                query: norm(layer, LayerTensor::QNorm),
                key: norm(layer, LayerTensor::KNorm),
            })
            .collect();
        Shared {
            exchange: Exchange::new(plan.units()),
            plan,
            abort: Abort::default(),
            timeout: Timeout(options.timeout),
            simd: options.simd,
            context,
            norms,
            final_norm: pack.norm(Tensor::FinalNorm),
            rope: RopeTable::new(config, context),
            logits: (0..config.vocab).map(|_| AtomicU32::new(0)).collect(),
            injected: options.injected,
            bell: Doorbell::new(options.threads - 1),
            command: Command::default(),
            clock: Instant::now(),
            failure: Mutex::new(None),
            records: Mutex::new(Vec::new()),
            handed_in: AtomicUsize::new(0),
            pack,
        }
    }

    /// The formats of the pack's matrices.
    pub(crate) fn formats(&self) -> Formats {
        self.pack.header().formats
    }

    pub(crate) fn config(&self) -> &Config {
        self.pack.config()
    }

    /// Nanoseconds since the engine was loaded.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Starts a step on every other worker.
    pub(crate) fn start(&self, epoch: u32, token: usize, position: usize, kind: StepKind) {
        self.command.token.store(token, Ordering::Relaxed);
        self.command.position.store(position, Ordering::Relaxed);
        self.command.kind.store(kind as u32, Ordering::Relaxed);
        self.bell.ring(u64::from(epoch));
    }

    /// Ends every other worker.
    pub(crate) fn stop(&self) {
        self.bell.ring(STOPPED);
    }

    /// Runs one worker's whole share of the requested step.
    ///
    /// The worker reads the command at the start: once it has published to the final slot, the
    /// host may write the next command.
    pub(crate) fn take_part(&self, state: &mut State, worker: usize, epoch: u32) -> Ended {
        let token = self.command.token.load(Ordering::Relaxed);
        let position = self.command.position.load(Ordering::Relaxed);
        let kind = StepKind::read(&self.command.kind);
        let has_head = kind != StepKind::Headless;
        let recorded = kind == StepKind::Recorded;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if recorded {
                Step::<true> { shared: self, state, worker, epoch, token, position }.run(has_head)
            } else {
                Step::<false> { shared: self, state, worker, epoch, token, position }.run(has_head)
            }
        }));
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => self.fail(Failure::Fault(fault)),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let message = text.unwrap_or("no message").to_owned();
                self.fail(Failure::Panic { worker, message });
            }
        }
        if self.abort.is_raised() { Ended::Failed } else { Ended::Done { recorded } }
    }

    /// Keeps the first failure and aborts every wait.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
        self.abort.raise();
    }

    /// The first failure, if the team has failed.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a worker's records to those of the step.
    pub(crate) fn hand_in(&self, records: &mut Vec<SpanRecord>) {
        let mut all = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(records);
        self.handed_in.fetch_add(1, Ordering::Release);
    }

    /// Waits until every worker has added its records of a step, and returns all of them.
    pub(crate) fn collect(&self) -> Vec<SpanRecord> {
        while self.handed_in.load(Ordering::Acquire) < self.plan.workers {
            std::thread::yield_now();
        }
        self.handed_in.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The loop of a worker other than the host's own.
    pub(crate) fn work(&self, worker: usize) {
        let mut state = State::new(self, worker);
        let mut ring = 0;
        loop {
            ring = self.bell.wait(worker - 1, ring);
            if ring == STOPPED {
                return;
            }
            match self.take_part(&mut state, worker, ring as u32) {
                Ended::Failed => return,
                Ended::Done { recorded: true } => self.hand_in(&mut state.records),
                Ended::Done { recorded: false } => {}
            }
        }
    }
}

/// Sleeps before about one gather in four, by a hash of worker, epoch, layer and phase.
pub(crate) fn delay(seed: u64, worker: usize, epoch: u32, layer: usize, phase: Phase) {
    let mut hash = seed;
    for part in [worker as u64, u64::from(epoch), layer as u64, phase as u64] {
        hash = (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    if hash.is_multiple_of(4) {
        std::thread::sleep(Duration::from_micros((hash >> 8) % 50));
    }
}
