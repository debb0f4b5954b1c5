//! Speedscope's file format (JSON): one evented profile per track.

use super::process_name;
use super::tracks::{Edge, Track, TrackKind, What, tracks};
use crate::Trace;
use serde_json::{Value, json};
use std::collections::HashMap;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes the trace for speedscope: for each block a profile of its consumers, and one each of its
/// epilogue and its loader if it has them. Frames are layers, phases, and waits for each phase (a
/// profile has no fields for more). The weight stream is omitted, since its overlapping parts are
/// not a stack.
pub fn speedscope(trace: &Trace) -> Vec<u8> {
    let mut frames = Frames::default();
    let mut profiles = Vec::new();
    for track in tracks(trace) {
        if !matches!(track.kind, TrackKind::Stream(_)) {
            profiles.push(profile(&track, &mut frames));
        }
    }
    let frames: Vec<Value> = frames.names.iter().map(|name| json!({ "name": name })).collect();
    let name = json!(process_name(trace));
    let exporter = json!(trace.meta().generator);
    let shared = json!({ "frames": frames });
    let profiles = profiles.join(",\n");
    // Written as text, since a tree of JSON values for a million events takes a hundred times the
    // file's size in memory.
    let text = format!(
        "{{\"$schema\":\"{SCHEMA}\",\"name\":{name},\"exporter\":{exporter},\
         \"activeProfileIndex\":0,\"shared\":{shared},\"profiles\":[\n{profiles}\n]}}\n"
    );
    text.into_bytes()
}

/// The frames; profiles refer to them by index.
#[derive(Default)]
struct Frames {
    names: Vec<String>,
    indices: HashMap<String, usize>,
}

impl Frames {
    fn index(&mut self, name: String) -> usize {
        let next = self.names.len();
        let index = *self.indices.entry(name.clone()).or_insert(next);
        if index == next {
            self.names.push(name);
        }
        index
    }
}

fn profile(track: &Track, frames: &mut Frames) -> String {
    let mut events = Vec::new();
    for edge in track.edges() {
        let (kind, slice, at_ns) = match edge {
            Edge::Begin(slice) => ('O', slice, slice.begin_ns),
            Edge::End(slice) => ('C', slice, slice.end_ns),
        };
        let frame = frames.index(frame_name(&slice.what));
        events.push(format!("{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at_ns}}}"));
    }
    let (name, events) = (track.name(), events.join(","));
    let end_ns = track.slices.iter().map(|slice| slice.end_ns).max().unwrap_or(0);
    format!(
        "{{\"type\":\"evented\",\"name\":\"{name}\",\"unit\":\"nanoseconds\",\
         \"startValue\":0,\"endValue\":{end_ns},\"events\":[{events}]}}"
    )
}

fn frame_name(what: &What) -> String {
    match what {
        What::Span(_, span) if span.kind.is_wait() => {
            format!("{} ({})", what.name(), span.phase.name())
        }
        _ => what.name().into_owned(),
    }
}
