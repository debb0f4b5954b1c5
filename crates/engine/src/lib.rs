//! The engines: one step takes a token and gives the next one.

mod bytes;
pub mod cpu;
pub mod cuda;
mod plan;
mod rope;

pub use cpu::{CpuEngine, CpuOptions};
pub use cuda::{CudaEngine, CudaOptions};

use cudarc::driver::DriverError;
use monolith_abi::{Phase, dump::Dump, fault::FaultDump};
use monolith_handoff::{Fault, FaultCause};
use monolith_kernels::KernelError;
use monolith_model::Config;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The facts that identify an engine and its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// `cpu` or `cuda`.
    pub engine: &'static str,
    /// Row of the variant table.
    pub variant: String,
    /// The processor's name, as the processor reports it.
    pub device: String,
    /// Blocks (threads) that take part in a step.
    pub blocks: usize,
    /// Positions that the KV cache has room for.
    pub context: usize,
    /// The hash over the GPU kernel's sources and options. `None` on a CPU.
    pub kernels: Option<String>,
    /// sha256 of the machine code that was loaded onto the GPU: the whole cubin. `None` on a CPU.
    pub cubin_sha256: Option<String>,
    /// Version of the NVRTC that compiled that machine code, as the cubin states it: `13.0.88`.
    /// `None` on a CPU, and for a cubin that does not state it.
    pub nvrtc: Option<String>,
    /// How many greedy steps to request at once ([`Engine::decode_until`]): a GPU is faster when
    /// it need not wait for the host after each step.
    pub steps_ahead: usize,
    /// Kernel launches of a step. `None`: the engine launches no kernel.
    pub launches_per_token: Option<u32>,
    /// Name of the clock that [`Decoded::seconds`] is read from.
    pub clock: &'static str,
    /// Whether the engine runs models of any shape. A GPU's kernel needs dimensions that its tiles
    /// divide.
    pub any_shape: bool,
}

/// [`EngineInfo::clock`] of an engine that the host times.
pub const HOST_CLOCK: &str = "monotonic clock";

/// The result of [`Engine::decode`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The greedy tokens, one for each step that ran. After a stop token no step runs, so that
    /// such a token is the last.
    pub tokens: Vec<u32>,
    /// Time of all steps together: on a GPU between two events, on a CPU by the clock.
    pub seconds: f64,
}

/// The result of [`Engine::decode_timed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The greedy tokens, one for each step.
    pub tokens: Vec<u32>,
    /// When each of them was there, in ns since the first step began, by [`EngineInfo::clock`].
    pub at_ns: Vec<u64>,
}

/// An engine decodes one token per step, at batch 1.
pub trait Engine {
    /// The engine's and its device's facts.
    fn info(&self) -> &EngineInfo;

    /// The model's configuration.
    fn config(&self) -> &Config;

    /// Positions whose keys and values are cached.
    fn cached(&self) -> usize;

    /// Runs `token` at `position` and returns the greedy next token: the lowest index of the
    /// largest logit. A position below [`Engine::cached`] continues from there.
    ///
    /// # Errors
    /// A token outside the vocabulary, a position outside the context or beyond what is cached,
    /// logits that are not numbers, or a step that failed.
    fn step(&mut self, token: u32, position: usize) -> Result<u32, EngineError>;

