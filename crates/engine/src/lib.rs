//! The engines that turn a token into the next: one step, one token.

mod bytes;
pub mod cpu;
pub mod cuda;
mod plan;
mod rope;

pub use cpu::{CpuEngine, CpuOptions};
pub use cuda::{CudaEngine, CudaOptions};

use monolith_abi::{Phase, dump::Dump, fault::FaultDump};
use monolith_handoff::{Fault, FaultCause};
use monolith_model::Config;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// What an engine is and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// `cpu` or `cuda`.
    pub engine: &'static str,
    /// Row of the variant table.
    pub variant: String,
    /// The processor, in its own words.
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
    /// Greedy steps that are worth asking for at once ([`Engine::decode`]): an engine that works
    /// behind the host's back is faster when it need not wait to be asked.
    pub steps_ahead: usize,
}

/// What [`Engine::decode`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The greedy tokens, one for each step that ran. After a stop token no step runs, so that
    /// such a token is the last.
    pub tokens: Vec<u32>,
    /// Time of all steps together: on a GPU between two events, on a CPU by the clock.
    pub seconds: f64,
}

/// Something that decodes one token a step, batch 1.
pub trait Engine {
    /// What the engine is and where it runs.
    fn info(&self) -> &EngineInfo;

    /// The model's configuration.
    fn config(&self) -> &Config;

    /// Positions whose keys and values are cached.
    fn cached(&self) -> usize;

    /// Runs `token` at `position` and gives the greedy next token: the lowest index of the
    /// largest logit. A position below [`Engine::cached`] continues from there.
    ///
    /// # Errors
    /// A token outside the vocabulary, a position outside the context or beyond what is cached,
    /// logits that are not numbers, or a step that failed.
    fn step(&mut self, token: u32, position: usize) -> Result<u32, EngineError>;

    /// Runs a prompt from position 0 on and gives the greedy next token. Only the prompt's last
    /// token needs the LM head. `progress` is told the number of tokens that are done, after each
    /// of them or after a few; where it breaks off, the prompt ends there.
    ///
    /// # Errors
    /// Those of [`Engine::step`]; a prompt without tokens is a gap;
    /// [`EngineError::Interrupted`] where `progress` broke off.
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

    /// [`Engine::prefill_with`] for a prompt that is short: nobody is told how far it is, and
    /// nobody can end it.
    ///
    /// # Errors
    /// Those of [`Engine::prefill_with`].
    fn prefill(&mut self, tokens: &[u32]) -> Result<u32, EngineError> {
        self.prefill_with(tokens, &mut |_| ControlFlow::Continue(()))
    }

    /// Decodes greedily: up to `steps` steps from `token` at `position` on, each fed its
    /// predecessor's token, timed around all of them. A token of `stop` ends the text: no step
    /// runs after the one that gave it.
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

    /// [`Engine::step`], with every block's spans recorded.
    ///
    /// # Errors
    /// Those of [`Engine::step`].
    fn step_recorded(&mut self, token: u32, position: usize) -> Result<(u32, Dump), EngineError>;

    /// [`Engine::decode`], every step recording; gives the dump of the step `chosen` (from 0).
    ///
    /// # Errors
    /// Those of [`Engine::decode`]; a step that is none of these is a gap.
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

    /// The last step's logits, one a vocabulary row.
    fn logits(&self, out: &mut Vec<f32>);

    /// A layer phase's whole output in the last step; `None` where there is none.
    fn intermediate(&self, layer: usize, phase: Phase) -> Option<Vec<f32>>;
}

/// Tells how many of a prompt's tokens are done.
///
/// # Errors
/// [`EngineError::Interrupted`] where the prompt is to end here; after its last token it has ended.
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

/// Why an engine could not be loaded or a step not be run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The token is no row of the embedding.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The position has no room in the KV cache.
    #[error("position {position} is outside the context of {context}: load with a larger context")]
    Context {
        /// The position.
        position: usize,
        /// Size of the context.
        context: usize,
    },
    /// Positions before this one were never run.
    #[error("position {position} was asked for, but only {cached} positions are cached")]
    Gap {
        /// The position.
        position: usize,
        /// Positions that are cached.
        cached: usize,
    },
    /// The context cannot be had with this model.
    #[error("a context of {context} positions: 1 to {max} can be had with this model")]
    ContextSize {
        /// The context that was asked for.
        context: usize,
        /// The model's maximum.
        max: usize,
    },
    /// The number of threads cannot be had.
    #[error("{threads} threads: 1 to {max} can be had")]
    ThreadCount {
        /// The number that was asked for.
        threads: usize,
        /// The largest number.
        max: usize,
    },
    /// The system did not grant the threads.
    #[error("{wanted} threads could not be started: {source}")]
    Threads {
        /// The number that was asked for.
        wanted: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// Some logit is NaN, or none is above minus infinity: the weights are damaged.
    #[error("the logits are not numbers: check the model's weights for NaN and infinities")]
    NotANumber,
    /// A wait ended without its value.
    #[error(
        "block {block} waited for {} from block {waits_on} and {} ({fault})",
        place(*layer, *phase), outcome(fault, patience)
    )]
    Fault {
        /// Who waited.
        block: usize,
        /// Whose value it was.
        waits_on: usize,
        /// Of which layer.
        layer: Option<usize>,
        /// Of which phase.
        phase: Phase,
        /// How long a wait may last.
        patience: Duration,
        /// What was expected and seen.
        fault: Fault,
    },
    /// A wait inside the kernel ended without what it waited for.
    #[error(
        "block {} (warp {}) waited for {} and gave up after {:?}",
        .0.cause.block, .0.cause.warp, .0.cause.what(), Duration::from_nanos(.0.timeout_ns)
    )]
    KernelFault(Box<FaultDump>),
    /// The GPU, its driver or the kernel cannot be used: why, and what helps.
    #[error("{0}")]
    Gpu(String),
    /// A step cannot be recorded by this variant.
    #[error("variant {0} records no X-ray: load the one that `kernels list` shows with one")]
    NoXray(String),
    /// What a recorded step left behind makes no sense: a bug in the kernel or here.
    #[error("the X-ray's buffers: {0}")]
    Xray(String),
    /// A block panicked: a bug in the engine.
    #[error("block {block} panicked: {message}")]
    Panic {
        /// Which.
        block: usize,
        /// Its last words.
        message: String,
    },
    /// The caller ended a prompt.
    #[error("interrupted after {done} of the prompt's {all} tokens")]
    Interrupted {
        /// Tokens that are done.
        done: usize,
        /// Tokens of the prompt.
        all: usize,
    },
    /// An earlier step failed.
    #[error("the engine stopped after an earlier failure: load it again")]
    Stopped,
}

fn place(layer: Option<usize>, phase: Phase) -> String {
    match layer {
        Some(layer) => format!("{} of layer {layer}", phase.name()),
        None => phase.name().into(),
    }
}

fn outcome(fault: &Fault, patience: &Duration) -> String {
    match fault.cause {
        FaultCause::TimedOut { .. } => format!("gave up after {patience:?}"),
        FaultCause::Lapped { .. } => "was lapped".into(),
        FaultCause::Aborted => "was told to stop".into(),
    }
}
