//! The measured numbers, and what they say.

use super::windows::{is_chosen, windows};
use super::{AGREEMENT_MIN, Control, KL_POSITIONS, NEW_TOKENS, PERPLEXITY_RISE_MAX, PROMPTS};
use super::{QualityOptions, SCORED_MIN};
use serde::{Deserialize, Serialize};

/// Which comparison of greedy tokens is the gated one. Both are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgreementRule {
    /// Both engines decode by themselves; a token agrees if both say it at the same place. After
    /// a divergence the texts are different ones, so one near tie may cost a whole prompt.
    Greedy,
    /// The candidate is fed the reference's tokens, so that every place is compared after the
    /// same text: how often the argmax agrees.
    Forced,
}

impl AgreementRule {
    /// The one that a control settles: without one, that of two engines left to themselves.
    pub fn of(control: Option<&Control>) -> AgreementRule {
        control.map_or(AgreementRule::Greedy, Control::rule)
    }

    /// Its name in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            AgreementRule::Greedy => "greedy",
            AgreementRule::Forced => "forced",
        }
    }
}

/// What must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Largest rise of the perplexity, as a share of the reference's.
    pub perplexity_rise_max: f64,
    /// Least share of greedy tokens that agree.
    pub agreement_min: f64,
    /// In which comparison.
    pub agreement: AgreementRule,
}

impl Thresholds {
    /// The gate's own, with this comparison.
    pub fn gate(agreement: AgreementRule) -> Thresholds {
        Thresholds {
            perplexity_rise_max: PERPLEXITY_RISE_MAX,
            agreement_min: AGREEMENT_MIN,
            agreement,
        }
    }
}

/// One window of the text: sums over its scored tokens, in nats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowScore {
    /// Scored tokens.
    pub scored: usize,
    /// Negative log-likelihood of them all, by the reference.
    pub nll_reference: f64,
    /// And by the candidate.
    pub nll_candidate: f64,
    /// Positions at which the distributions were compared.
    pub compared: usize,
    /// Sum of their KL divergences.
    pub kl: f64,
    /// The largest.
    pub kl_max: f64,
    /// Those at which both engines have the same most likely token.
    pub same_top_1: usize,
}

/// One prompt's greedy tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptScore {
    /// Places with the same token, each engine decoding by itself.
    pub greedy: usize,
    /// Places before the first that differs.
    pub prefix: usize,
    /// Places with the same token, the candidate fed the reference's.
    pub forced: usize,
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
    /// Scored tokens, each weighing the same.
    pub scored: usize,
    /// The reference's negative log-likelihood of a token, in nats.
    pub nll_reference: f64,
    /// The candidate's.
    pub nll_candidate: f64,
    /// The exponential of the reference's.
    pub reference: f64,
    /// And of the candidate's.
    pub candidate: f64,
    /// By which share of the reference's the candidate's is higher.
    pub rise: f64,
}

impl Perplexity {
    /// Of all windows.
    pub fn of(windows: &[WindowScore]) -> Perplexity {
        let scored: usize = windows.iter().map(|window| window.scored).sum();
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
    /// 99 of 100 positions have at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
    /// Positions at which both engines have the same most likely token.
    pub same_top_1: usize,
    /// Their share.
    pub top_1: f64,
}

impl Divergence {
    /// Of all windows; `values` are the positions' own divergences.
    pub fn of(windows: &[WindowScore], values: &[f64]) -> Divergence {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
        Divergence { p99: sorted.get(at).copied().unwrap_or(0.0), ..Divergence::sums(windows) }
    }

    /// What the windows' sums say: all but the percentile.
    fn sums(windows: &[WindowScore]) -> Divergence {
        let positions: usize = windows.iter().map(|window| window.compared).sum();
        let same_top_1: usize = windows.iter().map(|window| window.same_top_1).sum();
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
    /// Places a prompt.
    pub new: usize,
    /// Each engine decodes by itself: the same token at the same place.
    pub greedy: f64,
    /// The same, but nothing counts from a prompt's first divergence on.
    pub prefix: f64,
    /// The candidate is fed the reference's tokens.
    pub forced: f64,
    /// Prompts without a divergence.
    pub whole: usize,
}

impl Agreement {
    /// Of all prompts, with `new` places each.
    pub fn of(prompts: &[PromptScore], new: usize) -> Agreement {
        let places = (prompts.len() * new).max(1) as f64;
        let share = |count: fn(&PromptScore) -> usize| {
            prompts.iter().map(count).sum::<usize>() as f64 / places
        };
        Agreement {
            prompts: prompts.len(),
            new,
            greedy: share(|prompt| prompt.greedy),
            prefix: share(|prompt| prompt.prefix),
            forced: share(|prompt| prompt.forced),
            whole: prompts.iter().filter(|prompt| prompt.prefix == new).count(),
        }
    }

