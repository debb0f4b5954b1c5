//! The Chrome trace event format (JSON), which many viewers read.

use super::flows::Arrows;
use super::process_name;
use super::tracks::{Edge, Slice, Track, What, tracks};
use crate::Trace;
use serde_json::{Value, json};

/// Writes the trace as Chrome JSON: one process, one thread per track, begins and ends (`B`, `E`)
/// in nested pairs, flows (`s`, `f`) from producers' work to the waits that it released.
///
/// Why not complete events (`X`): their end is the sum of two floating-point numbers of
/// microseconds, which in one slice of nine exceeds the end of the enclosing slice in the last bit.
/// speedscope then draws a staircase.
pub fn chrome(trace: &Trace) -> Vec<u8> {
    let meta = trace.meta();
    let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"otherData\":");
    let other = json!({
        "variant": meta.variant,
        "build": meta.build,
        "gpu": meta.device,
        "model": meta.model,
        "position": meta.position,
        "clock_error_ns": meta.clock_error_ns,
        "headline_tok_s": meta.pace.map(|pace| pace.headline_tok_s),
        "overhead_pct": meta.pace.map(|pace| pace.overhead_pct),
        "generator": meta.generator,
    });
    text += &format!("{other},\"traceEvents\":[\n");
    text += &metadata("process_name", 0, &json!({ "name": process_name(trace) }));
    let arrows = Arrows::of(trace);
    // Starts at 1: some viewers take thread 0 for the idle thread.
    for (tid, track) in (1..).zip(&tracks(trace)) {
        text += &format!(",\n{}", metadata("thread_name", tid, &json!({ "name": track.name() })));
        let sort = json!({ "sort_index": tid });
        text += &format!(",\n{}", metadata("thread_sort_index", tid, &sort));
        events(&mut text, tid, track, &arrows);
    }
    text += "\n]}\n";
    text.into_bytes()
}

fn metadata(name: &str, tid: usize, args: &Value) -> String {
    json!({ "ph": "M", "name": name, "pid": 1, "tid": tid, "args": args }).to_string()
}

fn events(text: &mut String, tid: usize, track: &Track, arrows: &Arrows) {
    let edges = track.edges();
    for (index, edge) in edges.iter().enumerate() {
        match edge {
            Edge::Begin(slice) if is_empty(slice) => begin(text, tid, slice, "i\",\"s\":\"t"),
            Edge::Begin(slice) => begin(text, tid, slice, "B"),
            Edge::End(slice) if is_empty(slice) => {}
            Edge::End(slice) => {
                flows(text, tid, slice, arrows);
                end(text, tid, slice, &edges[index + 1..]);
            }
        }
    }
}

/// Returns whether the slice has no length. It is written as an instant event (`i`), since a begin
/// and an end at one time would disturb the order of its neighbours.
fn is_empty(slice: &Slice) -> bool {
    slice.begin_ns == slice.end_ns
}

fn begin(text: &mut String, tid: usize, slice: &Slice, kind: &str) {
    let name = slice.what.name();
    let category = slice.what.category().unwrap_or("layer");
    let (ts, args) = (microseconds(slice.begin_ns), arguments(&slice.what));
    *text += &format!(
        ",\n{{\"ph\":\"{kind}\",\"pid\":1,\"tid\":{tid},\"ts\":{ts},\"name\":\"{name}\",\
         \"cat\":\"{category}\",\"args\":{{{args}}}}}"
    );
}

/// Writes an end with the name and the arguments of its begin, by which speedscope pairs the two.
/// If another slice of the same name and arguments begins at the same time, speedscope would handle
/// that begin first; without the arguments it does not.
fn end(text: &mut String, tid: usize, slice: &Slice, after: &[Edge<'_>]) {
    let (ts, name) = (microseconds(slice.end_ns), slice.what.name());
    let args = arguments(&slice.what);
    let at_once = after.iter().take_while(|edge| edge.at_ns() == slice.end_ns);
    let is_same = |edge: &Edge<'_>| match edge {
        Edge::Begin(next) => next.what.name() == name && arguments(&next.what) == args,
        Edge::End(_) => false,
    };
    let args =
        if { at_once }.any(is_same) { String::new() } else { format!(",\"args\":{{{args}}}") };
    *text += &format!(
        ",\n{{\"ph\":\"E\",\"pid\":1,\"tid\":{tid},\"ts\":{ts},\"name\":\"{name}\"{args}}}"
    );
}

/// Writes the flows of a slice one nanosecond before its end, since a flow belongs to the slice
/// that is open at its time.
fn flows(text: &mut String, tid: usize, slice: &Slice, arrows: &Arrows) {
    let What::Span(row, _) = slice.what else { return };
    let ts = microseconds(slice.end_ns - 1);
    let tails = arrows.tails(row).iter().map(|&id| (id, "\"s\""));
    let heads = arrows.head(row).map(|id| (id, "\"f\",\"bp\":\"e\""));
    for (id, kind) in tails.chain(heads) {
        *text += &format!(
            ",\n{{\"ph\":{kind},\"id\":{id},\"pid\":1,\"tid\":{tid},\"ts\":{ts},\
             \"name\":\"hand-off\",\"cat\":\"hand-off\"}}"
        );
    }
}

/// The details that are not in the name, as JSON. Like the name they are numbers and fixed words,
/// so nothing needs escaping.
fn arguments(what: &What) -> String {
    let (phase, layer, more) = match what {
        What::Layer(layer) => (None, Some(*layer), String::new()),
        What::Span(_, span) => {
            let phase = span.kind.is_wait().then_some(span.phase.name());
            let on = span.waits_on.map_or(String::new(), |on| format!("\"waits_on\":{on}"));
            (phase, span.layer, on)
        }
        What::Stream(stream) => {
            let (bytes, copies) = (stream.bytes, stream.copies);
            (None, stream.layer, format!("\"bytes\":{bytes},\"copies\":{copies}"))
        }
    };
    let phase = phase.map(|phase| format!("\"phase\":\"{phase}\""));
    let layer = layer.map(|layer| format!("\"layer\":{layer}"));
    let more = Some(more).filter(|more| !more.is_empty());
    let parts: Vec<String> = [phase, layer, more].into_iter().flatten().collect();
    parts.join(",")
}

/// Nanoseconds as exact microseconds, the unit of all times in the format.
fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
