//! Maps a clock whose rate changes as it runs by the middle of all curves that are possible.
//!
//! An anchor is a pin: the curve must pass between two times there. From a pin on, the clock's
//! slowest and fastest rates limit the curve. All curves within these limits form a tunnel, which
//! is narrow at the pins and wider between them. The result is the middle of the tunnel (piecewise
//! linear, continuous, strictly increasing); half the tunnel's width at a reading is the error
//! bound there.
//!
//! The rates are measured over stretches of many lengths: a clock that slows down for a microsecond
//! does not stay slow for ten. In a gap between pins, a curve deviates most with one extreme rate
//! for half the gap and the other extreme for the other half, so the rates used are those of
//! stretches as long as half the gap. One assumption remains: in a gap, a clock's rate stays within
//! the range that the clocks of this step showed elsewhere, widened by [`MARGIN`].

use super::{AlignError, Clocks, RATE_TOLERANCE, read_variation_ns};
use crate::MAX_TOKEN_NS;

/// Number of lengths of stretches: [`SHORTEST_NS`], and each twice as long as the one before.
const LENGTHS: usize = 10;
/// The shortest stretch. Over shorter ones the shared clock's steps hide the rate.
const SHORTEST_NS: f64 = 1_000.0;
/// The range of rates is assumed to be wider than observed, by this factor about its middle, since
/// the extremes need not have been observed.
const MARGIN: f64 = 1.25;

/// The interval of times between which the curve must pass at one clock reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    pub clock: u64,
    /// Nanoseconds after the base.
    pub low: f64,
    pub high: f64,
}

impl Pin {
    fn middle(&self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

/// How long a tick can last, by the length of the stretch over which it is averaged.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// Shortest and longest tick for each length of stretch, the shortest stretch first.
    limits: [(f64, f64); LENGTHS],
    shortest_ticks: f64,
}

impl Rates {
    /// The widest rates that any clock may have.
    pub fn loose(clocks: Clocks) -> Rates {
        let nominal = 1e9 / clocks.clock_hz as f64;
        let limits = (nominal * (1.0 - RATE_TOLERANCE), nominal * (1.0 + RATE_TOLERANCE));
        Rates { limits: [limits; LENGTHS], shortest_ticks: SHORTEST_NS / nominal }
    }

    /// The rates that all clocks together showed between their anchors. They hold for every clock:
    /// one with few anchors is not assumed to be steadier than the others.
    pub fn seen(clocks: Clocks, tunnels: &[Tunnel]) -> Rates {
        let mut rates = Rates::loose(clocks);
        let mut seen: [Option<(f64, f64)>; LENGTHS] = [None; LENGTHS];
        for tunnel in tunnels {
            for (length, seen) in seen.iter_mut().enumerate() {
                let least = rates.shortest_ticks * (1_u64 << length) as f64;
                *seen = wider(*seen, tunnel.rates_over(least));
            }
        }
        // A rate seen over a long stretch also occurred over some shorter part of it.
        for length in (1..LENGTHS).rev() {
            seen[length - 1] = wider(seen[length - 1], seen[length]);
        }
        let mut before = None;
        for (limits, seen) in rates.limits.iter_mut().zip(seen) {
            // If no stretch is that long, the range of the shorter stretches holds.
            before = seen.or(before);
            if let Some((low, high)) = before {
                // For a steady clock no rate is certain: `low` is then above `high`.
                let (middle, half) =
                    (f64::midpoint(low, high), (high - low).max(0.0) / 2.0 * MARGIN);
                *limits = (limits.0.max(middle - half), limits.1.min(middle + half));
            }
        }
        rates
    }

    /// Shortest and longest tick, averaged over a stretch of this many ticks.
    fn over(&self, ticks: f64) -> (f64, f64) {
        let length = (ticks / self.shortest_ticks).max(1.0).log2() as usize;
        self.limits[length.min(LENGTHS - 1)]
    }

    /// Lowest and highest rate over the shortest stretches.
    pub fn mhz(&self) -> (f64, f64) {
        (1e3 / self.limits[0].1, 1e3 / self.limits[0].0)
    }
}

/// The smallest range that contains both.
fn wider(one: Option<(f64, f64)>, other: Option<(f64, f64)>) -> Option<(f64, f64)> {
    match (one, other) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (one, other) => one.or(other),
    }
}

/// The tunnel of one clock.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    /// In order of their clocks; each is within reach of its neighbours at the rates.
    pins: Vec<Pin>,
    rates: Rates,
    /// Length of a tick on average from the first pin to the last.
    tick_ns: f64,
    /// How much the time between an anchor's two reads was assumed to vary, either way.
    pub read_ns: f64,
}

impl Tunnel {
    /// Makes the tunnel through these pins, which are in order and have at least two different
    /// clock readings. None if no curve passes them all.
    pub(super) fn through(pins: &[Pin], rates: &Rates) -> Option<Tunnel> {
        let read_ns = read_variation_ns(|slack| narrowed(pins, slack, rates).is_some())?;
        let pins = narrowed(pins, read_ns, rates)?;
        let (first, last) = (pins.first()?, pins.last()?);
        let ticks = last.clock.checked_sub(first.clock).filter(|&ticks| ticks > 0)?;
        let (low, high) = rates.limits[LENGTHS - 1];
        let tick_ns = ((last.middle() - first.middle()) / ticks as f64).clamp(low, high);
        Some(Tunnel { pins, rates: rates.clone(), tick_ns, read_ns })
    }

