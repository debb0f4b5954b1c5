//! The time of a hand-off while weights stream.

use serde::{Deserialize, Serialize};

/// Times of a hand-off by the rate of a stream of weights beside it, interpolated. Beyond the last
/// measured rate the last time holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<(f64, f64)>", try_from = "Vec<(f64, f64)>")]
pub struct HandOff(Vec<(f64, f64)>);

impl From<HandOff> for Vec<(f64, f64)> {
    fn from(of: HandOff) -> Vec<(f64, f64)> {
        of.0
    }
}

impl TryFrom<Vec<(f64, f64)>> for HandOff {
    type Error = String;

    fn try_from(points: Vec<(f64, f64)>) -> Result<HandOff, String> {
        let fit = points
            .iter()
            .all(|(load, ns)| load.is_finite() && ns.is_finite() && *load >= 0.0 && *ns > 0.0);
        let rise = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        if fit && rise && points.first().is_some_and(|(load, _)| *load == 0.0) {
            return Ok(HandOff(points));
        }
        Err("the hand-off needs pairs [TB/s, ns] that begin at 0 TB/s and rise".into())
    }
}

impl HandOff {
    /// Nanoseconds of a hand-off beside a stream of so many TB/s.
    pub fn ns(&self, tb_s: f64) -> f64 {
        let last = self.0.last().map_or(0.0, |(_, ns)| *ns);
        let between = self.0.windows(2).find(|pair| tb_s <= pair[1].0);
        between.map_or(last, |pair| {
            let ((from, least), (to, most)) = (pair[0], pair[1]);
            least + (most - least) * (tb_s - from).max(0.0) / (to - from)
        })
    }

    /// The same curve on a GPU with another bandwidth and clock: a stream takes the same share of
    /// the bandwidth, and a time the same number of clocks.
    #[must_use]
    pub fn scaled(&self, bandwidth: f64, time: f64) -> HandOff {
        HandOff(self.0.iter().map(|(load, ns)| (load * bandwidth, ns * time)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve() -> HandOff {
        HandOff::try_from(vec![(0.0, 683.0), (2.0, 1050.0), (4.1, 2330.0)]).unwrap()
    }

    #[test]
    fn it_is_interpolated_and_ends_flat() {
        let curve = curve();
        assert_eq!(
            [0.0, 2.0, 4.1, 9.0].map(|load| curve.ns(load)),
            [683.0, 1050.0, 2330.0, 2330.0]
        );
        assert!((curve.ns(1.0) - 866.5).abs() < 1e-9);
        let scaled = curve.scaled(0.5, 2.0);
        assert!((scaled.ns(0.5) - 2.0 * 866.5).abs() < 1e-9);
    }

    #[test]
    fn a_curve_that_falls_or_begins_late_is_refused() {
        for points in [
            vec![],
            vec![(1.0, 683.0)],
            vec![(0.0, 683.0), (0.0, 700.0)],
            vec![(0.0, 683.0), (1.0, 600.0)],
            vec![(0.0, f64::NAN)],
        ] {
            assert!(HandOff::try_from(points).is_err());
        }
    }

    proptest! {
        #[test]
        fn it_never_falls_with_the_load(a in 0.0..6.0f64, b in 0.0..6.0f64) {
            let (less, more) = (a.min(b), a.max(b));
            prop_assert!(curve().ns(less) <= curve().ns(more));
        }
    }
}
