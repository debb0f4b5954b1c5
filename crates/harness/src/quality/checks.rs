//! The measured numbers: their sums, and whether they hold.

use super::windows::{chosen_before, window_count, windows};
use super::{AGREEMENT_MIN, KL_POSITIONS, NEW_TOKENS, PERPLEXITY_RISE_MAX, PROMPTS, SCORED_MIN};
use super::{COUNT_MAX, NEW_MAX, QualityOptions, Reading};
use serde::{Deserialize, Serialize};

/// One window of the text: sums over its scored tokens, in nats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowScore {
    /// Scored tokens.
    pub scored: usize,
    /// Their negative log-likelihood under the reference.
    pub nll_reference: f64,
    /// The same under the candidate.
    pub nll_candidate: f64,
    /// Positions at which the distributions were compared.
    pub compared: usize,
    /// Sum of the KL divergences at these positions.
    pub kl: f64,
    /// The largest of them.
    pub kl_max: f64,
    /// Positions at which both engines have the same most likely token.
    pub same_top_1: usize,
}

/// How many greedy tokens after one prompt agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptScore {
    /// Places with the same token, each engine decoding by itself.
    pub greedy: usize,
    /// Places before the first difference.
    pub prefix: usize,
    /// Places with the same token, the candidate fed the reference's tokens.
    pub forced: usize,
}

impl PromptScore {
    /// Counts two continuations of a prompt, each by itself, and a teacher-forced one: `forced`
    /// are pairs of tokens after the same text.
    pub(super) fn of(own: [&[u32]; 2], forced: [&[u32]; 2]) -> PromptScore {
        PromptScore {
            greedy: same(own[0], own[1]),
            prefix: prefix(own[0], own[1]),
            forced: same(forced[0], forced[1]),
        }
    }

    /// The most places that can agree.
    fn most(&self, new: usize) -> usize {
        if self.prefix == new { new } else { new.saturating_sub(1) }
    }

    /// Returns whether two texts of `new` tokens can have these counts.
    pub(super) fn is_possible(&self, new: usize) -> bool {
        (self.prefix..=self.most(new)).contains(&self.greedy) && self.forced <= new
    }
}

/// Places with the same token.
pub(super) fn same(own: &[u32], other: &[u32]) -> usize {
    own.iter().zip(other).filter(|(a, b)| a == b).count()
}

/// Places before the first with different tokens.
pub(super) fn prefix(own: &[u32], other: &[u32]) -> usize {
    own.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// How well the text is predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// Scored tokens. All have the same weight.
    pub scored: usize,
    /// Mean negative log-likelihood of a token under the reference, in nats.
    pub nll_reference: f64,
    /// The same under the candidate.
    pub nll_candidate: f64,
    /// The reference's perplexity: the exponential of its mean.
    pub reference: f64,
    /// The candidate's perplexity.
    pub candidate: f64,
    /// How much higher the candidate's perplexity is, as a share of the reference's.
    pub rise: f64,
}

impl Perplexity {
    /// Sums up all windows.
    pub fn of(windows: &[WindowScore]) -> Perplexity {
        let scored = total(windows.iter().map(|window| window.scored));
        let mean = |sum: f64| sum / scored.max(1) as f64;
        let nll_reference = mean(windows.iter().map(|window| window.nll_reference).sum());
        let nll_candidate = mean(windows.iter().map(|window| window.nll_candidate).sum());
        Perplexity {
            scored,
            nll_reference,
            nll_candidate,
            reference: nll_reference.exp(),
            candidate: nll_candidate.exp(),
            rise: (nll_candidate - nll_reference).exp_m1(),
        }
    }

    /// Whether both perplexities are numbers from 1 up.
    pub(super) fn is_a_number(&self) -> bool {
        [self.reference, self.candidate].iter().all(|value| value.is_finite() && *value >= 1.0)
    }

    fn is_close(&self, other: &Perplexity) -> bool {
        let Perplexity { scored, nll_reference, nll_candidate, reference, candidate, rise } = *self;
        scored == other.scored
            && close(nll_reference, other.nll_reference)
            && close(nll_candidate, other.nll_candidate)
            && close(reference, other.reference)
            && close(candidate, other.candidate)
            && (rise - other.rise).abs() <= 1e-12
    }
}

