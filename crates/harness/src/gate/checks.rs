//! The gate's checks: their numbers, and whether they pass.

use super::{EXEMPT_SHARE_MAX, NEW_TOKENS, PROMPTS, RUNS, ReferenceId};
use crate::reference::{ErrorStats, OwnDivergences, is_near_tie};
use serde::{Deserialize, Serialize};

/// Every check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checks {
    /// The reference read the same weights.
    pub weights: WeightsCheck,
    /// Greedy tokens, teacher-forced.
    pub tokens: TokensCheck,
    /// Logits against f32.
    pub logits: LogitsCheck,
    /// Every logit is written, and the token is their argmax.
    pub rows: RowsCheck,
    /// Every vocabulary id can be output.
    pub vocabulary: VocabularyCheck,
    /// The same bits every time.
    pub determinism: DeterminismCheck,
    /// Queued steps give the same tokens as single steps.
    pub decode: DecodeCheck,
    /// To the end of the context, and not beyond.
    pub context: ContextCheck,
}

impl Checks {
    /// Returns the failures, recomputed from the numbers.
    pub fn failures(&self, reference: &ReferenceId) -> Vec<String> {
        let mut all = Vec::new();
        if self.weights.tensors_sha256 != reference.tensors_sha256 {
            all.push("weights: the reference read other weights".into());
        }
        // Older records do not state the reference's own divergences: the strictest rule holds.
        let rule = reference.own.as_ref().map_or(Rule::Margin, Rule::of);
        if self.tokens.rule != rule {
            all.push("tokens: the rule is not the one that the reference settles".into());
        }
        let tolerance = reference.tolerance;
        if tolerance.to_bits() != reference.error.p999.to_bits() || !tolerance.is_finite() {
            all.push("tokens: the tolerance is not the reference's own".into());
        }
        let parts = [
            ("tokens", self.tokens.failures(tolerance, reference.own.as_ref())),
            ("logits", self.logits.failures()),
            ("rows", self.rows.failures()),
            ("vocabulary", self.vocabulary.failures()),
            ("determinism", self.determinism.failures()),
            ("decode", self.decode.failures(&self.tokens)),
            ("context", self.context.failures(self.tokens.rule, tolerance)),
        ];
        for (name, failures) in parts {
            all.extend(failures.into_iter().map(|what| format!("{name}: {what}")));
        }
        all
    }
}

/// Collects the messages of the claims that do not hold.
fn failing<const N: usize>(claims: [(bool, String); N]) -> Vec<String> {
    claims.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
}

/// The weights that the engine ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsCheck {
    /// Hash of the pack's tensors' values.
    pub tensors_sha256: String,
}

/// A position where the engine's token differs from the reference's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Index of the prompt.
    pub prompt: usize,
    /// Index of the token among the prompt's greedy ones (for the context: the position).
    pub step: usize,
    /// The reference's token.
    pub expected: u32,
    /// The engine's.
    pub found: u32,
    /// The reference's token in f32. If it equals `found`, rounding changed the reference's bf16
    /// token.
    pub f32: u32,
    /// The reference's top-2 margin there, of its bf16 logits.
    pub margin: f64,
}

impl Divergence {
    /// Why it is not allowed.
    fn refused(&self, tolerance: f64) -> String {
        let Divergence { prompt, step, expected, found, f32, margin } = self;
        format!(
            "no near tie: prompt {prompt}, token {step}: {found} where the reference says \
             {expected} (in f32 {f32}), by a margin of {margin} where the tolerance is \
             {tolerance:.4}"
        )
    }
}

/// When the engine's token may differ from the reference's. [`Rule::of`] determines the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Only where the reference's top-2 margin is below the tolerance; each such position counts
    /// as excused.
    Margin,
    /// Where the engine's token equals the reference's own f32 token, rounding changed the
    /// reference's bf16 token, and the position needs no excuse. Elsewhere as [`Rule::Margin`].
    F32Settles,
}

impl Rule {
    /// Returns the strictest rule that the reference itself passes: [`Rule::Margin`], unless its
    /// own f32 token differs from its bf16 token at some position beyond the tolerance, or at more
    /// positions than may be excused. In that case even an exact engine would fail.
    pub fn of(own: &OwnDivergences) -> Rule {
        let share = own.all as f64 / own.positions.max(1) as f64;
        let passes = own.beyond_tolerance == 0 && share <= EXEMPT_SHARE_MAX;
        if passes { Rule::Margin } else { Rule::F32Settles }
    }

    /// Returns whether the engine's token is the reference's f32 token.
    fn settles(self, divergence: &Divergence) -> bool {
        self == Rule::F32Settles && divergence.found == divergence.f32
    }

    /// Returns whether the divergence needs an excuse and has one.
    pub(super) fn excuses(self, divergence: &Divergence, tolerance: f64) -> bool {
        !self.settles(divergence) && is_near_tie(divergence.margin, tolerance)
    }

