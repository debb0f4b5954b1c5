//! Maps a clock that ticks evenly by a straight line.
//!
//! The lines that all anchors of a block allow are a convex set (Moon, Skelly and Towsley,
//! "Estimation and removal of clock skew from network delay measurements", INFOCOM 1999, bound a
//! clock from one side by the same means). At any clock reading they span a range of times. The
//! upper end of that range is convex in the clock and the lower end concave, so the range is widest
//! at the first or the last reading that matters. The result is the line through the middle of the
//! range at those two. The error bound is half the width of the wider one: no allowed line is
//! further away, and the true line is one of them.

use super::{AlignError, CLOCK_HZ, Clocks, RATE_TOLERANCE, READ_NS, read_variation_ns};
use crate::MAX_TOKEN_NS;
use monolith_abi::dump::Anchor;

/// The line from one block's clock to the shared one.
///
/// Times count from `base_ns` on the shared clock, and clocks from the first anchor's. Large
/// numbers are subtracted as integers, so that a clock near 2^63 loses no precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    chord: Chord,
    /// What the line adds to the chord at the first and at the last anchor.
    add_ns: (f64, f64),
    /// Error bound at the readings that the line was made for.
    pub error_ns: f64,
    /// How much the time between an anchor's two reads was assumed to vary, either way.
    pub read_ns: f64,
}

/// The straight line from the first anchor to the last, exact.
#[derive(Clone, Copy, Debug)]
struct Chord {
    clock: u64,
    ticks: u64,
    from_ns: i128,
    rise_ns: u64,
}

/// The allowed lines, as a convex polygon: what each line adds to the chord at the first and at the
/// last anchor.
type Polygon = Vec<(f64, f64)>;

impl Line {
    /// Fits the line of one block. `readings` are the first and the last reading to be converted.
    pub fn fit(
        clocks: Clocks,
        anchors: &[Anchor],
        readings: (u64, u64),
        base_ns: u64,
    ) -> Result<Line, AlignError> {
        let Clocks { clock_hz, step_ns } = clocks;
        if !CLOCK_HZ.contains(&clock_hz) || !(1..=MAX_TOKEN_NS).contains(&step_ns) {
            return Err(AlignError::NoClock { clock_hz, step_ns });
        }
        let chord = Chord::of(anchors, base_ns)?;
        if is_shared(clock_hz, anchors) {
            let line =
                Line { chord, add_ns: (0.0, 0.0), error_ns: step_ns as f64 / 2.0, read_ns: 0.0 };
            return line.reaching(readings);
        }
        let (allowed, read_ns) = allowed(clocks, &chord, anchors)?;
        let (at_first, at_last) = (chord.share(readings.0), chord.share(readings.1));
        let (first, last) = (range(&allowed, at_first), range(&allowed, at_last));
        let middle = |(low, high): (f64, f64)| (low + high) / 2.0;
        let half = |(low, high): (f64, f64)| (high - low) / 2.0;
        let (a, b) = (middle(first), middle(last));
        // With one reading only the height is known: the line is then parallel to the chord.
        let width = at_last - at_first;
        let slope = if width > 0.0 { (b - a) / width } else { 0.0 };
        let start = a - slope * at_first;
        let error_ns = half(first).max(half(last));
        let line = Line { chord, add_ns: (start, start + slope), error_ns, read_ns };
        line.reaching(readings)
    }

    /// Returns the line, unless the readings are too far from the anchors.
    fn reaching(self, readings: (u64, u64)) -> Result<Line, AlignError> {
        self.at(readings.0)?;
        self.at(readings.1)?;
        Ok(self)
    }

    /// The shared clock at this reading of the block's, in nanoseconds after the base, rounded.
    pub fn at(&self, clock: u64) -> Result<i64, AlignError> {
        let (whole, part) = self.chord.at(clock);
        let share = self.chord.share(clock);
        let add = self.add_ns.0 * (1.0 - share) + self.add_ns.1 * share + part;
        let far = AlignError::FarAway(clock);
        let limit = 2 * MAX_TOKEN_NS as i64;
        let whole = i64::try_from(whole).map_err(|_| far)?;
        if whole.abs() > limit || add.abs() > limit as f64 {
            return Err(far);
        }
        Ok(whole + (add + 0.5).floor() as i64)
    }
}

impl Chord {
    fn of(anchors: &[Anchor], base_ns: u64) -> Result<Chord, AlignError> {
        let [first, .., last] = anchors else { return Err(AlignError::TooFew(anchors.len())) };
        let backwards = anchors.windows(2).position(|pair| {
            pair[1].clock < pair[0].clock || pair[1].global_ns < pair[0].global_ns
        });
        if let Some(index) = backwards {
            return Err(AlignError::Backwards(index + 1));
        }
        let ticks = last.clock - first.clock;
        if ticks == 0 {
            return Err(AlignError::OneMoment(first.clock));
        }
        let rise_ns = last.global_ns - first.global_ns;
        let from_ns = i128::from(first.global_ns) - i128::from(base_ns);
        if rise_ns > MAX_TOKEN_NS || from_ns.unsigned_abs() > u128::from(MAX_TOKEN_NS) {
            return Err(AlignError::TooLong);
        }
        Ok(Chord { clock: first.clock, ticks, from_ns, rise_ns })
    }