/// KL(reference || candidate) of the next-token distributions, in nats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Positions compared.
    pub positions: usize,
    /// Mean.
    pub mean: f64,
    /// 99th percentile over the positions.
    pub p99: f64,
    /// The largest.
    pub max: f64,
    /// Positions at which both engines have the same most likely token.
    pub same_top_1: usize,
    /// Their share.
    pub top_1: f64,
}

impl Divergence {
    /// Sums up all windows; `values` has the divergence of each position.
    pub fn of(windows: &[WindowScore], values: &[f64]) -> Divergence {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
        Divergence { p99: sorted.get(at).copied().unwrap_or(0.0), ..Divergence::sums(windows) }
    }

    /// Everything except the percentile, which cannot be computed from the windows' sums.
    fn sums(windows: &[WindowScore]) -> Divergence {
        let positions = total(windows.iter().map(|window| window.compared));
        let same_top_1 = total(windows.iter().map(|window| window.same_top_1));
        let share = |sum: f64| sum / positions.max(1) as f64;
        Divergence {
            positions,
            mean: share(windows.iter().map(|window| window.kl).sum()),
            p99: 0.0,
            max: windows.iter().map(|window| window.kl_max).fold(0.0, f64::max),
            same_top_1,
            top_1: share(same_top_1 as f64),
        }
    }

    fn is_close(&self, other: &Divergence) -> bool {
        self.positions == other.positions
            && self.same_top_1 == other.same_top_1
            && close(self.mean, other.mean)
            && close(self.p99, other.p99)
            && close(self.max, other.max)
            && close(self.top_1, other.top_1)
    }
}

/// Greedy tokens that agree, as shares of all places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Prompts.
    pub prompts: usize,
    /// Places per prompt.
    pub new: usize,
    /// Each engine decodes by itself: the same token at the same place.
    pub greedy: f64,
    /// The same, but counted up to each prompt's first difference only.
    pub prefix: f64,
    /// The candidate is fed the reference's tokens.
    pub forced: f64,
    /// Prompts without a difference.
    pub whole: usize,
}

impl Agreement {
    /// Sums up all prompts, with `new` places each.
    pub fn of(prompts: &[PromptScore], new: usize) -> Agreement {
        let places = prompts.len().saturating_mul(new).max(1) as f64;
        let share =
            |count: fn(&PromptScore) -> usize| total(prompts.iter().map(count)) as f64 / places;
        Agreement {
            prompts: prompts.len(),
            new,
            greedy: share(|prompt| prompt.greedy),
            prefix: share(|prompt| prompt.prefix),
            forced: share(|prompt| prompt.forced),
            whole: prompts.iter().filter(|prompt| prompt.prefix == new).count(),
        }
    }

    /// Returns the share for a reading.
    pub fn share(&self, reading: Reading) -> f64 {
        match reading {
            Reading::AsWritten => self.greedy,
            Reading::AfterTheSameText => self.forced,
        }
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// How well the text is predicted.
    pub perplexity: Perplexity,
    /// How far the distributions are apart.
    pub kl: Divergence,
    /// How many greedy tokens are the same.
    pub agreement: Agreement,
    /// The windows that perplexity and KL divergence sum up.
    pub windows: Vec<WindowScore>,
    /// The prompts that the agreement sums up.
    pub prompts: Vec<PromptScore>,
}

impl Numbers {
    /// Sums up the measurements; `kl` has the divergences of the compared positions.
    pub fn of(
        windows: Vec<WindowScore>,
        prompts: Vec<PromptScore>,
        kl: &[f64],
        new: usize,
    ) -> Numbers {
        Numbers {
            perplexity: Perplexity::of(&windows),
            kl: Divergence::of(&windows, kl),
            agreement: Agreement::of(&prompts, new),
            windows,
            prompts,
        }
    }