    /// Returns whether the divergence is a failure.
    fn refuses(self, divergence: &Divergence, tolerance: f64) -> bool {
        !self.settles(divergence) && !self.excuses(divergence, tolerance)
    }
}

/// Greedy tokens against the reference's, every position fed with the reference's tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokensCheck {
    /// When a divergence is allowed.
    pub rule: Rule,
    /// Prompts compared.
    pub prompts: usize,
    /// Tokens compared per prompt.
    pub new: usize,
    /// Positions compared.
    pub positions: usize,
    /// Positions with the same token.
    pub matches: usize,
    /// `matches` divided by `positions`.
    pub match_rate: f64,
    /// Positions at which a divergence would be excused (whether or not there is one).
    pub near_ties: u64,
    /// Divergences excused by a margin below the tolerance.
    pub exempt: usize,
    /// Divergences where the engine's token is the reference's f32 token.
    pub as_f32: usize,
    /// Every divergence.
    pub divergences: Vec<Divergence>,
}

impl TokensCheck {
    fn failures(&self, tolerance: f64, own: Option<&OwnDivergences>) -> Vec<String> {
        let excused = |d: &&Divergence| self.rule.excuses(d, tolerance);
        let exempt = self.divergences.iter().filter(excused).count();
        let as_f32 = self.divergences.iter().filter(|d| d.found == d.f32).count();
        let share = exempt as f64 / self.positions.max(1) as f64;
        let rate = self.matches as f64 / self.positions.max(1) as f64;
        let mut refused = self.divergences.iter().filter(|d| self.rule.refuses(d, tolerance));
        let (first, others) = (refused.next(), refused.count());
        let mut places: Vec<_> = self.divergences.iter().map(|d| (d.prompt, d.step)).collect();
        places.sort_unstable();
        places.dedup();
        failing([
            (
                self.prompts >= PROMPTS && self.new >= NEW_TOKENS,
                format!(
                    "{} prompts x {} tokens: {PROMPTS} x {NEW_TOKENS} are wanted",
                    self.prompts, self.new
                ),
            ),
            (
                first.is_none(),
                first.map_or_else(String::new, |first| {
                    let more =
                        if others == 0 { String::new() } else { format!(" ({others} more)") };
                    format!("{}{more}", first.refused(tolerance))
                }),
            ),
            (
                share <= EXEMPT_SHARE_MAX,
                format!("{exempt} of {} positions are excused", self.positions),
            ),
            (
                self.prompts.checked_mul(self.new) == Some(self.positions)
                    && self.matches.checked_add(self.divergences.len()) == Some(self.positions)
                    && places.len() == self.divergences.len()
                    && self.exempt == exempt
                    && self.as_f32 == as_f32
                    && (rate - self.match_rate).abs() < 1e-12
                    && own.is_none_or(|own| self.fits(own, tolerance)),
                "the numbers contradict each other".into(),
            ),
        ])
    }

    /// Returns whether the stated number of the reference's own divergences is possible: where the
    /// engine differs, the record shows whether the reference's f32 does, too.
    fn fits(&self, own: &OwnDivergences, tolerance: f64) -> bool {
        let seen = || self.divergences.iter().filter(|d| d.f32 != d.expected);
        let beyond = seen().filter(|d| !is_near_tie(d.margin, tolerance)).count();
        own.positions == self.positions
            && (beyond..=own.all).contains(&own.beyond_tolerance)
            && (seen().count()..=self.positions).contains(&own.all)
    }
}

/// Errors of whole rows of logits against f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogitsCheck {
    /// Rows compared, each with the whole vocabulary.
    pub rows: usize,
    /// The engine's errors.
    pub engine: ErrorStats,
    /// The bf16 reference's, of the same rows.
    pub bf16: ErrorStats,
}

impl LogitsCheck {
    fn failures(&self) -> Vec<String> {
        let worse = self.engine.worse_than(&self.bf16);
        let counts = self.engine.count == self.bf16.count && self.rows >= PROMPTS;
        failing([
            (worse.is_none(), format!("worse than bf16: {}", worse.unwrap_or_default())),
            (counts, format!("{} rows, {} errors", self.rows, self.engine.count)),
        ])
    }
}

/// Whether the logits are complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsCheck {
    /// Positions checked.
    pub positions: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Positions where the token is not the lowest index of the largest logit.
    pub argmax_mismatches: usize,
    /// Vocabulary rows whose logit had the same bits at every position.
    pub never_changed: usize,
    /// Logits that were not finite.
    pub not_finite: usize,
}

