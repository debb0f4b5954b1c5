//! The measurement: two engines over the same tokens.

use super::checks::prefix;
use super::distributions::{Logits, compare};
use super::state::State;
use super::windows::{Window, fits, is_chosen, windows};
use super::{COUNT_MAX, ControlFile, Measured, NEW_MAX, Numbers, OwnControl, PromptTokens};
use super::{PromptsId, QualityOptions, QualityRecord, TextIds, Tokens, WindowScore};
use crate::files::write_whole;
use crate::identity::{sha256_hex, tensors_sha256};
use crate::prompts::PromptIds;
use crate::subject::Ours;
use crate::{HarnessError, Progress};
use monolith_engine::Engine;
use monolith_pack::Pack;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The two engines. The host runs both step by step.
pub struct Pair<'a> {
    /// The model in bf16.
    pub reference: &'a mut dyn Engine,
    /// The engine that is compared with it.
    pub candidate: &'a mut dyn Engine,
}

/// A measurement job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What the record names.
    pub measured: Measured,
    /// The text's ids.
    pub text: Vec<u32>,
    /// The prompts' ids.
    pub prompts: Vec<Vec<u32>>,
    /// Transformers' continuations of the prompts in bf16 and in f32.
    pub control: Option<ControlFile>,
}

impl Job {
    /// Returns the measurement of two packs, the reference's first. The subjects are the engines
    /// that run them.
    ///
    /// # Errors
    /// Packs of models with different configurations.
    pub fn new(
        packs: [&Pack; 2],
        subjects: [Ours; 2],
        text: TextIds,
        prompts: PromptIds,
        options: QualityOptions,
    ) -> Result<Job, HarnessError> {
        if packs[0].config() != packs[1].config() {
            return Err(refused("reference and candidate are not the same model"));
        }
        let [reference, candidate] = subjects;
        let measured = Measured {
            model: packs[1].header().source.model.clone(),
            reference,
            reference_formats: packs[0].header().formats.name().into(),
            candidate,
            candidate_formats: packs[1].header().formats.name().into(),
            text: text.id,
            prompts: PromptsId {
                set_sha256: prompts.prompt_set_sha256.clone(),
                rule: prompts.rule.clone(),
                ids_sha256: prompts.ids_sha256(),
            },
            options,
            tensors_sha256: Some(tensors_sha256(packs[0])),
            control_sha256: None,
        };
        Ok(Job { measured, text: text.ids, prompts: prompts.ids, control: None })
    }

    /// Returns the same job with a control of the same weights and prompts.
    #[must_use]
    pub fn with_control(mut self, control: ControlFile) -> Job {
        self.measured.control_sha256 = Some(control.control.sha256.clone());
        self.control = Some(control);
        self
    }

    fn windows(&self) -> Vec<Window> {
        let QualityOptions { context, stride, .. } = self.measured.options;
        windows(self.text.len(), context, stride)
    }

    /// Checks that these engines can make the measurement.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn check(&self, pair: &Pair) -> Result<(), HarnessError> {
        let options = &self.measured.options;
        let QualityOptions { context, stride, new, kl_positions } = *options;
        if kl_positions > COUNT_MAX || new > NEW_MAX {
            let what = format!("at most {COUNT_MAX} KL positions and {NEW_MAX} new tokens fit");
            return Err(refused(&what));
        }
        if !fits(context, stride) {
            let what = format!("a stride of {stride} with a context of {context}: 1 up to less");
            return Err(refused(&format!("{what} than the context is wanted")));
        }
        if self.text.len() < 2 {
            return Err(refused("the text has fewer than two tokens"));
        }
        if self.prompts.is_empty() || self.prompts.iter().any(Vec::is_empty) || new == 0 {
            return Err(refused("a prompt is missing, or nothing is to follow it"));
        }
        let needed = positions(options, self.text.len(), &self.prompts);
        for engine in [&*pair.reference, &*pair.candidate] {
            let room = engine.info().context;
            if room < needed {
                return Err(refused(&format!("{needed} positions are needed, {room} were loaded")));
            }
        }
        if pair.reference.config().vocab != pair.candidate.config().vocab {
            return Err(refused("reference and candidate are not the same model"));
        }
        Ok(())
    }
}

