//! The Chrome trace event format (JSON), which many viewers read.

use super::process_name;
use super::tracks::{Track, What, tracks};
use crate::Trace;
use serde_json::{Value, json};

/// The trace as Chrome JSON: one process, one thread a track, complete events (`X`) that nest.
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
    // From 1: thread 0 is the idle one to some viewers.
    for (tid, track) in (1..).zip(&tracks(trace)) {
        text += &format!(",\n{}", metadata("thread_name", tid, &json!({ "name": track.name() })));
        let sort = json!({ "sort_index": tid });
        text += &format!(",\n{}", metadata("thread_sort_index", tid, &sort));
        events(&mut text, tid, track);
    }
    text += "\n]}\n";
    text.into_bytes()
}

fn metadata(name: &str, tid: usize, args: &Value) -> String {
    json!({ "ph": "M", "name": name, "pid": 1, "tid": tid, "args": args }).to_string()
}

fn events(text: &mut String, tid: usize, track: &Track) {
    for slice in &track.slices {
        let name = slice.what.name();
        let category = slice.what.category().unwrap_or("layer");
        let args = arguments(&slice.what);
        let ts = microseconds(slice.begin_ns);
        let dur = microseconds(slice.end_ns - slice.begin_ns);
        *text += &format!(
            ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\"ts\":{ts},\"dur\":{dur},\
             \"name\":\"{name}\",\"cat\":\"{category}\",\"args\":{{{args}}}}}"
        );
    }
}

/// What more there is to say. All of it is numbers and names of closed sets: nothing needs
/// escaping, here or in the name.
fn arguments(what: &What) -> String {
    let layer =
        |layer: Option<u16>| layer.map_or(String::new(), |layer| format!(",\"layer\":{layer}"));
    match what {
        What::Layer(layer) => format!("\"layer\":{layer}"),
        What::Span(_, span) => {
            let (phase, layer) = (span.phase.name(), layer(span.layer));
            let on = span.waits_on.map_or(String::new(), |on| format!(",\"waits_on\":{on}"));
            format!("\"phase\":\"{phase}\"{layer}{on}")
        }
        What::Stream(stream) => {
            let (phase, layer) = (stream.phase.name(), layer(stream.layer));
            let (bytes, copies) = (stream.bytes, stream.copies);
            format!("\"phase\":\"{phase}\"{layer},\"bytes\":{bytes},\"copies\":{copies}")
        }
    }
}

/// Nanoseconds as microseconds, exactly: the format's times are microseconds, always.
fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
