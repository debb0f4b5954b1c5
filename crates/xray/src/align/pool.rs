//! Finds the clock domains: which blocks share one clock.
//!
//! The SMs of one GPC (graphics processing cluster) of an H200 read the same counter, to a few
//! ticks. So the anchors of all of them constrain one curve, and many anchors constrain it well.
//! That blocks share a clock is tested and never assumed: one curve must pass the anchors of both,
//! and no curve may do so if one of them is shifted by some steps of the shared clock. A pool is a
//! set of blocks for which this holds, with all their anchors.

use super::tunnel::{Pin, Rates, narrowed};
use super::{Block, Clocks, READ_NS};
use monolith_abi::dump::Anchor;

/// Pools are compared only if their clocks, extrapolated to the base time, are this close. A clock
/// whose rate changes makes the extrapolation wrong by up to this much.
const NEAR_NS: f64 = 3_000.0;
/// By how many steps of the shared clock anchors are widened when clocks are compared, since the
/// shared clock may advance by more than one step at once. The result stays exact: if the anchors
/// of one clock disagree, its tunnel allows for that.
const STEPS: f64 = 2.0;

/// Blocks that were found to share one clock.
struct Pool {
    /// Smallest and largest of their clock readings at the base time.
    starts: (i128, i128),
    members: Vec<usize>,
    pins: Vec<Pin>,
}

/// Returns the blocks of each clock.
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
    // Two single blocks may have too few anchors for a comparison, but a large pool has many. So
    // the smallest pools are compared once more, now with what the others have become.
    pools.sort_by_key(|pool| pool.members.len());
    for _ in 0..pools.len() {
        let pool = pools.remove(0);
        join(&mut pools, pool, near, clocks);
    }
    pools.into_iter().map(|pool| pool.members).collect()
}

/// Merges a pool into one that has the same clock, or adds it to the list.
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

/// Converts anchors to pins, in order of their clocks.
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

/// The block's clock at the base time, extrapolated from its first and last anchor.
fn start(clocks: Clocks, anchors: &[Anchor], base_ns: u64) -> i128 {
    let [first, .., last] = anchors else { return 0 };
    let rise_ns = last.global_ns.saturating_sub(first.global_ns);
    let ticks = last.clock.saturating_sub(first.clock);
    let nominal = clocks.clock_hz as f64 / 1e9;
    let rate = if rise_ns > 0 { ticks as f64 / rise_ns as f64 } else { nominal };
    let since_ns = i128::from(first.global_ns) - i128::from(base_ns);
    i128::from(first.clock) - (since_ns as f64 * rate) as i128
}

/// Whether the pins are of one clock.
fn are_one(clocks: Clocks, one: &[Pin], other: &[Pin]) -> bool {
    let (rates, slack) = (Rates::loose(clocks), STEPS * clocks.step_ns as f64 + READ_NS);
    let fits = |late_ns| narrowed(&merged(one, other, late_ns), slack, &rates).is_some();
    let apart_ns = 2.0 * (clocks.step_ns as f64 + 2.0 * slack);
    fits(0.0) && !fits(apart_ns) && !fits(-apart_ns)
}

/// The pins of both in order of their clocks, the second ones shifted by `late_ns`.
fn merged(one: &[Pin], other: &[Pin], late_ns: f64) -> Vec<Pin> {
    let late = |pin: &Pin| Pin { low: pin.low + late_ns, high: pin.high + late_ns, ..*pin };
    let mut all: Vec<Pin> = one.iter().copied().chain(other.iter().map(late)).collect();
    all.sort_by_key(|pin| pin.clock);
    all
}
