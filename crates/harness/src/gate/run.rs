//! Runs the checks.

use super::checks::{
    Checks, ContextCheck, DecodeCheck, DeterminismCheck, Divergence, LogitsCheck, RowsCheck,
    TokensCheck, VocabularyCheck, WeightsCheck,
};
use super::planted::{planted_next, planted_pack};
use super::{GateRecord, RUNS, Rule};
use crate::identity::tensors_sha256;
use crate::reference::{ErrorStats, Reference};
use crate::subject::Ours;
use crate::{HarnessError, Loader, Progress, fill, prefill};
use monolith_engine::Engine;
use monolith_model::Config;
use monolith_pack::Pack;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The most missed ids that are listed.
const MISSED_SHOWN: usize = 8;
/// Hidden width of the model with planted maxima if the engine runs any shape.
const PLANTED_HIDDEN: usize = 128;

/// Options of a gate.
#[derive(Clone, Debug, Default)]
pub struct GateOptions {
    /// Shape of the model with planted maxima. `None`: for an engine that runs any shape, the same
    /// vocabulary with one layer and 128 columns; for another engine, the pack's own shape with one
    /// layer or, if the engine refuses that, with all.
    pub planted: Option<Config>,
}

/// Runs every check on freshly loaded engines.
///
/// # Errors
/// An engine that cannot be loaded or a step that fails. A failed check is no error: see
/// [`GateRecord::passed`].
pub fn run(
    pack: &Arc<Pack>,
    loader: &Loader,
    reference: &Reference,
    run_id: &str,
    options: &GateOptions,
    progress: &mut Progress,
) -> Result<GateRecord, HarnessError> {
    let context = reference.summary.context;
    progress("hashing the weights");
    let weights = WeightsCheck { tensors_sha256: tensors_sha256(pack) };
    let mut engine = loader(pack.clone(), context).map_err(HarnessError::Load)?;
    let subject = Ours::of(engine.info(), pack, run_id)?;
    let any_shape = engine.info().any_shape;
    let mut runs = Vec::new();
    let mut first = FirstPass::new(reference);
    let mut forced = Forced { reference, what: "teacher-forced".into(), progress: &mut *progress };
    runs.push(forced.run(&mut *engine, &mut |place, token, logits| {
        first.see(place, token, logits);
    })?);
    let decode = decode_check(&mut *engine, reference, &first.tokens, progress)?;
    let context = context_check(&mut *engine, reference, progress)?;
    for run in 2..RUNS {
        let what = format!("run {run} of {RUNS}");
        let mut forced = Forced { reference, what, progress: &mut *progress };
        runs.push(forced.run(&mut *engine, &mut |_, _, _| ())?);
    }
    drop(engine);
    let what = format!("run {RUNS} of {RUNS}, freshly loaded");
    progress(&what);
    let mut engine = loader(pack.clone(), reference.summary.context).map_err(HarnessError::Load)?;
    let mut forced = Forced { reference, what, progress: &mut *progress };
    runs.push(forced.run(&mut *engine, &mut |_, _, _| ())?);
    drop(engine);
    progress("planted maxima: every id");
    let vocabulary = vocabulary_check(pack, any_shape, loader, options)?;
    let (tokens, logits, rows) = first.checks(Rule::of(&reference.own_divergences()));
    let determinism = DeterminismCheck { runs };
    let checks = Checks { weights, tokens, logits, rows, vocabulary, determinism, decode, context };
    Ok(GateRecord::new(subject, reference, checks))
}

/// Prompt and step.
type Place = (usize, usize);

/// A pass over the reference's texts.
struct Forced<'a, 'p> {
    reference: &'a Reference,
    /// What is being done, in words.
    what: String,
    progress: &'a mut Progress<'p>,
}

impl Forced<'_, '_> {
    /// Feeds each prompt and the reference's tokens after it; passes on the output at each compared
    /// position; returns a hash of all outputs.
    fn run(
        &mut self,
        engine: &mut dyn Engine,
        observe: &mut dyn FnMut(Place, u32, &[f32]),
    ) -> Result<String, HarnessError> {
        let summary = &self.reference.summary;
        let mut fingerprint = Fingerprint::default();
        let mut logits = Vec::new();
        for (index, (prompt, answer)) in summary.prompts.iter().zip(&summary.tokens).enumerate() {
            let (&last, before) = prompt.split_last().expect("prompts are not empty");
            let what = format!("{}: {}", self.what, nth(index, summary.prompts.len()));
            (self.progress)(&what);
            fill(engine, before, &what, self.progress)?;
            let fed = std::iter::once(&last).chain(answer).take(summary.new);
            for (step, &token) in fed.enumerate() {
                let next = engine.step(token, before.len() + step)?;
                engine.logits(&mut logits);
                fingerprint.add(next, &logits);
                observe((index, step), next, &logits);
            }
        }
        Ok(fingerprint.hex())
    }
}

