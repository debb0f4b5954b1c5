//! How late the blocks publish their parts of each hand-off.
//!
//! A producer's lateness in a hand-off (one phase of one layer that some block waits for) is the
//! time of its publication minus the time when half of that hand-off's producers had published.

use super::index::{Index, median_published_ns};
use crate::Trace;
use serde::Serialize;

/// Lateness over all hand-offs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Number of hand-offs.
    pub handoffs: u64,
    /// The median lateness over blocks and hand-offs; below 0 is early.
    pub median_ns: i64,
    /// The 90th percentile.
    pub p90_ns: i64,
    /// The 99th percentile.
    pub p99_ns: i64,
    /// The maximum.
    pub max_ns: i64,
    /// Mean over hand-offs of the last producer's lateness: perfectly balanced work would save it.
    pub last_mean_ns: f64,
    /// One row for each block that publishes something, the latest on average first.
    pub blocks: Vec<LatenessOfBlock>,
}

/// One block's lateness.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatenessOfBlock {
    /// The block.
    pub block: u16,
    /// Its SM, if it is known.
    pub sm: Option<u16>,
    /// Number of hand-offs in which it publishes a part.
    pub handoffs: u64,
    /// Its mean lateness.
    pub mean_ns: f64,
    /// Its largest lateness.
    pub max_ns: i64,
    /// In how many of them it was the last (of equals, the block with the lowest number counts).
    pub last: u64,
}

/// Sums of one block.
#[derive(Clone, Copy, Default)]
struct Sum {
    handoffs: u64,
    total_ns: i64,
    max_ns: Option<i64>,
    last: u64,
}

pub(super) fn lateness(trace: &Trace, index: &Index) -> Lateness {
    let meta = trace.meta();
    let mut sums = vec![Sum::default(); usize::from(meta.blocks)];
    let (mut all, mut lasts) = (Vec::new(), Vec::new());
    for (_, publications) in index.handoffs() {
        let median = median_published_ns(publications);
        let late = |at_ns: u64| at_ns as i64 - median as i64;
        let last_ns = publications.iter().map(|one| one.at_ns).max().unwrap_or(0);
        let last =
            publications.iter().filter(|one| one.at_ns == last_ns).map(|one| one.block).min();
        lasts.push(late(last_ns));
        for one in publications {
            let (sum, late) = (&mut sums[usize::from(one.block)], late(one.at_ns));
            sum.handoffs += 1;
            sum.total_ns += late;
            sum.max_ns = Some(sum.max_ns.map_or(late, |max| max.max(late)));
            sum.last += u64::from(last == Some(one.block));
            all.push(late);
        }
    }
    all.sort_unstable();
    let rank = |percent: usize| all.get((all.len() * percent).div_ceil(100).max(1) - 1).copied();
    let last_total: i64 = lasts.iter().sum();
    Lateness {
        handoffs: lasts.len() as u64,
        median_ns: rank(50).unwrap_or(0),
        p90_ns: rank(90).unwrap_or(0),
        p99_ns: rank(99).unwrap_or(0),
        max_ns: rank(100).unwrap_or(0),
        last_mean_ns: if lasts.is_empty() { 0.0 } else { last_total as f64 / lasts.len() as f64 },
        blocks: by_block(&sums, &meta.sms),
    }
}

fn by_block(sums: &[Sum], sms: &[u16]) -> Vec<LatenessOfBlock> {
    let row = |(sum, block): (&Sum, u16)| {
        Some(LatenessOfBlock {
            block,
            sm: sms.get(usize::from(block)).copied(),
            handoffs: sum.handoffs,
            mean_ns: sum.total_ns as f64 / sum.handoffs as f64,
            max_ns: sum.max_ns?,
            last: sum.last,
        })
    };
    let mut blocks: Vec<LatenessOfBlock> = sums.iter().zip(0..).filter_map(row).collect();
    blocks.sort_by(|a, b| b.mean_ns.total_cmp(&a.mean_ns).then(a.block.cmp(&b.block)));
    blocks
}
