//! Tests that simulate clocks that tick evenly: their times are recovered within the stated bound.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const HZ: u64 = 1_980_000_000;
const BASE_NS: u64 = 1_700_000_000_000_000_000;

/// A simulated block's clock with a known offset and rate. `truth` is the shared clock without
/// rounding.
#[derive(Clone, Copy, Debug)]
struct TrueClock {
    clock: u64,
    after_base_ns: f64,
    tick_ns: f64,
}

impl TrueClock {
    /// The true shared time of a reading, after the base.
    fn truth(&self, ticks: u64) -> f64 {
        self.after_base_ns + ticks as f64 * self.tick_ns
    }

    fn anchors(&self, reads: &[(u64, f64)], step_ns: u64) -> Vec<Anchor> {
        let mut before = 0;
        let mut anchor = |&(ticks, jitter_ns): &(u64, f64)| {
            let reading = (self.truth(ticks) + jitter_ns) as u64 + BASE_NS;
            before = (reading / step_ns * step_ns).max(before);
            Anchor { clock: self.clock + ticks, global_ns: before }
        };
        reads.iter().map(&mut anchor).collect()
    }

    /// The largest error at these readings.
    fn worst(&self, line: &Line, readings: &[u64]) -> f64 {
        let error =
            |&ticks: &u64| (line.at(self.clock + ticks).unwrap() as f64 - self.truth(ticks)).abs();
        readings.iter().map(error).fold(0.0, f64::max)
    }
}

fn fit(
    clock: &TrueClock,
    reads: &[(u64, f64)],
    step_ns: u64,
    last: u64,
) -> Result<Line, AlignError> {
    let clocks = Clocks { clock_hz: HZ, step_ns };
    let readings = (clock.clock, clock.clock + last);
    Line::fit(clocks, &clock.anchors(reads, step_ns), readings, BASE_NS)
}

/// A clock with any offset, and a rate up to 40 % from the nominal one.
fn true_clock() -> impl Strategy<Value = TrueClock> {
    (0..1_u64 << 63, 1e3..1e6_f64, 0.6..1.4_f64).prop_map(|(clock, after_base_ns, rate)| {
        TrueClock { clock, after_base_ns, tick_ns: 1e9 / HZ as f64 * rate }
    })
}

/// Moments at which both clocks are read, over about 600 us, and the time between the two reads.
fn reads(jitter_ns: f64) -> impl Strategy<Value = Vec<(u64, f64)>> {
    let jitter = -jitter_ns..=jitter_ns;
    prop::collection::btree_map(0..1_200_000_u64, jitter, 2..200)
        .prop_map(|reads| reads.into_iter().collect())
}

proptest! {
    #[test]
    fn every_reading_is_within_the_bound(
        clock in true_clock(),
        reads in reads(READ_NS),
        step_ns in prop::sample::select(vec![1_u64, 32, 64, 1024]),
        readings in prop::collection::vec(0..1_500_000_u64, 1..40),
    ) {
        let last = readings.iter().copied().max().unwrap();
        match fit(&clock, &reads, step_ns, last) {
            Ok(line) => {
                let worst = clock.worst(&line, &readings);
                prop_assert!(worst <= line.error_ns + 0.51, "{worst} > {}", line.error_ns);
            }
            // The jitter of reads that are close together can imply an impossible rate.
            Err(error) => prop_assert!(matches!(error, AlignError::FarAway(_)), "{error}"),
        }
    }

    #[test]
    fn later_readings_are_never_earlier(
        clock in true_clock(),
        reads in reads(20.0),
        mut readings in prop::collection::vec(0..1_500_000_u64, 2..40),
    ) {
        readings.sort_unstable();
        let line = fit(&clock, &reads, 64, readings[readings.len() - 1]);
        if let Ok(line) = line {
            let times: Vec<i64> =
                readings.iter().map(|ticks| line.at(clock.clock + ticks).unwrap()).collect();
            prop_assert!(times.is_sorted());
        }
    }

    #[test]
    fn many_anchors_make_a_small_bound(
        clock in true_clock(),
        reads in prop::collection::btree_set(1..1_199_999_u64, 198),
        step_ns in prop::sample::select(vec![32_u64, 64]),
    ) {
        let mut reads: Vec<(u64, f64)> = reads.into_iter().map(|ticks| (ticks, 0.0)).collect();
        reads.insert(0, (0, 0.0));
        reads.push((1_200_000, 0.0));
        let line = fit(&clock, &reads, step_ns, 1_200_000).unwrap();
        prop_assert!(line.error_ns < 15.0, "{}", line.error_ns);
        prop_assert!(clock.worst(&line, &[0, 600_000, 1_200_000]) <= line.error_ns + 0.51);
    }
}

/// Pseudo-random numbers from 0 to 1, the same in every run.
fn random() -> impl FnMut() -> f64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f64 / (1_u64 << 24) as f64
    }
}

