//! Lines for what overlaps.

use crate::Stream;

/// Puts one block's streams on the fewest lanes on which none shares time with another: each on
/// the first lane that is free.
pub(super) fn lanes(streams: &[Stream]) -> Vec<Vec<Stream>> {
    let mut lanes: Vec<Vec<Stream>> = Vec::new();
    for &stream in streams {
        let free =
            |lane: &&mut Vec<Stream>| lane.last().is_none_or(|last| last.end_ns <= stream.begin_ns);
        match lanes.iter_mut().find(free) {
            Some(lane) => lane.push(stream),
            None => lanes.push(vec![stream]),
        }
    }
    lanes
}