    /// The chord at a clock: whole nanoseconds after the base, and the fraction that remains.
    fn at(&self, clock: u64) -> (i128, f64) {
        let ticks = i128::from(clock) - i128::from(self.clock);
        let (rise, all) = (ticks * i128::from(self.rise_ns), i128::from(self.ticks));
        let part = rise.rem_euclid(all) as f64 / self.ticks as f64;
        (self.from_ns + rise.div_euclid(all), part)
    }

    /// How far along the chord a clock is: 0 at the first anchor, 1 at the last.
    fn share(&self, clock: u64) -> f64 {
        let ticks = i128::from(clock) - i128::from(self.clock);
        ticks as f64 / self.ticks as f64
    }

    /// An anchor's height over the chord.
    fn height(&self, anchor: &Anchor, base_ns_of_first: u64) -> f64 {
        let (whole, part) = self.at(anchor.clock);
        let global = i128::from(anchor.global_ns) - i128::from(base_ns_of_first) + self.from_ns;
        (global - whole) as f64 - part
    }
}

/// Returns whether the block's clock is the shared one, as on a CPU: then each anchor is one
/// reading, and nothing needs aligning. Rounding to steps shifts the times of all blocks alike.
fn is_shared(clock_hz: u64, anchors: &[Anchor]) -> bool {
    clock_hz == 1_000_000_000 && anchors.iter().all(|anchor| anchor.clock == anchor.global_ns)
}

/// Returns the lines that the anchors allow, and the assumed variation of the time between reads.
fn allowed(
    clocks: Clocks,
    chord: &Chord,
    anchors: &[Anchor],
) -> Result<(Polygon, f64), AlignError> {
    let step = clocks.step_ns as f64;
    let first_ns = anchors[0].global_ns;
    let points: Vec<(f64, f64)> =
        anchors.iter().map(|at| (chord.share(at.clock), chord.height(at, first_ns))).collect();
    let rate = rate_limits(clocks, chord, step + 2.0 * READ_NS)?;
    let lines = |slack: f64| lines_within(&points, step, slack, rate);
    let agree = |slack: f64| !lines(slack).is_empty();
    let read_ns = read_variation_ns(agree).ok_or(AlignError::Contradiction)?;
    Ok((lines(read_ns), read_ns))
}

/// Limits of how much more than the chord a line may rise from the first anchor to the last.
fn rate_limits(clocks: Clocks, chord: &Chord, loose_ns: f64) -> Result<(f64, f64), AlignError> {
    let (ticks, rise) = (chord.ticks as f64, chord.rise_ns as f64);
    let nominal = 1e9 / clocks.clock_hz as f64;
    let limits = (nominal * (1.0 - RATE_TOLERANCE), nominal * (1.0 + RATE_TOLERANCE));
    let (low, high) = ((rise - loose_ns) / ticks, (rise + loose_ns) / ticks);
    if high < limits.0 || low > limits.1 {
        let clock_hz = clocks.clock_hz;
        return Err(AlignError::Rate { low: low.max(0.0), high, clock_hz, nominal });
    }
    Ok((limits.0 * ticks - rise, limits.1 * ticks - rise))
}

/// The lines that pass no more than `slack` below each point, and no more than `step + slack` above
/// it, and rise within the limits.
fn lines_within(points: &[(f64, f64)], step: f64, slack: f64, rate: (f64, f64)) -> Polygon {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let sides = |height: f64| (height - slack, height + step + slack);
    let ((left, right), (bottom, top)) = (sides(first.1), sides(last.1));
    let mut polygon = vec![(left, bottom), (right, bottom), (right, top), (left, top)];
    polygon = clip(&polygon, |(u, v)| v - u - rate.0);
    polygon = clip(&polygon, |(u, v)| rate.1 - (v - u));
    for &(share, height) in points {
        let (low, high) = sides(height);
        polygon = clip(&polygon, |(u, v)| u * (1.0 - share) + v * share - low);
        polygon = clip(&polygon, |(u, v)| high - (u * (1.0 - share) + v * share));
    }
    polygon
}

/// The part of a convex polygon where a linear function is not negative.
fn clip(polygon: &[(f64, f64)], over: impl Fn((f64, f64)) -> f64) -> Polygon {
    let mut kept = Vec::with_capacity(polygon.len() + 1);
    for (index, &here) in polygon.iter().enumerate() {
        let next = polygon[(index + 1) % polygon.len()];
        let (at_here, at_next) = (over(here), over(next));
        if at_here >= 0.0 {
            kept.push(here);
        }
        if (at_here > 0.0 && at_next < 0.0) || (at_here < 0.0 && at_next > 0.0) {
            let part = at_here / (at_here - at_next);
            kept.push((here.0 + part * (next.0 - here.0), here.1 + part * (next.1 - here.1)));
        }
    }
    kept
}

/// The lowest and the highest of the lines at this share of the chord.
fn range(polygon: &Polygon, share: f64) -> (f64, f64) {
    let values = polygon.iter().map(|&(u, v)| u * (1.0 - share) + v * share);
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}
