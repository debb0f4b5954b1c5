//! Maps a block's own clock to the clock that all blocks share.
//!
//! A block's clock has a fine resolution (half a nanosecond) but its own offset and rate;
//! the shared clock is the same for all blocks but advances in coarse steps. An anchor is one
//! moment read on both clocks: it says `global <= time at clock < global + step`.
//!
//! If straight lines fit the anchors of every block, the clocks tick evenly, and [`line`] gives the
//! time to a few nanoseconds. An H200 under load is different: its power management changes the
//! clock by several percent within microseconds, from phase to phase. Then [`pool`] finds the
//! blocks that run on one clock, and [`tunnel`] takes the middle of all curves that their anchors
//! and the clock's rates allow. The line is kept if its bound is still smaller: for clocks that are
//! even but read inaccurately.
//!
//! The two clocks are not read at the same instant. A constant delay between the two reads shifts
//! all blocks equally; the variation of that delay is bounded by [`READ_NS`] either way. If the
//! anchors contradict this bound, twice the least bound under which they agree is used, and the
//! error bound grows with it.

use crate::MAX_TOKEN_NS;
use line::Line;
use monolith_abi::dump::Anchor;
use std::rc::Rc;
use tunnel::{Pin, Rates, Tunnel};

mod line;
mod pool;
mod tunnel;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wandering;

/// By how much the time between the two reads of an anchor may vary, either way.
pub(crate) const READ_NS: f64 = 2.0;
/// Anchors that need a larger allowance than this are not readings of two clocks.
const READ_MAX_NS: f64 = 10_000.0;
/// A block's clock ticks at the rate it claims, give or take this part of it.
const RATE_TOLERANCE: f64 = 0.5;
/// Rates that a clock of stamps can have, in ticks a second.
const CLOCK_HZ: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;
/// Blocks, and anchors of all of them, that are compared with one another to find those of one
/// clock: several times what any GPU has. With more, lines alone are tried.
const TUNNEL_BLOCKS_MAX: usize = 1024;
const TUNNEL_ANCHORS_MAX: usize = 1 << 17;
/// Allowances are searched to this.
const SEARCH_NS: f64 = 1.0 / 64.0;

/// Why a block's clock could not be mapped to the shared one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum AlignError {
    /// Fewer than two anchors.
    #[error("{0} anchors, but an alignment needs two at least")]
    TooFew(usize),
    /// All anchors at one reading of the block's clock.
    #[error("all anchors are at clock {0}: they tell no rate")]
    OneMoment(u64),
    /// An anchor before the one before it, on either clock.
    #[error("anchor {0} is before the one before it: a clock runs backwards")]
    Backwards(usize),
    /// Anchors further apart than a token can be.
    #[error("the anchors span more than {MAX_TOKEN_NS} ns: that is not one token")]
    TooLong,
    /// A rate that is not near the one claimed.
    #[error(
        "by its anchors a tick lasts {low:.4} to {high:.4} ns, but at {clock_hz} Hz \
         it lasts {nominal:.4} ns"
    )]
    Rate {
        /// Shortest tick that the anchors allow.
        low: f64,
        /// Longest tick that they allow.
        high: f64,
        /// Rate claimed.
        clock_hz: u64,
        /// Its tick.
        nominal: f64,
    },
    /// No line comes near all anchors.
    #[error("the anchors contradict one another by more than {READ_MAX_NS} ns")]
    Contradiction,
    /// A clock rate or a step that no clock has.
    #[error("clock_hz is {clock_hz} and global_step_ns {step_ns}: no clock is like that")]
    NoClock {
        /// Ticks per second.
        clock_hz: u64,
        /// Step of the shared clock.
        step_ns: u64,
    },
    /// A stamp or a copy too far from the anchors.
    #[error("clock {0} is too far from the anchors")]
    FarAway(u64),
}

/// Nominal properties of the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// Ticks a second that the blocks' clocks claim.
    pub clock_hz: u64,
    /// Step of the shared clock.
    pub step_ns: u64,
}

/// A block's input to the alignment.
#[derive(Clone, Debug)]
pub(crate) struct Block<'a> {
    pub anchors: &'a [Anchor],
    /// Every reading of its clock that will be asked for.
    pub readings: Vec<u64>,
}

/// The map from one block's clock to the shared one.
#[derive(Clone, Debug)]
pub(crate) enum Map {
    Line(Line),
    Tunnel(Rc<Tunnel>),
}

impl Map {
    /// The shared clock at this reading of the block's, in nanoseconds after the base, rounded.
    pub fn at(&self, clock: u64) -> Result<i64, AlignError> {
        match self {
            Map::Line(line) => line.at(clock),
            Map::Tunnel(tunnel) => tunnel.at(clock),
        }
    }
}