/// The number of positions that the engines must have room for.
pub fn positions(options: &QualityOptions, tokens: usize, prompts: &[Vec<u32>]) -> usize {
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    // The last token is compared but not fed.
    let after = longest.saturating_add(options.new);
    options.context.min(tokens).max(after).saturating_sub(1).max(1)
}

fn refused(what: &str) -> HarnessError {
    HarnessError::Quality { what: what.into() }
}

/// A finished measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The results.
    pub record: QualityRecord,
    /// The tokens from which the record's agreements are counted.
    pub tokens: Tokens,
    /// Transformers' continuations of the prompts, if there is a control.
    pub control: Option<ControlFile>,
}

impl Outcome {
    fn new(job: &Job, state: State) -> Outcome {
        let State { measured, windows, kl, prompts } = state;
        let new = measured.options.new;
        let tokens = Tokens::new(measured.prompts.ids_sha256.clone(), prompts);
        let numbers = Numbers::of(windows, tokens.scores(), &kl, new);
        let sha256 = sha256_hex(tokens.to_json().as_bytes());
        let mut record = QualityRecord::new(measured, sha256, numbers);
        if let Some(file) = &job.control
            && let Some(own) = tokens.own_scores(&file.f32)
        {
            record = record.with_controls(OwnControl::of(own, new), file.control.clone());
        }
        Outcome { record, tokens, control: job.control.clone() }
    }

    /// Writes the files that the record names into a run's folder, then the record; returns the
    /// record's path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, HarnessError> {
        let tokens = self.tokens.to_json();
        keep(folder, "tokens", tokens.as_bytes())?;
        if let Some(file) = &self.control {
            keep(folder, "control", &file.bytes)?;
        }
        self.record.write(folder)
    }
}

/// Writes a file under a name made of its hash.
fn keep(folder: &Path, kind: &str, bytes: &[u8]) -> Result<(), HarnessError> {
    let name = super::kept::name_of(kind, &sha256_hex(bytes)).expect("a hash has 8 digits");
    let text = std::str::from_utf8(bytes).expect("JSON is UTF-8");
    write_whole(&folder.join(name), text)
}

/// Measures everything. After each window and each prompt it saves the results so far in `folder`,
/// and a later call with the same job continues from there. It calls `progress` after every step.
///
/// # Errors
/// An impossible job, a step that fails, impossible logits, or a file that cannot be written. A
/// threshold that does not hold is no error: see [`QualityRecord::quality_passed`].
pub fn run(
    pair: &mut Pair,
    job: &Job,
    folder: &Path,
    progress: &mut Progress,
) -> Result<Outcome, HarnessError> {
    job.check(pair)?;
    let mut state = State::open(folder, &job.measured, progress)?;
    score_windows(pair, job, folder, &mut state, progress)?;
    continue_prompts(pair, job, folder, &mut state, progress)?;
    let outcome = Outcome::new(job, state.clone());
    if !outcome.record.numbers.perplexity.is_a_number() {
        return Err(refused("a perplexity is no finite number from 1 up"));
    }
    outcome.write(folder)?;
    state.remove(folder)?;
    Ok(outcome)
}

/// Scores the windows that the state lacks.
fn score_windows(
    pair: &mut Pair,
    job: &Job,
    folder: &Path,
    state: &mut State,
    progress: &mut Progress,
) -> Result<(), HarnessError> {
    let windows = job.windows();
    let (all, done) = (windows.len(), state.windows.len());
    let mut pace = Pace::new(all.saturating_sub(done));
    let mut scorer = Scorer { job, total: job.text.len() - 1, logits: [Vec::new(), Vec::new()] };
    for (index, window) in windows.iter().enumerate().skip(done) {
        let (number, steps) = (index + 1, window.tokens.len() - 1);
        let mut tick = |step: usize| {
            progress(&format!("window {number} of {all}, step {step} of {steps}"));
        };
        let score = scorer.window(pair, window, &mut state.kl, &mut tick)?;
        state.windows.push(score);
        state.save(folder)?;
        let own = super::Perplexity::of(&state.windows);
        progress(&format!(
            "window {number} of {all}: perplexity {:.4}, candidate {:.4}{}",
            own.reference,
            own.candidate,
            pace.left()
        ));
    }
    Ok(())
}

