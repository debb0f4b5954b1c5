//! Assigns overlapping streams to lanes.

use crate::Stream;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Puts one block's streams on the fewest lanes without overlap: each on the first free lane. The
/// streams must be in order of their begins.
pub(super) fn lanes(streams: &[Stream]) -> Vec<Vec<Stream>> {
    let mut lanes: Vec<Vec<Stream>> = Vec::new();
    let (mut free, mut busy) = (BTreeSet::new(), BinaryHeap::new());
    for &stream in streams {
        while let Some(&Reverse((end_ns, lane))) = busy.peek() {
            if end_ns > stream.begin_ns {
                break;
            }
            busy.pop();
            free.insert(lane);
        }
        let lane = free.pop_first().unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push(stream);
        busy.push(Reverse((stream.end_ns, lane)));
    }
    lanes
}