    /// Runs a prompt from position 0 on and returns the greedy next token. Only the prompt's last
    /// token needs the LM head. `progress` gets the number of finished tokens after each token or
    /// after a few. If it breaks, the prompt ends there.
    ///
    /// # Errors
    /// Those of [`Engine::step`]; a prompt without tokens is a gap;
    /// [`EngineError::Interrupted`] if `progress` broke.
    fn prefill_with(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<u32, EngineError> {
        let mut next = Err(EngineError::Gap { position: 0, cached: 0 });
        for (position, &token) in tokens.iter().enumerate() {
            next = Ok(self.step(token, position)?);
            report(progress, position + 1, tokens.len())?;
        }
        next
    }

    /// [`Engine::prefill_with`] without progress or interruption, for short or timed prompts.
    ///
    /// # Errors
    /// Those of [`Engine::prefill_with`].
    fn prefill(&mut self, tokens: &[u32]) -> Result<u32, EngineError> {
        self.prefill_with(tokens, &mut |_| ControlFlow::Continue(()))
    }

    /// Decodes greedily: up to `steps` steps from `token` at `position` on, each fed the previous
    /// step's token, timed together. A token of `stop` ends the text: no step runs after the one
    /// that gave it.
    ///
    /// # Errors
    /// Those of [`Engine::step`].
    fn decode_until(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        stop: &[u32],
    ) -> Result<Decoded, EngineError> {
        let begin = Instant::now();
        let mut tokens = Vec::with_capacity(steps);
        for step in 0..steps {
            let from = tokens.last().copied().unwrap_or(token);
            let next = self.step(from, position + step)?;
            tokens.push(next);
            if stop.contains(&next) {
                break;
            }
        }
        Ok(Decoded { tokens, seconds: begin.elapsed().as_secs_f64() })
    }

    /// [`Engine::decode_until`] without stop tokens: all `steps` steps run.
    ///
    /// # Errors
    /// Those of [`Engine::step`].
    fn decode(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
    ) -> Result<Decoded, EngineError> {
        self.decode_until(token, position, steps, &[])
    }

    /// [`Engine::decode`], with the time at which each token was there: on a GPU by an event after
    /// each step, on a CPU by the clock. The events may make the steps slower, so that a speed is
    /// measured by [`Engine::decode`].
    ///
    /// # Errors
    /// Those of [`Engine::step`].
    fn decode_timed(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
    ) -> Result<Timed, EngineError> {
        let (mut tokens, mut at_ns) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
        let begin = Instant::now();
        for step in 0..steps {
            let from = tokens.last().copied().unwrap_or(token);
            tokens.push(self.step(from, position + step)?);
            at_ns.push(begin.elapsed().as_nanos() as u64);
        }
        Ok(Timed { tokens, at_ns })
    }

    /// [`Engine::step`], with every block's spans recorded.
    ///
    /// # Errors
    /// Those of [`Engine::step`].
    fn step_recorded(&mut self, token: u32, position: usize) -> Result<(u32, Dump), EngineError>;

    /// [`Engine::decode`] with every step recording; returns the dump of step `chosen` (from 0).
    ///
    /// # Errors
    /// Those of [`Engine::decode`]; a `chosen` beyond these steps is a gap.
    fn decode_recorded(
        &mut self,
        token: u32,
        position: usize,
        steps: usize,
        chosen: usize,
    ) -> Result<(Decoded, Dump), EngineError> {
        let begin = Instant::now();
        let mut tokens = Vec::with_capacity(steps);
        let mut kept = None;
        for step in 0..steps {
            let from = tokens.last().copied().unwrap_or(token);
            let (next, dump) = self.step_recorded(from, position + step)?;
            tokens.push(next);
            if step == chosen {
                kept = Some(dump);
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let gap = EngineError::Gap { position: position + chosen, cached: self.cached() };
        Ok((Decoded { tokens, seconds }, kept.ok_or(gap)?))
    }

    /// The last step's logits, one per vocabulary row.
    fn logits(&self, out: &mut Vec<f32>);

    /// A layer phase's whole output in the last step; `None` if there is none.
    fn intermediate(&self, layer: usize, phase: Phase) -> Option<Vec<f32>>;
}

/// Reports how many of a prompt's tokens are finished.
///
/// # Errors
/// [`EngineError::Interrupted`] if the caller ends the prompt before its last token.
pub(crate) fn report(
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    done: usize,
    all: usize,
) -> Result<(), EngineError> {
    match progress(done) {
        ControlFlow::Break(()) if done < all => Err(EngineError::Interrupted { done, all }),
        _ => Ok(()),
    }
}

/// Why an engine could not be loaded, or why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The embedding has no row for the token.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The position is beyond the KV cache.
    #[error("position {position} is outside the context of {context}: load with a larger context")]
    Context {
        /// The position.
        position: usize,
        /// Size of the context.
        context: usize,
    },
    /// Positions before this one were never run.
    #[error("position {position} was requested, but only {cached} positions are cached")]
    Gap {
        /// The position.
        position: usize,
        /// Positions that are cached.
        cached: usize,
    },
    /// The model does not have a context of this size.
    #[error("a context of {context} positions was requested; this model supports 1 to {max}")]
    ContextSize {
        /// The requested context.
        context: usize,
        /// The model's maximum.
        max: usize,
    },
    /// The number of threads is out of range.
    #[error("{threads} threads were requested; 1 to {max} are supported")]
    ThreadCount {
        /// The requested number.
        threads: usize,
        /// The largest number.
        max: usize,
    },
    /// The system did not grant the threads.
    #[error("{wanted} threads could not be started: {source}")]
    Threads {
        /// The requested number.
        wanted: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// Some logit is NaN, or none is above minus infinity: the weights are damaged.
    #[error("the logits are not numbers: check the model's weights for NaN and infinities")]
    NotANumber,
    /// A wait ended before its value arrived.
    #[error(
        "block {block} waited for {} from block {waits_on} and {} ({fault})",
        place(*layer, *phase), outcome(fault, timeout)
    )]
    Fault {
        /// The block that waited.
        block: usize,
        /// The block that owns the value.
        waits_on: usize,
        /// The value's layer.
        layer: Option<usize>,
        /// The value's phase.
        phase: Phase,
        /// How long a wait may last.
        timeout: Duration,
        /// The expected and the observed epoch.
        fault: Fault,
    },
    /// A wait inside the kernel timed out.
    #[error(
        "block {} (warp {}) waited for {} and gave up after {:?}",
        .0.cause.block, .0.cause.warp, .0.cause.what(), Duration::from_nanos(.0.timeout_ns)
    )]
    KernelFault(Box<FaultDump>),
    /// The driver is there, and no GPU that it can use.
    #[error("the GPU's driver: {0}")]
    Gpu(#[source] DriverError),
    /// There is no kernel for the GPU or the model.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The GPU's driver refused a call.
    #[error("the GPU's driver: {0}")]
    Driver(#[from] DriverError),
    /// The kernel cannot run this pack.
    #[error("{0}")]
    UnfitPack(String),
    /// This number of blocks cannot be resident together.
    #[error("{blocks} blocks: 1 to {max} can be resident on {gpu}")]
    BlockCount {
        /// The requested number.
        blocks: usize,
        /// The largest number.
        max: usize,
        /// The GPU's name.
        gpu: String,
    },
    /// The kernel's fault record contradicts itself: a bug in the kernel or in this crate.
    #[error("the kernel left a fault record that this version does not know: {0}")]
    UnknownFault(String),
    /// This variant cannot record a step.
    #[error("variant {0} records no X-ray: load a variant that `kernels list` shows with X-ray")]
    NoXray(String),
    /// The recording of a step contradicts itself: a bug in the kernel or in this crate.
    #[error("the X-ray's buffers: {0}")]
    Xray(String),
    /// A block panicked: a bug in the engine.
    #[error("block {block} panicked: {message}")]
    Panic {
        /// The block.
        block: usize,
        /// The panic's message.
        message: String,
    },
    /// The caller ended a prompt.
    #[error("interrupted after {done} of the prompt's {all} tokens")]
    Interrupted {
        /// Finished tokens.
        done: usize,
        /// Tokens of the prompt.
        all: usize,
    },
    /// An earlier step failed.
    #[error("the engine stopped after an earlier failure: load it again")]
    Stopped,
}

impl EngineError {
    /// Returns whether this machine lacks a GPU, a driver, or a way to get a kernel.
    pub fn is_no_engine(&self) -> bool {
        match self {
            EngineError::Gpu(_) => true,
            EngineError::Kernel(error) => error.is_no_engine(),
            _ => false,
        }
    }
}

fn place(layer: Option<usize>, phase: Phase) -> String {
    match layer {
        Some(layer) => format!("{} of layer {layer}", phase.name()),
        None => phase.name().into(),
    }
}

fn outcome(fault: &Fault, timeout: &Duration) -> String {
    match fault.cause {
        FaultCause::TimedOut { .. } => format!("timed out after {timeout:?}"),
        FaultCause::Lapped { .. } => "was lapped".into(),
        FaultCause::Aborted => "was aborted".into(),
    }
}