/// Continues the prompts that the state lacks.
fn continue_prompts(
    pair: &mut Pair,
    job: &Job,
    folder: &Path,
    state: &mut State,
    progress: &mut Progress,
) -> Result<(), HarnessError> {
    let all = job.prompts.len();
    let mut pace = Pace::new(all.saturating_sub(state.prompts.len()));
    for (index, prompt) in job.prompts.iter().enumerate().skip(state.prompts.len()) {
        let number = index + 1;
        let mut step = 0;
        let mut tick = || {
            step += 1;
            progress(&format!("prompt {number} of {all}, step {step}"));
        };
        let f32 = job.control.as_ref().and_then(|file| file.f32.get(index));
        let f32 = f32.map(Vec::as_slice);
        let tokens = continued(pair, prompt, job.measured.options.new, f32, &mut tick)?;
        state.prompts.push(tokens);
        state.save(folder)?;
        progress(&format!("prompt {number} of {all}{}", pace.left()));
    }
    Ok(())
}

/// Estimates the time that is left.
struct Pace {
    begin: Instant,
    done: usize,
    all: usize,
}

impl Pace {
    fn new(all: usize) -> Pace {
        Pace { begin: Instant::now(), done: 0, all }
    }

    /// Counts one more as done, and returns the time left in words.
    fn left(&mut self) -> String {
        self.done += 1;
        let left = self.all.saturating_sub(self.done);
        let seconds = self.begin.elapsed().as_secs_f64() / self.done as f64 * left as f64;
        match seconds as u64 {
            _ if left == 0 => String::new(),
            seconds @ ..90 => format!("; {seconds} s left"),
            seconds => format!("; {} min left", seconds.div_ceil(60)),
        }
    }
}

/// Scores windows.
struct Scorer<'a> {
    job: &'a Job,
    /// Scored tokens of the whole text.
    total: usize,
    logits: [Vec<f32>; 2],
}

impl Scorer<'_> {
    /// Scores one window from an empty cache; adds the compared positions' divergences.
    fn window(
        &mut self,
        pair: &mut Pair,
        window: &Window,
        kl: &mut Vec<f64>,
        tick: &mut dyn FnMut(usize),
    ) -> Result<WindowScore, HarnessError> {
        let (text, wanted) = (&self.job.text, self.job.measured.options.kl_positions);
        let begin = window.tokens.start;
        feed(pair, &text[window.unscored()], tick)?;
        let mut found_here = Vec::new();
        let mut score = WindowScore {
            scored: window.scored.len(),
            nll_reference: 0.0,
            nll_candidate: 0.0,
            compared: 0,
            kl: 0.0,
            kl_max: 0.0,
            same_top_1: 0,
        };
        for target in window.scored.clone() {
            let (token, position) = (text[target - 1], target - 1 - begin);
            let reference = step(pair.reference, token, position, &mut self.logits[0])?;
            let candidate = step(pair.candidate, token, position, &mut self.logits[1])?;
            let [of_reference, of_candidate] = &self.logits;
            let found = compare(
                Logits { values: of_reference, greedy: reference },
                Logits { values: of_candidate, greedy: candidate },
                text[target],
            );
            let found = found.ok_or_else(|| {
                refused(&format!(
                    "the logits after token {} of the text are not finite, or a greedy token is \
                     not their argmax",
                    target - 1
                ))
            })?;
            score.nll_reference += found.nll_reference;
            score.nll_candidate += found.nll_candidate;
            // The text's first token is not scored: the index of `target` is one less.
            if is_chosen(target - 1, self.total, wanted) {
                score.compared += 1;
                score.kl += found.kl;
                score.kl_max = score.kl_max.max(found.kl);
                score.same_top_1 += usize::from(reference == candidate);
                found_here.push(found.kl);
            }
            tick(position + 1);
        }
        kl.append(&mut found_here);
        Ok(score)
    }
}

