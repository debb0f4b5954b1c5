//! Maps a block's own clock to the clock that all blocks share.
//!
//! A block's clock (`clock64` on a GPU) has a fine resolution, half a nanosecond, but its own
//! offset and rate. The shared clock (`%globaltimer`) is the same for all blocks but advances in
//! coarse steps. An anchor is one moment read on both clocks. It says that
//! `global <= time at clock < global + step`.
//!
//! If straight lines fit the anchors of every block, the clocks tick evenly, and [`line`] gives the
//! time to a few nanoseconds. An H200 under load is different: its power management changes the
//! clock by several percent within microseconds, from phase to phase. Then [`pool`] finds the
//! blocks that share a clock, and [`tunnel`] takes the middle of all curves that their anchors
//! and the clock's rates allow. The lines are kept if their error bound is smaller all the same,
//! which happens if the clocks tick evenly but are read inaccurately.
//!
//! The two clocks are not read at the same instant. A constant delay between the two reads shifts
//! all blocks equally; its variation is assumed to be at most [`READ_NS`] either way. If the
//! anchors contradict this assumption, twice the smallest variation under which they agree is
//! assumed, and the error bound grows with it.

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

/// How much the time between the two reads of an anchor is assumed to vary, either way.
pub(crate) const READ_NS: f64 = 2.0;
/// Largest variation that can be assumed: anchors that need more do not come from two clocks.
const READ_MAX_NS: f64 = 10_000.0;
/// How far a block's clock may be from its nominal rate, as a part of that rate.
const RATE_TOLERANCE: f64 = 0.5;
/// Nominal rates that are accepted for a block's clock, in ticks a second.
const CLOCK_HZ: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;
/// Most blocks, and most anchors of all blocks, that are compared to find the blocks that share a
/// clock: several times what any GPU has. With more, only lines are tried.
const TUNNEL_BLOCKS_MAX: usize = 1024;
const TUNNEL_ANCHORS_MAX: usize = 1 << 17;
/// Precision to which the smallest variation is searched.
const SEARCH_NS: f64 = 1.0 / 64.0;

/// Why a block's clock could not be mapped to the shared one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum AlignError {
    /// Fewer than two anchors.
    #[error("{0} anchors, but alignment needs at least two")]
    TooFew(usize),
    /// All anchors have the same reading of the block's clock.
    #[error("all anchors are at clock {0}, which leaves its rate unknown")]
    OneMoment(u64),
    /// An anchor is earlier than the previous one, on either clock.
    #[error("anchor {0} is earlier than the previous one: a clock runs backwards")]
    Backwards(usize),
    /// The anchors are further apart than the longest token.
    #[error("the anchors span more than {MAX_TOKEN_NS} ns: that is not one token")]
    TooLong,
    /// The measured rate is far from the nominal one.
    #[error(
        "according to its anchors a tick lasts {low:.4} to {high:.4} ns, but at {clock_hz} Hz \
         it lasts {nominal:.4} ns"
    )]
    Rate {
        /// Shortest tick that the anchors allow.
        low: f64,
        /// Longest tick that they allow.
        high: f64,
        /// Nominal rate.
        clock_hz: u64,
        /// Length of its tick.
        nominal: f64,
    },
    /// No straight line passes near all anchors.
    #[error("the anchors contradict one another by more than {READ_MAX_NS} ns")]
    Contradiction,
    /// A rate or a step that no real clock has.
    #[error("clock_hz is {clock_hz} and global_step_ns is {step_ns}: no clock has these values")]
    NoClock {
        /// Ticks per second.
        clock_hz: u64,
        /// Step of the shared clock.
        step_ns: u64,
    },
    /// A stamp or a copy is too far from the anchors.
    #[error("clock {0} is too far from the anchors")]
    FarAway(u64),
}

/// Nominal properties of the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// Nominal rate of the blocks' clocks, in ticks a second.
    pub clock_hz: u64,
    /// Step of the shared clock.
    pub step_ns: u64,
}

/// A block's input to the alignment.
#[derive(Clone, Debug)]
pub(crate) struct Block<'a> {
    pub anchors: &'a [Anchor],
    /// Every reading of its clock that will be converted.
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
    /// One map for each block; none for a block without stamps and copies.
    pub maps: Vec<Option<Map>>,
    /// Error bound: the largest, over the readings that the maps were made for.
    pub error_ns: f64,
    pub method: Method,
}

/// How the clocks were aligned, for the trace's metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Method {
    /// All blocks read the shared clock itself.
    None,
    /// By straight lines. `read_ns`: how much the time between an anchor's two reads was assumed to
    /// vary, either way.
    Lines { read_ns: f64 },
    /// By tunnels. `clocks`: the number of distinct clocks. `mhz`: their lowest and highest rate
    /// over the shortest stretches. `typical_ns`: the median error bound.
    Tunnels { read_ns: f64, typical_ns: f64, clocks: usize, mhz: (f64, f64) },
}

impl Maps {
    /// Aligns all blocks. Times count from `base_ns`. An error comes with the index of its block.
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

    /// Aligns all blocks by tunnels. None if the anchors of a clock contradict one another, or if a
    /// reading is too far from them.
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

/// How much reads are assumed to vary: [`READ_NS`] if the anchors agree under it, otherwise twice
/// the smallest variation under which they agree. None if they never agree.
fn read_variation_ns(agree: impl Fn(f64) -> bool) -> Option<f64> {
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
