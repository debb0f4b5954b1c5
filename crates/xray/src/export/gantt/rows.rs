//! What each pixel of a block's row shows.

use super::palette::Shade;
use crate::Span;

/// The part of the token that is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

impl Window {
    /// The position of a time in pixels from 0 to `width`; times outside the window are at its
    /// edges.
    fn pixel(&self, at_ns: u64, width: u32) -> f64 {
        let after_ns = at_ns.clamp(self.begin_ns, self.end_ns) - self.begin_ns;
        after_ns as f64 * f64::from(width) / (self.end_ns - self.begin_ns) as f64
    }
}

/// Returns for each pixel the shade that takes most of its time; none if time without a span takes
/// more. Painting the spans one over another would show only the last of the many in a pixel.
pub(super) fn row(spans: &[Span], window: Window, width: u32) -> Vec<Option<Shade>> {
    let mut shares = vec![[0.0_f64; Shade::COUNT]; width as usize];
    for span in spans {
        let begin = window.pixel(span.begin_ns, width);
        let end = window.pixel(span.end_ns, width);
        let shade = Shade::of(span).index();
        let pixels = shares.iter_mut().enumerate().skip(begin as usize);
        for (pixel, shares) in pixels.take_while(|&(pixel, _)| (pixel as f64) < end) {
            let left = begin.max(pixel as f64);
            shares[shade] += end.min(pixel as f64 + 1.0) - left;
        }
    }
    shares.iter().map(largest).collect()
}

fn largest(shares: &[f64; Shade::COUNT]) -> Option<Shade> {
    let (mut best, mut most) = (None, 1.0 - shares.iter().sum::<f64>());
    for (index, &share) in shares.iter().enumerate() {
        if share > 0.0 && share >= most {
            (best, most) = (Some(index), share);
        }
    }
    best.map(Shade::from_index)
}