/// Runs one step and returns its logits.
fn step(
    engine: &mut dyn Engine,
    token: u32,
    position: usize,
    logits: &mut Vec<f32>,
) -> Result<u32, HarnessError> {
    let greedy = engine.step(token, position)?;
    engine.logits(logits);
    Ok(greedy)
}

/// Feeds both engines the tokens at positions 0 and up, and ignores the logits. `tick` gets half
/// the number of steps of both engines together.
fn feed(pair: &mut Pair, tokens: &[u32], tick: &mut dyn FnMut(usize)) -> Result<(), HarnessError> {
    if tokens.is_empty() {
        return Ok(());
    }
    prefill(pair.reference, tokens, &mut |done| tick(done / 2))?;
    prefill(pair.candidate, tokens, &mut |done| tick((tokens.len() + done) / 2))?;
    Ok(())
}

/// Runs a prompt from position 0 on and returns the greedy next token. `tick` gets the number of
/// finished tokens.
fn prefill(
    engine: &mut dyn Engine,
    tokens: &[u32],
    tick: &mut dyn FnMut(usize),
) -> Result<u32, HarnessError> {
    let next = engine.prefill_with(tokens, &mut |done| {
        tick(done);
        ControlFlow::Continue(())
    });
    Ok(next?)
}

/// The greedy tokens after one prompt: each engine by itself, the candidate fed the reference's
/// tokens, and the reference fed those of f32.
fn continued(
    pair: &mut Pair,
    prompt: &[u32],
    new: usize,
    f32: Option<&[u32]>,
    tick: &mut dyn FnMut(),
) -> Result<PromptTokens, HarnessError> {
    let (engine, at) = (&mut *pair.reference, prompt.len());
    let first = prefill(engine, prompt, &mut |_| tick())?;
    let reference = greedy(engine, vec![first], at, new, tick)?;
    let reference_fed = match f32 {
        None => None,
        Some(f32) => {
            // Up to the first difference, the engine by itself was fed the same tokens.
            let same = prefix(&reference, f32);
            let begun = reference.iter().copied().take(same + 1).collect();
            Some(fed(engine, begun, at, f32, tick)?)
        }
    };
    let engine = &mut *pair.candidate;
    let first = prefill(engine, prompt, &mut |_| tick())?;
    let candidate_fed = fed(engine, vec![first], at, &reference, tick)?;
    let same = prefix(&reference, &candidate_fed);
    // Up to here the candidate by itself gives the same tokens; from here on its text differs.
    let begun = candidate_fed.iter().copied().take(same + 1).collect();
    let candidate = greedy(engine, begun, at, new, tick)?;
    Ok(PromptTokens { reference, candidate, candidate_fed, reference_fed })
}

/// Greedy tokens up to `new`, where some are known; the first is the one for position `at`.
fn greedy(
    engine: &mut dyn Engine,
    mut tokens: Vec<u32>,
    at: usize,
    new: usize,
    tick: &mut dyn FnMut(),
) -> Result<Vec<u32>, HarnessError> {
    while tokens.len() < new
        && let Some(&last) = tokens.last()
    {
        let position = at + tokens.len() - 1;
        let wanted = engine.info().steps_ahead.clamp(1, new - tokens.len());
        let more = engine.decode(last, position, wanted)?.tokens;
        if more.len() != wanted {
            return Err(refused(&format!("{} of {wanted} greedy tokens came", more.len())));
        }
        tokens.extend(more);
        tick();
    }
    Ok(tokens)
}

/// The tokens after each of `text`'s, up to as many, where some are known.
fn fed(
    engine: &mut dyn Engine,
    mut tokens: Vec<u32>,
    at: usize,
    text: &[u32],
    tick: &mut dyn FnMut(),
) -> Result<Vec<u32>, HarnessError> {
    while tokens.len() < text.len() {
        let index = tokens.len() - 1;
        tokens.push(engine.step(text[index], at + index)?);
        tick();
    }
    Ok(tokens)
}