/// A prompt in words.
fn nth(index: usize, all: usize) -> String {
    format!("prompt {} of {all}", index + 1)
}

/// A fast hash of tokens and logits: eight lanes, each a bijection of its state for any value, then
/// sha256 of the lanes.
#[derive(Default)]
struct Fingerprint {
    hasher: Sha256,
}

impl Fingerprint {
    fn add(&mut self, token: u32, logits: &[f32]) {
        const LANES: usize = 8;
        let mut lanes = [0xcbf2_9ce4_8422_2325_u64; LANES];
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane = (*lane ^ u64::from(value.to_bits())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *lane ^= *lane >> 32;
            }
        }
        self.hasher.update(token.to_le_bytes());
        for lane in lanes {
            self.hasher.update(lane.to_le_bytes());
        }
        for value in rest {
            self.hasher.update(value.to_bits().to_le_bytes());
        }
    }

    fn hex(self) -> String {
        monolith_files::hex(&self.hasher.finalize())
    }
}

/// The comparisons of the first pass.
struct FirstPass<'a> {
    reference: &'a Reference,
    /// The engine's tokens.
    tokens: Vec<Vec<u32>>,
    divergences: Vec<Divergence>,
    engine_errors: Vec<f32>,
    bf16_errors: Vec<f32>,
    rows: usize,
    previous: Vec<f32>,
    changed: Vec<bool>,
    argmax_mismatches: usize,
    not_finite: usize,
}

impl FirstPass<'_> {
    fn new(reference: &Reference) -> FirstPass<'_> {
        FirstPass {
            reference,
            tokens: vec![Vec::new(); reference.summary.prompts.len()],
            divergences: Vec::new(),
            engine_errors: Vec::new(),
            bf16_errors: Vec::new(),
            rows: 0,
            previous: Vec::new(),
            changed: vec![false; reference.summary.vocab],
            argmax_mismatches: 0,
            not_finite: 0,
        }
    }

    fn see(&mut self, (prompt, step): Place, token: u32, logits: &[f32]) {
        self.tokens[prompt].push(token);
        let expected = self.reference.summary.tokens[prompt][step];
        if token != expected {
            let margin = f64::from(self.reference.margin[prompt][step]);
            let f32 = self.reference.f32_argmax[prompt * self.reference.summary.new + step];
            self.divergences.push(Divergence { prompt, step, expected, found: token, f32, margin });
        }
        self.argmax_mismatches += usize::from(lowest_argmax(logits) != token);
        self.not_finite += logits.iter().filter(|logit| !logit.is_finite()).count();
        for ((changed, before), now) in self.changed.iter_mut().zip(&self.previous).zip(logits) {
            *changed |= before.to_bits() != now.to_bits();
        }
        self.previous.clear();
        self.previous.extend_from_slice(logits);
        if let Some(row) = self.reference.row_of(prompt, step) {
            self.rows += 1;
            let vocab = self.reference.summary.vocab;
            let exact = self.reference.row_f32(row);
            let bf16 = &self.reference.rows_bf16[row * vocab..(row + 1) * vocab];
            add_errors(&mut self.engine_errors, logits, exact);
            add_errors(&mut self.bf16_errors, bf16, exact);
        }
    }

    fn checks(self, rule: Rule) -> (TokensCheck, LogitsCheck, RowsCheck) {
        let summary = &self.reference.summary;
        let (prompts, new) = (summary.prompts.len(), summary.new);
        let positions = prompts * new;
        let matches = positions - self.divergences.len();
        let excused = |d: &&Divergence| rule.excuses(d, summary.tolerance);
        let tokens = TokensCheck {
            rule,
            prompts,
            new,
            positions,
            matches,
            match_rate: matches as f64 / positions as f64,
            near_ties: summary.near_ties,
            exempt: self.divergences.iter().filter(excused).count(),
            as_f32: self.divergences.iter().filter(|d| d.found == d.f32).count(),
            divergences: self.divergences,
        };
        let logits = LogitsCheck {
            rows: self.rows,
            engine: ErrorStats::of(self.engine_errors),
            bf16: ErrorStats::of(self.bf16_errors),
        };
        let rows = RowsCheck {
            positions,
            vocab: summary.vocab,
            argmax_mismatches: self.argmax_mismatches,
            never_changed: self.changed.iter().filter(|&&changed| !changed).count(),
            not_finite: self.not_finite,
        };
        (tokens, logits, rows)
    }
}

/// Returns the lowest index of the largest logit.
fn lowest_argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best as u32
}

/// Returns absolute errors; a missing logit has an infinite error.
fn add_errors(errors: &mut Vec<f32>, logits: &[f32], exact: &[f32]) {
    let padded = logits.iter().copied().chain(std::iter::repeat(f32::INFINITY));
    errors.extend(exact.iter().zip(padded).map(|(exact, logit)| (logit - exact).abs()));
}

