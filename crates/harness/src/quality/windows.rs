//! Which tokens of a text are scored, and from how much context.
//!
//! A window is `context` tokens, and the next begins `stride` tokens later. The first window
//! scores all its tokens but the text's first, which nothing predicts; every other scores those
//! that no window before it did. So each token is scored once, and all but the first window's with
//! at least `context - stride` tokens before it.

use std::ops::Range;

/// A stretch of the text that is fed from an empty cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its tokens.
    pub tokens: Range<usize>,
    /// Those of them that are scored.
    pub scored: Range<usize>,
}

impl Window {
    /// Tokens that are fed without their logits being looked at.
    pub fn unscored(&self) -> Range<usize> {
        self.tokens.start..self.scored.start - 1
    }
}

/// The windows of a text of `length` tokens; none if it has fewer than two, or if the numbers
/// cannot be (see [`fits`]).
pub fn windows(length: usize, context: usize, stride: usize) -> Vec<Window> {
    let mut all: Vec<Window> = Vec::new();
    if length < 2 || !fits(context, stride) {
        return all;
    }
    let mut done = 1;
    for begin in (0..).step_by(stride) {
        let end = (begin + context).min(length);
        all.push(Window { tokens: begin..end, scored: done..end });
        done = end;
        if end == length {
            break;
        }
    }
    all
}

/// Whether each scored token has one before it in its window, and some token is scored.
pub fn fits(context: usize, stride: usize) -> bool {
    context >= 2 && (1..context).contains(&stride)
}

/// Whether the scored token `index` is among `wanted` of `total` that lie evenly.
pub fn is_chosen(index: usize, total: usize, wanted: usize) -> bool {
    if wanted >= total {
        return index < total;
    }
    // The `j`-th is token `j * total / wanted`, rounded down.
    let (index, total, wanted) = (index as u128, total as u128, wanted as u128);
    let j = (index * wanted).div_ceil(total);
    j < wanted && j * total / wanted == index
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_scores_all_and_later_ones_what_is_left() {
        let ranges = |length| -> Vec<_> {
            windows(length, 4, 2).into_iter().map(|w| (w.tokens, w.scored)).collect()
        };
        assert_eq!(ranges(4), [(0..4, 1..4)]);
        assert_eq!(ranges(7), [(0..4, 1..4), (2..6, 4..6), (4..7, 6..7)]);
        assert_eq!(ranges(2), [(0..2, 1..2)]);
        assert_eq!(ranges(1), []);
        assert_eq!(windows(9, 4, 4), [], "the later windows' first token has nothing before it");
        assert_eq!(windows(9, 1, 1), []);
        assert_eq!(windows(9, 4, 0), []);
    }

    proptest! {
        #[test]
        fn every_token_is_scored_once(
            length in 2..3000usize,
            context in 2..200usize,
            s in 0..200usize,
        ) {
            let stride = 1 + s % (context - 1);
            let all = windows(length, context, stride);
            let mut next = 1;
            for (index, window) in all.iter().enumerate() {
                prop_assert_eq!(window.tokens.start, index * stride);
                prop_assert!(window.tokens.len() <= context);
                prop_assert_eq!(window.scored.start, next);
                prop_assert!(!window.scored.is_empty());
                prop_assert_eq!(window.scored.end, window.tokens.end);
                prop_assert!(window.scored.start > window.tokens.start);
                if index > 0 {
                    let before = window.scored.start - window.tokens.start;
                    prop_assert!(before >= context - stride);
                }
                next = window.scored.end;
            }
            prop_assert_eq!(next, length);
        }

        #[test]
        fn as_many_are_chosen_as_are_wanted(total in 1..5000usize, wanted in 0..5000usize) {
            let chosen: Vec<usize> =
                (0..total).filter(|&index| is_chosen(index, total, wanted)).collect();
            prop_assert_eq!(chosen.len(), wanted.min(total));
            let gaps: Vec<usize> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let (least, most) = (gaps.iter().min(), gaps.iter().max());
            prop_assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1));
            prop_assert!(!is_chosen(total, total, wanted));
        }
    }
}