    /// The shared clock at this reading, in nanoseconds after the base, rounded.
    pub fn at(&self, clock: u64) -> Result<i64, AlignError> {
        let (low, high) = match self.place(clock) {
            Place::Before(pin, ticks) => both(pin.middle() - ticks * self.tick_ns),
            Place::After(pin, ticks) => both(pin.middle() + ticks * self.tick_ns),
            Place::Between(one, other) => self.between(one, other, clock),
        };
        let middle = f64::midpoint(low, high);
        if middle.abs() > 2.0 * MAX_TOKEN_NS as f64 {
            return Err(AlignError::FarAway(clock));
        }
        Ok((middle + 0.5).floor() as i64)
    }

    /// The error bound at this reading: how far a curve can be from the middle.
    pub fn error_ns(&self, clock: u64) -> f64 {
        match self.place(clock) {
            Place::Before(pin, ticks) | Place::After(pin, ticks) => {
                let (low, high) = self.rates.over(ticks);
                let off = (self.tick_ns - low).max(high - self.tick_ns);
                (pin.high - pin.low) / 2.0 + ticks * off
            }
            Place::Between(one, other) => {
                let (low, high) = self.between(one, other, clock);
                (high - low) / 2.0
            }
        }
    }

    fn place(&self, clock: u64) -> Place<'_> {
        let (first, last) = (&self.pins[0], &self.pins[self.pins.len() - 1]);
        if clock < first.clock {
            return Place::Before(first, (first.clock - clock) as f64);
        }
        let next = self.pins.partition_point(|pin| pin.clock <= clock);
        match self.pins.get(next) {
            Some(other) => Place::Between(&self.pins[next - 1], other),
            None => Place::After(last, (clock - last.clock) as f64),
        }
    }

    /// Lowest and highest of the curves at a clock between two pins.
    fn between(&self, one: &Pin, other: &Pin, clock: u64) -> (f64, f64) {
        let gap = (other.clock - one.clock) as f64;
        let (since, until) = ((clock - one.clock) as f64, (other.clock - clock) as f64);
        let (shortest, longest) = self.rates.over(gap / 2.0);
        let high = (one.high + since * longest).min(other.high - until * shortest);
        let low = (one.low + since * shortest).max(other.low - until * longest);
        (low, high)
    }

    /// The range that tick lengths certainly had, averaged over stretches of this length to twice
    /// that: the shortest was at most the first value, the longest at least the second. The shared
    /// clock's steps make rates over short stretches uncertain; that uncertainty does not widen the
    /// range.
    fn rates_over(&self, ticks: f64) -> Option<(f64, f64)> {
        let mut next = 0;
        let mut seen = None;
        for one in &self.pins {
            let far = |pin: &Pin| (pin.clock - one.clock) as f64 >= ticks;
            while self.pins.get(next).is_some_and(|pin| pin.clock <= one.clock || !far(pin)) {
                next += 1;
            }
            let Some(other) = self.pins.get(next) else { break };
            let length = (other.clock - one.clock) as f64;
            if length < 2.0 * ticks {
                let most = (other.high - one.low) / length;
                let least = (other.low - one.high) / length;
                seen = wider(seen, Some((most, least)));
            }
        }
        seen
    }
}

/// A reading's place among the pins; before the first and after the last, its distance in ticks.
enum Place<'a> {
    Before(&'a Pin, f64),
    Between(&'a Pin, &'a Pin),
    After(&'a Pin, f64),
}

fn both(value: f64) -> (f64, f64) {
    (value, value)
}

/// Widens the pins by `slack`, then narrows each to the times that a curve can reach from the other
/// pins at these rates. None if no curve passes them all.
pub(super) fn narrowed(pins: &[Pin], slack: f64, rates: &Rates) -> Option<Vec<Pin>> {
    let wide = |pin: &Pin| Pin { low: pin.low - slack, high: pin.high + slack, ..*pin };
    let mut pins: Vec<Pin> = pins.iter().map(wide).collect();
    let gap = |one: &Pin, other: &Pin| {
        let ticks = (other.clock - one.clock) as f64;
        let (shortest, longest) = rates.over(ticks / 2.0);
        (ticks * shortest, ticks * longest)
    };
    for index in 1..pins.len() {
        let before = pins[index - 1];
        let (least, most) = gap(&before, &pins[index]);
        let pin = &mut pins[index];
        pin.high = pin.high.min(before.high + most);
        pin.low = pin.low.max(before.low + least);
        if pin.low > pin.high {
            return None;
        }
    }
    for index in (1..pins.len()).rev() {
        let after = pins[index];
        let (least, most) = gap(&pins[index - 1], &after);
        let pin = &mut pins[index - 1];
        pin.high = pin.high.min(after.high - least);
        pin.low = pin.low.max(after.low - most);
    }
    Some(pins)
}