/// Decodes each prompt as in the benchmark and compares with single steps: with those of the first
/// pass while the input is the same, then with new ones.
fn decode_check(
    engine: &mut dyn Engine,
    reference: &Reference,
    forced: &[Vec<u32>],
    progress: &mut Progress,
) -> Result<DecodeCheck, HarnessError> {
    let summary = &reference.summary;
    let (mut tokens, mut mismatches) = (0, 0);
    for (index, prompt) in summary.prompts.iter().enumerate() {
        let nth = nth(index, summary.prompts.len());
        let what = format!("decode against single steps: {nth}");
        let first = prefill(engine, prompt, &what, progress)?;
        let decoded = engine.decode(first, prompt.len(), summary.new - 1)?.tokens;
        let said: Vec<u32> = std::iter::once(first).chain(decoded).collect();
        let expected = &summary.tokens[index];
        let agree = forced[index].iter().zip(expected).take_while(|(a, b)| a == b).count();
        // Up to and including the first divergence, the first pass had the same input.
        let known = (agree + 1).min(summary.new);
        for (step, &token) in said.iter().enumerate() {
            let single = if step < known {
                forced[index][step]
            } else {
                engine.step(said[step - 1], prompt.len() + step - 1)?
            };
            mismatches += usize::from(single != token);
            tokens += 1;
        }
        // Missing tokens count as different.
        mismatches += summary.new.saturating_sub(said.len());
    }
    Ok(DecodeCheck { prompts: summary.prompts.len(), tokens, mismatches })
}

/// Feeds the long sequence, compares its last positions, and requests one position more.
fn context_check(
    engine: &mut dyn Engine,
    reference: &Reference,
    progress: &mut Progress,
) -> Result<ContextCheck, HarnessError> {
    let (long, vocab) = (&reference.long, reference.summary.vocab);
    let first = long.positions[0];
    progress("the context's end");
    fill(engine, &long.tokens[..first], "the context's end", progress)?;
    let (mut divergences, mut logits) = (Vec::new(), Vec::new());
    let (mut own, mut bf16) = (Vec::new(), Vec::new());
    for (row, &position) in long.positions.iter().enumerate() {
        let found = engine.step(long.tokens[position], position)?;
        engine.logits(&mut logits);
        let place = row * vocab..(row + 1) * vocab;
        let exact = &long.rows_f32[place.clone()];
        add_errors(&mut own, &logits, exact);
        add_errors(&mut bf16, &long.rows_bf16[place], exact);
        let expected = long.bf16_argmax[row];
        if found != expected {
            let margin = f64::from(long.margin[row]);
            let f32 = lowest_argmax(exact);
            let place = Divergence { prompt: 0, step: position, expected, found, f32, margin };
            divergences.push(place);
        }
    }
    let beyond = engine.step(long.tokens[0], long.tokens.len());
    Ok(ContextCheck {
        context: engine.info().context,
        sequence: long.tokens.len(),
        positions: long.positions.len(),
        refused_beyond: matches!(beyond, Err(monolith_engine::EngineError::Context { .. })),
        divergences,
        engine: ErrorStats::of(own),
        bf16: ErrorStats::of(bf16),
    })
}

/// Runs every token of the model with planted maxima.
fn vocabulary_check(
    pack: &Pack,
    any_shape: bool,
    loader: &Loader,
    options: &GateOptions,
) -> Result<VocabularyCheck, HarnessError> {
    let (config, formats) = (pack.config(), pack.header().formats);
    let shapes = match &options.planted {
        Some(shape) => vec![shape.clone()],
        None if any_shape => vec![small(config)],
        None => vec![Config { layers: 1, ..config.clone() }, config.clone()],
    };
    let mut refused = None;
    for shape in shapes {
        let pack =
            planted_pack(&shape, formats).map_err(|error| HarnessError::Load(error.into()))?;
        match loader(pack, 1) {
            Ok(mut engine) => return reach_every_id(&mut *engine, &shape),
            Err(error) => refused = Some(error),
        }
    }
    Err(HarnessError::Load(refused.expect("there is at least one shape")))
}

/// Returns the smallest model with this vocabulary.
fn small(config: &Config) -> Config {
    Config {
        hidden: PLANTED_HIDDEN,
        intermediate: 16,
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 16,
        ..config.clone()
    }
}

fn reach_every_id(
    engine: &mut dyn Engine,
    shape: &Config,
) -> Result<VocabularyCheck, HarnessError> {
    let mut reached = vec![false; shape.vocab];
    let mut planted = 0;
    for token in 0..shape.vocab as u32 {
        let next = planted_next(token, shape.vocab);
        planted += 1;
        if engine.step(token, 0)? == next {
            reached[next as usize] = true;
        }
    }
    let missed = (0..).zip(&reached).filter(|(_, reached)| !**reached).map(|(id, _)| id);
    Ok(VocabularyCheck {
        vocab: shape.vocab,
        shape: [shape.layers, shape.hidden],
        planted,
        first_missed: missed.take(MISSED_SHOWN).collect(),
        reached: reached.iter().filter(|reached| **reached).count(),
    })
}
