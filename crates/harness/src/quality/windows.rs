//! The windows of a text: which tokens are scored, and with how much context.
//!
//! A window has `context` tokens, and the next one begins `stride` tokens later. The first window
//! scores all its tokens except the text's first, which has no prediction. Every later window
//! scores the tokens that no earlier window scored. Each token is thus scored once; outside the
//! first window it has at least `context - stride` tokens before it.

use std::ops::Range;

/// A part of the text that is fed with an empty cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its tokens.
    pub tokens: Range<usize>,
    /// The scored tokens among them.
    pub scored: Range<usize>,
}

impl Window {
    /// Tokens that are fed, and whose logits are ignored.
    pub fn unscored(&self) -> Range<usize> {
        self.tokens.start..self.scored.start - 1
    }
}

/// The windows of a text of `length` tokens. There are none for fewer than two tokens, or for a
/// context and stride that do not fit ([`fits`]).
pub fn windows(length: usize, context: usize, stride: usize) -> Vec<Window> {
    let mut all: Vec<Window> = Vec::new();
    if length < 2 || !fits(context, stride) {
        return all;
    }
    let mut done = 1;
    for begin in (0..length).step_by(stride) {
        let end = begin.saturating_add(context).min(length);
        all.push(Window { tokens: begin..end, scored: done..end });
        done = end;
        if end == length {
            break;
        }
    }
    all
}

/// The number of windows that [`windows`] returns, without a loop.
pub fn window_count(length: usize, context: usize, stride: usize) -> usize {
    if length < 2 || !fits(context, stride) {
        return 0;
    }
    1 + length.saturating_sub(context).div_ceil(stride)
}

/// Whether every scored token has a token before it in its window, and each window scores one.
pub fn fits(context: usize, stride: usize) -> bool {
    context >= 2 && (1..context).contains(&stride)
}

/// Whether the scored token `index` is one of `wanted` tokens, spread evenly over `total`.
pub fn is_chosen(index: usize, total: usize, wanted: usize) -> bool {
    chosen_before(index, total, wanted) < chosen_before(index.saturating_add(1), total, wanted)
}

/// The number of chosen tokens with an index below `index`.
pub fn chosen_before(index: usize, total: usize, wanted: usize) -> usize {
    if wanted >= total {
        return index.min(total);
    }
    // The `j`-th chosen token is `j * total / wanted`, rounded down. It is below `index` if `j` is
    // below `index * wanted / total`.
    let below = (index as u128 * wanted as u128).div_ceil(total as u128);
    below.min(wanted as u128) as usize
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
        for (length, context, stride) in [(1, 4, 2), (9, 4, 4), (9, 1, 1), (9, 4, 0)] {
            assert_eq!(window_count(length, context, stride), 0);
        }
    }

    #[test]
    fn the_largest_numbers_are_counted_without_a_loop() {
        let most = usize::MAX;
        assert_eq!(window_count(most, 2, 1), most - 1);
        assert_eq!(chosen_before(most, most, most), most);
        assert_eq!(chosen_before(most, most, most - 1), most - 1);
        assert!(!is_chosen(most, most, most - 1));
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
            prop_assert_eq!(all.len(), window_count(length, context, stride));
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
            if wanted < total {
                let placed: Vec<usize> = (0..wanted).map(|j| j * total / wanted).collect();
                prop_assert_eq!(&chosen, &placed);
            }
            for end in [0, total / 3, total, total + 9] {
                let before = chosen.iter().filter(|&&index| index < end).count();
                prop_assert_eq!(chosen_before(end, total, wanted), before);
            }
            let gaps: Vec<usize> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let (least, most) = (gaps.iter().min(), gaps.iter().max());
            prop_assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1));
            prop_assert!(!is_chosen(total, total, wanted));
        }
    }
}