/// How the clocks of all blocks were aligned.
#[derive(Clone, Debug)]
pub(crate) struct Maps {
    /// By block; none for a block that was left out.
    pub maps: Vec<Option<Map>>,
    /// No true time is further away than this, at the readings the maps were made for.
    pub error_ns: f64,
    pub method: Method,
}

/// The method, for the trace's metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Method {
    /// All blocks read the shared clock itself.
    None,
    /// `read_ns`: by how much the time between an anchor's reads was allowed to vary, either way.
    Lines { read_ns: f64 },
    /// The number of distinct clocks, and their lowest and highest rate in MHz over the shortest
    /// stretches. Half of all times are true to `typical_ns`.
    Tunnels { read_ns: f64, typical_ns: f64, clocks: usize, mhz: (f64, f64) },
}

impl Maps {
    /// Aligns all blocks. Times count from `base_ns`. An error comes with its block's index.
    pub fn fit(
        clocks: Clocks,
        blocks: &[Option<Block<'_>>],
        base_ns: u64,
    ) -> Result<Maps, (usize, AlignError)> {
        let line = |(index, block): (usize, &Option<Block<'_>>)| {
            let fit = |block: &Block<'_>| {
                let mut readings = block.readings.iter().copied();
                let first = readings.next().unwrap_or(0);
                let ends = readings.fold((first, first), |(a, b), at| (a.min(at), b.max(at)));
                Line::fit(clocks, block.anchors, ends, base_ns)
            };
            block.as_ref().map(fit).transpose().map_err(|error| (index, error))
        };
        let lines: Vec<Option<Line>> =
            blocks.iter().enumerate().map(line).collect::<Result<_, _>>()?;
        let largest = |of: fn(&Line) -> f64| lines.iter().flatten().map(of).fold(0.0, f64::max);
        let (error_ns, read_ns) = (largest(|line| line.error_ns), largest(|line| line.read_ns));
        let tunnels = (read_ns > READ_NS).then(|| Maps::tunnels(clocks, blocks, base_ns));
        if let Some(tunnels) = tunnels.flatten().filter(|maps| maps.error_ns < error_ns) {
            return Ok(tunnels);
        }
        let method = if read_ns == 0.0 { Method::None } else { Method::Lines { read_ns } };
        let maps = lines.into_iter().map(|line| line.map(Map::Line)).collect();
        Ok(Maps { maps, error_ns, method })
    }

    /// Aligns all blocks by tunnels, unless one leads nowhere or further than a token.
    fn tunnels(clocks: Clocks, blocks: &[Option<Block<'_>>], base_ns: u64) -> Option<Maps> {
        let anchors: usize = blocks.iter().flatten().map(|block| block.anchors.len()).sum();
        if blocks.len() > TUNNEL_BLOCKS_MAX || anchors > TUNNEL_ANCHORS_MAX {
            return None;
        }
        let pools = pool::pools(clocks, blocks, base_ns);
        let loose = Rates::loose(clocks);
        let pins = |members: &Vec<usize>| {
            let members = members.iter().filter_map(|&block| blocks[block].as_ref());
            pool::pins(members.map(|block| block.anchors), clocks, base_ns)
        };
        let pins: Vec<Vec<Pin>> = pools.iter().map(pins).collect();
        let rough = pins.iter().map(|pins| Tunnel::through(pins, &loose));
        let rates = Rates::seen(clocks, &rough.collect::<Option<Vec<_>>>()?);
        let (mut maps, mut errors_ns, mut read_ns) =
            (vec![None; blocks.len()], Vec::new(), 0.0_f64);
        for (members, pins) in pools.iter().zip(&pins) {
            let tunnel = Rc::new(Tunnel::through(pins, &rates)?);
            read_ns = read_ns.max(tunnel.read_ns);
            for &member in members {
                for &reading in blocks[member].iter().flat_map(|block| &block.readings) {
                    tunnel.at(reading).ok()?;
                    errors_ns.push(tunnel.error_ns(reading));
                }
                maps[member] = Some(Map::Tunnel(Rc::clone(&tunnel)));
            }
        }
        errors_ns.sort_unstable_by(f64::total_cmp);
        let (error_ns, typical_ns) = (*errors_ns.last()?, errors_ns[errors_ns.len() / 2]);
        let (clocks, mhz) = (pools.len(), rates.mhz());
        let method = Method::Tunnels { read_ns, typical_ns, clocks, mhz };
        Some(Maps { maps, error_ns, method })
    }
}

/// By how much reads must be allowed to vary for the anchors to agree: [`READ_NS`], or twice the
/// least that will do.
fn stretched(agree: impl Fn(f64) -> bool) -> Option<f64> {
    if agree(READ_NS) {
        return Some(READ_NS);
    }
    let (mut low, mut high) = (READ_NS, READ_MAX_NS);
    if !agree(high) {
        return None;
    }
    while high - low > SEARCH_NS {
        let middle = f64::midpoint(low, high);
        if agree(middle) { high = middle } else { low = middle }
    }
    Some(2.0 * high)
}