    /// Describes numbers that no measurement can give; empty if there are none. `tokens` is the
    /// text's length. The numbers come from a file, so each is bounded before it is used.
    pub fn contradictions(&self, tokens: usize, options: &QualityOptions) -> Vec<String> {
        if let Err(what) = self.bounded(tokens, options) {
            return vec![what];
        }
        let parts = [
            ("perplexity", self.perplexity_contradictions(tokens, options)),
            ("kl", self.kl_contradictions(tokens, options)),
            ("agreement", self.agreement_contradictions(options)),
        ];
        let named = parts
            .into_iter()
            .flat_map(|(name, found)| found.into_iter().map(move |what| format!("{name}: {what}")));
        named.collect()
    }

    /// Whether every count is small enough for sums, and consistent with the counts around it.
    fn bounded(&self, tokens: usize, options: &QualityOptions) -> Result<(), String> {
        let QualityOptions { context, stride, kl_positions, new } = *options;
        for (name, count, most) in [
            ("the text's tokens", tokens, COUNT_MAX),
            ("the context", context, COUNT_MAX),
            ("the stride", stride, COUNT_MAX),
            ("the KL positions", kl_positions, COUNT_MAX),
            ("the tokens after a prompt", new, NEW_MAX),
        ] {
            if count > most {
                return Err(format!("{name}: {count} is more than the {most} that are read"));
            }
        }
        let fits = |window: &WindowScore| {
            window.scored <= tokens
                && window.compared <= window.scored
                && window.same_top_1 <= window.compared
        };
        if let Some(at) = self.windows.iter().position(|window| !fits(window)) {
            return Err(format!("window {at}: its counts cannot be"));
        }
        let wanted = window_count(tokens, context, stride);
        if self.windows.len() != wanted {
            let found = self.windows.len();
            return Err(format!(
                "perplexity: the windows are not those of the text, context and stride: {found}, \
                 not {wanted}"
            ));
        }
        Ok(())
    }

    /// Describes the thresholds that do not hold by one reading.
    pub fn shortfalls(&self, reading: Reading) -> Vec<String> {
        let Numbers { perplexity, kl, agreement, .. } = self;
        let share = agreement.share(reading);
        let how = match reading {
            Reading::AsWritten => "each engine by itself",
            Reading::AfterTheSameText => "after the same text",
        };
        failing([
            (
                perplexity.scored >= SCORED_MIN,
                format!(
                    "perplexity: {} tokens scored: at least {SCORED_MIN} are asked",
                    perplexity.scored
                ),
            ),
            (perplexity.is_a_number(), "perplexity: it is no number from 1 up".into()),
            (
                perplexity.rise <= PERPLEXITY_RISE_MAX,
                format!(
                    "perplexity: {:.4} is {:+.2}% of {:.4}: at most {:+.0}% is asked",
                    perplexity.candidate,
                    100.0 * perplexity.rise,
                    perplexity.reference,
                    100.0 * PERPLEXITY_RISE_MAX
                ),
            ),
            (
                kl.positions >= KL_POSITIONS,
                format!("kl: {} positions: at least {KL_POSITIONS} are asked", kl.positions),
            ),
            (
                agreement.prompts >= PROMPTS && agreement.new >= NEW_TOKENS,
                format!(
                    "agreement: {} prompts x {} tokens: {PROMPTS} x {NEW_TOKENS} are asked",
                    agreement.prompts, agreement.new
                ),
            ),
            (
                share >= AGREEMENT_MIN,
                format!(
                    "agreement: {:.2}% of the greedy tokens agree, {how}: at least {:.0}% is asked",
                    100.0 * share,
                    100.0 * AGREEMENT_MIN
                ),
            ),
        ])
    }

    fn perplexity_contradictions(&self, tokens: usize, options: &QualityOptions) -> Vec<String> {
        let wanted = windows(tokens, options.context, options.stride);
        let found = self.windows.iter().map(|window| window.scored);
        failing([
            (
                found.eq(wanted.iter().map(|window| window.scored.len())),
                "the windows are not those of the text, context and stride".into(),
            ),
            (
                self.perplexity.is_close(&Perplexity::of(&self.windows)),
                "it is not what the windows sum to".into(),
            ),
        ])
    }