#[test]
fn reads_that_vary_more_than_assumed_widen_the_bound() {
    let mut random = random();
    let mut jitter_ns = || random() * 60.0 - 30.0;
    for rate in 0..50 {
        let tick_ns = 0.4 + 0.005 * f64::from(rate);
        let clock = TrueClock { clock: 1 << 62, after_base_ns: 5e3, tick_ns };
        let reads: Vec<(u64, f64)> = (0..300).map(|at| (at * 4_003, jitter_ns())).collect();
        let line = fit(&clock, &reads, 64, 1_200_000).unwrap();
        assert!(line.error_ns > 20.0 && line.error_ns < 65.0, "{}", line.error_ns);
        let worst = clock.worst(&line, &[0, 300_000, 600_000, 900_000, 1_200_000]);
        assert!(worst <= line.error_ns + 0.51, "{worst} > {}", line.error_ns);
    }
}

#[test]
fn two_hundred_anchors_make_a_small_bound_whatever_the_step() {
    let mut random = random();
    for (step_ns, least, most) in [(1, 2.0, 3.0), (64, 2.0, 10.0), (1024, 2.0, 100.0)] {
        for rate in 0..50 {
            let tick_ns = 0.4 + 0.005 * f64::from(rate);
            let clock = TrueClock { clock: 7, after_base_ns: 5e3, tick_ns };
            // Irregular times: regular ones could stay in phase with the shared clock's steps.
            let mut read = |at: u64| (at * 6_007 + (random() * 5e3) as u64, 0.0);
            let reads: Vec<(u64, f64)> = (0..200).map(&mut read).collect();
            let line = fit(&clock, &reads, step_ns, 199 * 6_007).unwrap();
            assert!(line.error_ns > least && line.error_ns < most, "{step_ns}: {line:?}");
            let worst = clock.worst(&line, &[0, 600_000, 199 * 6_007]);
            assert!(worst <= line.error_ns + 0.51, "{worst} > {}", line.error_ns);
        }
    }
}

#[test]
fn two_anchors_are_enough_and_their_bound_holds() {
    let clock = TrueClock { clock: u64::MAX / 2, after_base_ns: 9e5, tick_ns: 0.505 };
    let line = fit(&clock, &[(0, 0.0), (1_200_000, 0.0)], 64, 1_200_000).unwrap();
    assert_eq!(line.error_ns, 34.0);
    assert!(clock.worst(&line, &[0, 600_000, 1_200_000]) <= 34.5);
}

#[test]
fn the_shared_clock_itself_is_left_as_it_is() {
    let clocks = Clocks { clock_hz: 1_000_000_000, step_ns: 1 };
    let anchors = [3_000_000_017, 3_000_900_000].map(|at| Anchor { clock: at, global_ns: at });
    let line = Line::fit(clocks, &anchors, (3_000_000_017, 3_000_900_000), 3_000_000_000).unwrap();
    assert_eq!(line.error_ns, 0.5);
    for at in (17..900_000).step_by(7) {
        assert_eq!(line.at(3_000_000_000 + at).unwrap(), at as i64);
    }
}

#[test]
fn what_cannot_be_aligned() {
    let anchor = |(clock, global_ns)| Anchor { clock, global_ns };
    let refusal = |clock_hz, step_ns, anchors: &[(u64, u64)], last| {
        let anchors: Vec<Anchor> = anchors.iter().copied().map(anchor).collect();
        let base_ns = anchors.first().map_or(0, |anchor| anchor.global_ns);
        let fit = Line::fit(Clocks { clock_hz, step_ns }, &anchors, (0, last), base_ns);
        fit.unwrap_err().to_string()
    };
    let good = [(0, 64), (2_000_000, 1_000_064)];
    assert_eq!(refusal(HZ, 64, &[], 9), "0 anchors, but alignment needs at least two");
    assert_eq!(refusal(HZ, 64, &good[..1], 9), "1 anchors, but alignment needs at least two");
    assert_eq!(
        refusal(HZ, 64, &[(5, 64), (5, 128)], 9),
        "all anchors are at clock 5, which leaves its rate unknown"
    );
    let backwards = "anchor 1 is earlier than the previous one: a clock runs backwards";
    assert_eq!(refusal(HZ, 64, &[(9, 64), (5, 128)], 9), backwards);
    assert_eq!(refusal(HZ, 64, &[(5, 128), (9, 64)], 9), backwards);
    assert_eq!(
        refusal(HZ, 64, &[(0, 0), (2_000_000, 4_000_000)], 9),
        "according to its anchors a tick lasts 2.0000 to 2.0000 ns, but at 1980000000 Hz it lasts \
         0.5051 ns"
    );
    assert!(
        refusal(HZ, 64, &[(0, 0), (2_000_000, 64)], 9)
            .starts_with("according to its anchors a tick")
    );
    assert_eq!(
        refusal(HZ, 64, &[(0, 0), (1_000_000, 900_000), (2_000_000, 1_000_000)], 9),
        "the anchors contradict one another by more than 10000 ns"
    );
    let far = [(0, 0), (u64::MAX, MAX_TOKEN_NS + 1)];
    assert!(refusal(HZ, 64, &far, 9).starts_with("the anchors span more than"));
    assert_eq!(
        refusal(HZ, 64, &good, u64::MAX),
        "clock 18446744073709551615 is too far from the anchors"
    );
    assert!(refusal(0, 64, &good, 9).ends_with("no clock has these values"));
    assert!(refusal(HZ, 0, &good, 9).ends_with("no clock has these values"));
}