    /// The share that a comparison gave.
    pub fn share(&self, rule: AgreementRule) -> f64 {
        match rule {
            AgreementRule::Greedy => self.greedy,
            AgreementRule::Forced => self.forced,
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
    /// What the first two sum up.
    pub windows: Vec<WindowScore>,
    /// What the third sums up.
    pub prompts: Vec<PromptScore>,
}

impl Numbers {
    /// Sums up what was measured; `kl` are the compared positions' divergences.
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

    /// What does not pass, recomputed from the numbers. `tokens` is the text's length.
    pub fn failures(
        &self,
        tokens: usize,
        options: &QualityOptions,
        thresholds: &Thresholds,
    ) -> Vec<String> {
        let mut all = Vec::new();
        if *thresholds != Thresholds::gate(thresholds.agreement) {
            all.push("the thresholds are not the gate's".into());
        }
        let parts = [
            ("perplexity", self.perplexity_failures(tokens, options)),
            ("kl", self.kl_failures(tokens, options)),
            ("agreement", self.agreement_failures(options, thresholds)),
        ];
        for (name, failures) in parts {
            all.extend(failures.into_iter().map(|what| format!("{name}: {what}")));
        }
        all
    }

    fn perplexity_failures(&self, tokens: usize, options: &QualityOptions) -> Vec<String> {
        let own = &self.perplexity;
        let wanted = windows(tokens, options.context, options.stride);
        let found = self.windows.iter().map(|window| window.scored);
        let summed = Perplexity::of(&self.windows);
        failing([
            (
                found.eq(wanted.iter().map(|window| window.scored.len())),
                "the windows are not those of the text, context and stride".into(),
            ),
            (own.is_close(&summed), "it is not what the windows sum to".into()),
            (
                own.scored >= SCORED_MIN,
                format!("{} tokens scored: at least {SCORED_MIN} are wanted", own.scored),
            ),
            (
                own.reference.is_finite() && own.reference >= 1.0 && own.candidate >= 1.0,
                "it is no number from 1 up".into(),
            ),
            (
                own.rise <= PERPLEXITY_RISE_MAX,
                format!(
                    "{:.4} is {:+.2}% of {:.4}: up to {:+.0}% is allowed",
                    own.candidate,
                    100.0 * own.rise,
                    own.reference,
                    100.0 * PERPLEXITY_RISE_MAX
                ),
            ),
        ])
    }

    fn kl_failures(&self, tokens: usize, options: &QualityOptions) -> Vec<String> {
        let own = &self.kl;
        let summed = Divergence { p99: own.p99, ..Divergence::sums(&self.windows) };
        let total = tokens.saturating_sub(1);
        let mut index = 0;
        let mut chosen = |window: &WindowScore| {
            let begin = index;
            index += window.scored;
            (begin..index).filter(|&at| is_chosen(at, total, options.kl_positions)).count()
        };
        let placed = self.windows.iter().all(|window| window.compared == chosen(window));
        let possible = |w: &WindowScore| {
            let most = w.kl_max * w.compared as f64;
            w.same_top_1 <= w.compared && 0.0 <= w.kl && w.kl <= most * (1.0 + 1e-9)
        };
        failing([
            (placed, "the positions are not those that lie evenly in the text".into()),
            (own.is_close(&summed), "it is not what the windows sum to".into()),
            (self.windows.iter().all(possible), "a window's sums cannot be".into()),
            (
                own.mean.is_finite() && (0.0..=own.max).contains(&own.p99),
                "the percentile cannot be".into(),
            ),
            (
                own.positions >= KL_POSITIONS,
                format!("{} positions: {KL_POSITIONS} are wanted", own.positions),
            ),
        ])
    }

    fn agreement_failures(&self, options: &QualityOptions, thresholds: &Thresholds) -> Vec<String> {
        let (own, new) = (&self.agreement, options.new);
        let possible = |prompt: &PromptScore| {
            let PromptScore { greedy, prefix, forced } = *prompt;
            let whole = prefix == new;
            // One token differs at the first divergence, in both comparisons.
            let most = if whole { new } else { new.saturating_sub(1) };
            prefix <= greedy && prefix <= forced && greedy.max(forced) <= most
        };
        let share = own.share(thresholds.agreement);
        failing([
            (*own == Agreement::of(&self.prompts, new), "it is not what the prompts sum to".into()),
            (self.prompts.iter().all(possible), "a prompt's numbers cannot be".into()),
            (
                own.prompts >= PROMPTS && own.new >= NEW_TOKENS,
                format!(
                    "{} prompts x {} tokens: {PROMPTS} x {NEW_TOKENS} are wanted",
                    own.prompts, own.new
                ),
            ),
            (
                share >= AGREEMENT_MIN,
                format!(
                    "{:.2}% of the tokens are the same ({}): at least {:.0}% is wanted",
                    100.0 * share,
                    thresholds.agreement.name(),
                    100.0 * AGREEMENT_MIN
                ),
            ),
        ])
    }
}

/// Whether two numbers are the same but for how another machine rounds.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// Collects the messages of what does not hold.
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
        assert_eq!((found.whole, found.share(AgreementRule::Greedy)), (1, 0.75));
        assert_eq!(found.share(AgreementRule::Forced), 0.9375);
    }
}