    fn kl_contradictions(&self, tokens: usize, options: &QualityOptions) -> Vec<String> {
        let own = &self.kl;
        let summed = Divergence { p99: own.p99, ..Divergence::sums(&self.windows) };
        let all = tokens.saturating_sub(1);
        let mut begin = 0;
        let mut chosen = |window: &WindowScore| {
            let end = begin + window.scored;
            let before = [begin, end].map(|at| chosen_before(at, all, options.kl_positions));
            begin = end;
            before[1] - before[0]
        };
        let placed = self.windows.iter().all(|window| window.compared == chosen(window));
        let possible = |w: &WindowScore| {
            let most = w.kl_max * w.compared as f64;
            0.0 <= w.kl && w.kl <= most * (1.0 + 1e-9)
        };
        failing([
            (placed, "the positions are not spread evenly over the text".into()),
            (own.is_close(&summed), "it is not what the windows sum to".into()),
            (self.windows.iter().all(possible), "a window's sums cannot be".into()),
            (
                own.mean.is_finite() && (0.0..=own.max).contains(&own.p99),
                "the percentile cannot be".into(),
            ),
        ])
    }

    fn agreement_contradictions(&self, options: &QualityOptions) -> Vec<String> {
        let new = options.new;
        // The first difference is the same in both comparisons.
        let possible = |prompt: &PromptScore| {
            prompt.is_possible(new) && (prompt.prefix..=prompt.most(new)).contains(&prompt.forced)
        };
        failing([
            (
                self.agreement == Agreement::of(&self.prompts, new),
                "it is not what the prompts sum to".into(),
            ),
            (self.prompts.iter().all(possible), "a prompt's numbers cannot be".into()),
        ])
    }
}

/// A sum that stops at the largest number instead of overflowing.
fn total(counts: impl Iterator<Item = usize>) -> usize {
    counts.fold(0, usize::saturating_add)
}

/// Whether two numbers are equal up to another machine's rounding.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// The messages of the claims that do not hold.
fn failing<const N: usize>(claims: [(bool, String); N]) -> Vec<String> {
    claims.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(scored: usize, nll: [f64; 2], kl: [f64; 2], same_top_1: usize) -> WindowScore {
        WindowScore {
            scored,
            nll_reference: nll[0],
            nll_candidate: nll[1],
            compared: 2,
            kl: kl[0],
            kl_max: kl[1],
            same_top_1,
        }
    }

    #[test]
    fn every_token_weighs_the_same() {
        // Three tokens at ln 4 and one at ln 2; the candidate: all at ln 4.
        let (ln_2, ln_4) = (2f64.ln(), 4f64.ln());
        let all = [window(3, [3.0 * ln_4, 3.0 * ln_4], [0.3, 0.2], 2), {
            window(1, [ln_2, ln_4], [0.5, 0.5], 1)
        }];
        let found = Perplexity::of(&all);
        assert_eq!(found.scored, 4);
        assert!((found.reference - 128f64.powf(0.25)).abs() < 1e-12, "{found:?}");
        assert!((found.candidate - 4.0).abs() < 1e-12, "{found:?}");
        assert!((found.rise - (4.0 / 128f64.powf(0.25) - 1.0)).abs() < 1e-12, "{found:?}");
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let found = Divergence::of(&all, &values);
        assert_eq!((found.positions, found.same_top_1, found.top_1), (4, 3, 0.75));
        assert_eq!((found.mean, found.p99, found.max), (0.2, 198.0, 0.5));
    }

    #[test]
    fn agreement_is_a_share_of_all_places() {
        let score = |greedy, prefix, forced| PromptScore { greedy, prefix, forced };
        let found = Agreement::of(&[score(8, 8, 8), score(4, 2, 7)], 8);
        assert_eq!((found.greedy, found.prefix, found.forced), (0.75, 0.625, 0.9375));
        assert_eq!((found.whole, found.share(Reading::AsWritten)), (1, 0.75));
        assert_eq!(found.share(Reading::AfterTheSameText), 0.9375);
    }
}
