//! Which blocks share one clock.
//!
//! The SMs of a cluster of an H200 read the same counter, to a few ticks: their anchors constrain
//! one curve, and many anchors constrain it well. This is tested, never assumed: two clocks are one
//! if one curve passes the anchors of both, and no curve would if one of them were early or late by
//! some steps of the shared clock.

use super::tunnel::{Pin, Rates, narrowed};
use super::{Block, Clocks, READ_NS};
use monolith_abi::dump::Anchor;

/// Clocks that started further apart than this are not compared: a wandering clock looks at first
/// as if it had started up to this much earlier or later.
const NEAR_NS: f64 = 3_000.0;
/// How much wider than a step anchors are taken to be, in steps, when clocks are compared: a shared
/// clock may move by more than its step at once. This loses nothing: if the anchors of one clock
/// disagree, its tunnel allows for that.
const STEPS: f64 = 2.0;

/// Blocks that share one clock.
struct Pool {
    /// First and last of their clocks at the base.
    starts: (i128, i128),
    members: Vec<usize>,
    pins: Vec<Pin>,
}

/// The blocks of each clock.
pub(super) fn pools(clocks: Clocks, blocks: &[Option<Block<'_>>], base_ns: u64) -> Vec<Vec<usize>> {
    let start = |(index, block): (usize, &Option<Block<'_>>)| {
        block.as_ref().map(|block| (start(clocks, block.anchors, base_ns), index))
    };
    let mut starts: Vec<(i128, usize)> = blocks.iter().enumerate().filter_map(start).collect();
    starts.sort_unstable();
    let near = (NEAR_NS * clocks.clock_hz as f64 / 1e9) as i128;
    let mut pools: Vec<Pool> = Vec::new();
    for (start, index) in starts {
        let anchors = blocks[index].as_ref().map(|block| block.anchors);
        let pins = pins(anchors.into_iter(), clocks, base_ns);
        join(&mut pools, Pool { starts: (start, start), members: vec![index], pins }, near, clocks);
    }
    // Two blocks may have too few anchors for a comparison; many have more. So the smallest pools
    // are compared again with what the others have become.
    pools.sort_by_key(|pool| pool.members.len());
    for _ in 0..pools.len() {
        let pool = pools.remove(0);
        join(&mut pools, pool, near, clocks);
    }
    pools.into_iter().map(|pool| pool.members).collect()
}

/// Adds a pool to one that is the same clock, or else to the pools.
fn join(pools: &mut Vec<Pool>, pool: Pool, near: i128, clocks: Clocks) {
    let is_near = |other: &Pool| {
        other.starts.0 - pool.starts.1 <= near && pool.starts.0 - other.starts.1 <= near
    };
    let mut others = pools.iter_mut().rev();
    match others.find(|other| is_near(other) && are_one(clocks, &other.pins, &pool.pins)) {
        Some(other) => {
            other.starts.0 = other.starts.0.min(pool.starts.0);
            other.starts.1 = other.starts.1.max(pool.starts.1);
            other.members.extend(pool.members);
            other.pins = merged(&other.pins, &pool.pins, 0.0);
        }
        None => pools.push(pool),
    }
}

/// The pins of anchors, in order of their clocks.
pub(super) fn pins<'a>(
    anchors: impl Iterator<Item = &'a [Anchor]>,
    clocks: Clocks,
    base_ns: u64,
) -> Vec<Pin> {
    let pin = |anchor: &Anchor| {
        let low = (i128::from(anchor.global_ns) - i128::from(base_ns)) as f64;
        Pin { clock: anchor.clock, low, high: low + clocks.step_ns as f64 }
    };
    let mut pins: Vec<Pin> = anchors.flatten().map(pin).collect();
    pins.sort_by_key(|pin| pin.clock);
    pins
}

/// The clock at the base, as the block's own anchors tell.
fn start(clocks: Clocks, anchors: &[Anchor], base_ns: u64) -> i128 {
    let [first, .., last] = anchors else { return 0 };
    let rise_ns = last.global_ns.saturating_sub(first.global_ns);
    let ticks = last.clock.saturating_sub(first.clock);
    let nominal = clocks.clock_hz as f64 / 1e9;
    let rate = if rise_ns > 0 { ticks as f64 / rise_ns as f64 } else { nominal };
    let since_ns = i128::from(first.global_ns) - i128::from(base_ns);
    i128::from(first.clock) - (since_ns as f64 * rate) as i128
}

/// Whether two clocks are one.
fn are_one(clocks: Clocks, one: &[Pin], other: &[Pin]) -> bool {
    let (rates, slack) = (Rates::loose(clocks), STEPS * clocks.step_ns as f64 + READ_NS);
    let fits = |late_ns| narrowed(&merged(one, other, late_ns), slack, &rates).is_some();
    let apart_ns = 2.0 * (clocks.step_ns as f64 + 2.0 * slack);
    fits(0.0) && !fits(apart_ns) && !fits(-apart_ns)
}

/// Both in order of their clocks, the other ones later by so much.
fn merged(one: &[Pin], other: &[Pin], late_ns: f64) -> Vec<Pin> {
    let late = |pin: &Pin| Pin { low: pin.low + late_ns, high: pin.high + late_ns, ..*pin };
    let mut all: Vec<Pin> = one.iter().copied().chain(other.iter().map(late)).collect();
    all.sort_by_key(|pin| pin.clock);
    all
}