impl RowsCheck {
    fn failures(&self) -> Vec<String> {
        failing([
            (self.positions >= PROMPTS * NEW_TOKENS, format!("{} positions", self.positions)),
            (
                self.argmax_mismatches == 0,
                format!("{} tokens are not the logits' argmax", self.argmax_mismatches),
            ),
            (self.never_changed == 0, format!("{} rows never changed", self.never_changed)),
            (self.not_finite == 0, format!("{} logits are not finite", self.not_finite)),
        ])
    }
}

/// Whether the argmax reaches every id: in a model made for it, each token's largest logit is
/// planted at another id ([`super::planted_pack`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VocabularyCheck {
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Layers and hidden width of the model made for it.
    pub shape: [usize; 2],
    /// Ids to be reached.
    pub planted: usize,
    /// Ids that were reached.
    pub reached: usize,
    /// The first ids that were not reached.
    pub first_missed: Vec<u32>,
}

impl VocabularyCheck {
    fn failures(&self) -> Vec<String> {
        let all = self.reached == self.vocab && self.planted == self.vocab;
        let what = format!(
            "{} of {} ids reached, first missed {:?}",
            self.reached, self.vocab, self.first_missed
        );
        failing([(all && self.vocab > 0, what)])
    }
}

/// Whether runs agree bit by bit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeterminismCheck {
    /// One hash per run, of every token and every logit's bits; the last run is of a newly loaded
    /// engine.
    pub runs: Vec<String>,
}

impl DeterminismCheck {
    fn failures(&self) -> Vec<String> {
        let same = self.runs.iter().all(|run| *run == self.runs[0] && !run.is_empty());
        failing([
            (self.runs.len() >= RUNS, format!("{} runs, {RUNS} are wanted", self.runs.len())),
            (same, format!("runs differ: {:?}", self.runs)),
        ])
    }
}

/// Whether decoding as in the benchmark gives the same tokens as single steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodeCheck {
    /// Prompts decoded.
    pub prompts: usize,
    /// Tokens compared.
    pub tokens: usize,
    /// Tokens that differ.
    pub mismatches: usize,
}

impl DecodeCheck {
    fn failures(&self, tokens: &TokensCheck) -> Vec<String> {
        let wanted = tokens.prompts.checked_mul(tokens.new).filter(|&wanted| wanted > 0);
        failing([
            (self.mismatches == 0, format!("{} tokens differ", self.mismatches)),
            (
                self.prompts == tokens.prompts && wanted == Some(self.tokens),
                format!(
                    "{} tokens of {} prompts, {} x {} are wanted",
                    self.tokens, self.prompts, tokens.prompts, tokens.new
                ),
            ),
        ])
    }
}

/// The last positions of a full context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContextCheck {
    /// The engine's context.
    pub context: usize,
    /// Length of the sequence.
    pub sequence: usize,
    /// Positions compared: the sequence's last ones.
    pub positions: usize,
    /// Whether a step at the position after the last was refused.
    pub refused_beyond: bool,
    /// Positions where the token differs from the reference's.
    pub divergences: Vec<Divergence>,
    /// The engine's errors in the logits there.
    pub engine: ErrorStats,
    /// The bf16 reference's.
    pub bf16: ErrorStats,
}

impl ContextCheck {
    /// Judges by the rule of the tokens. With so few positions, the largest share that may be
    /// excused ([`EXEMPT_SHARE_MAX`]) is rounded up to a whole position.
    fn failures(&self, rule: Rule, tolerance: f64) -> Vec<String> {
        let worse = self.engine.worse_than(&self.bf16);
        let refused = self.divergences.iter().filter(|d| rule.refuses(d, tolerance)).count();
        let exempt = self.divergences.iter().filter(|d| rule.excuses(d, tolerance)).count();
        let exempt_max = (self.positions as f64 * EXEMPT_SHARE_MAX).ceil() as usize;
        failing([
            (
                self.sequence == self.context && self.positions > 0,
                format!("{} positions of a context of {}", self.sequence, self.context),
            ),
            (self.refused_beyond, "a step beyond the context was not refused".into()),
            (refused == 0, format!("{refused} divergences are no near ties")),
            (
                exempt <= exempt_max,
                format!(
                    "{exempt} of {} positions are excused, at most {exempt_max} may be",
                    self.positions
                ),
            ),
            (worse.is_none(), format!("worse than bf16: {}", worse.unwrap_or_default())),
            (
                self.engine.count == self.bf16.count && self.are_at_the_end(),
                "the numbers contradict each other".into(),
            ),
        ])
    }

    /// Returns whether the divergences are at compared positions, without duplicates.
    fn are_at_the_end(&self) -> bool {
        let Some(first) = self.sequence.checked_sub(self.positions) else { return false };
        let mut places: Vec<usize> = self.divergences.iter().map(|d| d.step).collect();
        places.sort_unstable();
        places.dedup();
        let within = |place: &usize| (first..self.sequence).contains(place);
        places.len() == self.divergences.len() && places.iter().all(within)
    }
}
