//! The measurement: two engines over the same tokens.

use super::checks::{prefix, same};
use super::distributions::{Logits, compare};
use super::state::State;
use super::windows::{Window, fits, is_chosen, windows};
use super::{Control, Measured, Numbers, PromptScore, PromptsId, QualityOptions};
use super::{QualityRecord, TextIds, WindowScore};
use crate::identity::Subject;
use crate::prompts::PromptIds;
use crate::{HarnessError, Progress, fill};
use monolith_engine::Engine;
use monolith_pack::Pack;
use std::path::Path;
use std::time::{Duration, Instant};

/// The engines; both are stepped by hand, so that it does not matter where they run.
pub struct Pair<'a> {
    /// The model in bf16.
    pub reference: &'a mut dyn Engine,
    /// What is compared with it.
    pub candidate: &'a mut dyn Engine,
}

/// What is to be measured, and on what.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What the record will say that it is of.
    pub measured: Measured,
    /// The text's ids.
    pub text: Vec<u32>,
    /// The prompts' ids.
    pub prompts: Vec<Vec<u32>>,
    /// What settles which comparison of greedy tokens is the gated one.
    pub control: Option<Control>,
}

impl Job {
    /// The measurement of two packs; the subjects are of the engines that run them, the
    /// reference's first.
    ///
    /// # Errors
    /// Packs of models with different configurations.
    pub fn new(
        packs: [&Pack; 2],
        subjects: [Subject; 2],
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
            tensors_sha256: None,
        };
        Ok(Job { measured, text: text.ids, prompts: prompts.ids, control: None })
    }

    /// The same job, judged by a control of the same weights and prompts.
    #[must_use]
    pub fn judged_by(mut self, control: Control) -> Job {
        self.measured.tensors_sha256 = Some(control.tensors_sha256.clone());
        self.control = Some(control);
        self
    }

    fn windows(&self) -> Vec<Window> {
        let QualityOptions { context, stride, .. } = self.measured.options;
        windows(self.text.len(), context, stride)
    }

    /// Whether it can be measured by these engines.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self, pair: &Pair) -> Result<(), HarnessError> {
        let options = &self.measured.options;
        let QualityOptions { context, stride, new, .. } = *options;
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

/// Positions that the engines need room for.
pub fn positions(options: &QualityOptions, tokens: usize, prompts: &[Vec<u32>]) -> usize {
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    // A last token is looked at and not fed.
    (options.context.min(tokens).max(longest + options.new)).saturating_sub(1).max(1)
}

fn refused(what: &str) -> HarnessError {
    HarnessError::Quality { what: what.into() }
}

/// Measures everything; what is measured lies beside the record to come, in `folder`, after each
/// window and each prompt, and a later call with the same goes on from there.
///
/// # Errors
/// A job that cannot be done, a step that fails, logits that cannot be, or a file that cannot be
/// written. A threshold that does not hold is no error: see [`QualityRecord::quality_passed`].
pub fn run(
    pair: &mut Pair,
    job: &Job,
    folder: &Path,
    progress: &mut Progress,
) -> Result<QualityRecord, HarnessError> {
    job.check(pair)?;
    let mut state = State::open(folder, &job.measured, progress)?;
    let windows = job.windows();
    let mut pace = Pace::new(windows.len() - state.windows.len());
    let mut scorer = Scorer { job, total: job.text.len() - 1, logits: [Vec::new(), Vec::new()] };
    for (index, window) in windows.iter().enumerate().skip(state.windows.len()) {
        let score = scorer.window(pair, window, &mut state.kl)?;
        state.windows.push(score);
        state.save(folder)?;
        let own = super::Perplexity::of(&state.windows);
        progress(&format!(
            "window {} of {}: perplexity {:.4}, candidate {:.4}{}",
            index + 1,
            windows.len(),
            own.reference,
            own.candidate,
            pace.left()
        ));
    }
    let all = job.prompts.len();
    let mut pace = Pace::new(all - state.prompts.len());
    for (index, prompt) in job.prompts.iter().enumerate().skip(state.prompts.len()) {
        state.prompts.push(agreement(pair, prompt, job.measured.options.new)?);
        state.save(folder)?;
        progress(&format!("prompt {} of {all}{}", index + 1, pace.left()));
    }
    let State { windows, prompts, kl, .. } = state.clone();
    let numbers = Numbers::of(windows, prompts, &kl, job.measured.options.new);
    let record = QualityRecord::new(job.measured.clone(), job.control.clone(), numbers);
    record.write(folder)?;
    state.remove(folder)?;
    Ok(record)
}

/// How long the rest takes, if it goes on like this.
struct Pace {
    begin: Instant,
    done: usize,
    all: usize,
}

impl Pace {
    fn new(all: usize) -> Pace {
        Pace { begin: Instant::now(), done: 0, all }
    }

    /// One more is done.
    fn left(&mut self) -> String {
        self.done += 1;
        let left = self.all.saturating_sub(self.done);
        let each = self.begin.elapsed() / self.done as u32;
        match left as u32 * each {
            _ if left == 0 => String::new(),
            time if time < Duration::from_secs(90) => format!("; {} s left", time.as_secs()),
            time => format!("; {} min left", time.as_secs().div_ceil(60)),
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
    /// One window from an empty cache; adds the compared positions' divergences.
    fn window(
        &mut self,
        pair: &mut Pair,
        window: &Window,
        kl: &mut Vec<f64>,
    ) -> Result<WindowScore, HarnessError> {
        let (text, wanted) = (&self.job.text, self.job.measured.options.kl_positions);
        let begin = window.tokens.start;
        fill(pair.reference, &text[window.unscored()])?;
        fill(pair.candidate, &text[window.unscored()])?;
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
            // The text's first token is not scored.
            if is_chosen(target - 1, self.total, wanted) {
                score.compared += 1;
                score.kl += found.kl;
                score.kl_max = score.kl_max.max(found.kl);
                score.same_top_1 += usize::from(reference == candidate);
                kl.push(found.kl);
            }
        }
        Ok(score)
    }
}

/// One step with its logits.
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

/// Greedy tokens after one prompt.
fn agreement(pair: &mut Pair, prompt: &[u32], new: usize) -> Result<PromptScore, HarnessError> {
    let (reference, candidate) = (&mut *pair.reference, &mut *pair.candidate);
    let first = reference.prefill(prompt)?;
    let said = greedy(reference, first, prompt.len(), new)?;
    let mut forced = vec![candidate.prefill(prompt)?];
    for (index, &token) in said[..new - 1].iter().enumerate() {
        forced.push(candidate.step(token, prompt.len() + index)?);
    }
    let prefix = prefix(&said, &forced);
    let mut score = PromptScore { greedy: prefix, prefix, forced: same(&said, &forced) };
    if prefix < new {
        // Up to here the candidate by itself had said the same; from here it goes its own way.
        let own = greedy(candidate, forced[prefix], prompt.len() + prefix, new - prefix)?;
        score.greedy += same(&own, &said[prefix..]);
    }
    Ok(score)
}

/// `count` greedy tokens, the first of which is `first` at `position`.
fn greedy(
    engine: &mut dyn Engine,
    first: u32,
    position: usize,
    count: usize,
) -> Result<Vec<u32>, HarnessError> {
    let mut tokens = vec![first];
    if count > 1 {
        tokens.extend(engine.decode(first, position, count - 1)?.tokens);
    }
    if tokens.len() == count {
        return Ok(tokens);
    }
    Err(refused(&format!("{} of {count} greedy tokens were given", tokens.len())))
}
