//! Chrome JSON, speedscope and CSV, read back.

use crate::export_traces::{any_trace, sample};
use monolith_abi::{EventKind, Phase, Role};
use monolith_xray::export::{chrome, csv, speedscope};
use monolith_xray::{Copied, Copies, Span, Spans, Trace};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Microseconds with three decimals, as nanoseconds.
fn ns(us: &Value) -> u64 {
    (us.as_f64().unwrap() * 1e3).round() as u64
}

/// Complete events by thread: begin, end, category.
fn complete(file: &Value) -> BTreeMap<u64, Vec<(u64, u64, String)>> {
    let mut threads: BTreeMap<u64, Vec<(u64, u64, String)>> = BTreeMap::new();
    for event in file["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let begin_ns = ns(&event["ts"]);
            let category = event["cat"].as_str().unwrap().to_owned();
            let event_of = threads.entry(event["tid"].as_u64().unwrap()).or_default();
            event_of.push((begin_ns, begin_ns + ns(&event["dur"]), category));
        }
    }
    threads
}

/// Whether of any two events one holds the other or they share no time.
fn nest(events: &[(u64, u64, String)]) -> bool {
    let mut open: Vec<u64> = Vec::new();
    events.iter().all(|&(begin_ns, end_ns, _)| {
        open.retain(|&until_ns| until_ns > begin_ns);
        open.push(end_ns);
        open.is_sorted_by(|outer, inner| outer >= inner)
    })
}

fn check_chrome(trace: &Trace) {
    let file: Value = serde_json::from_slice(&chrome(trace)).unwrap();
    let threads = complete(&file);
    assert!(threads.values().all(|events| nest(events)));
    let all: Vec<_> = threads.into_values().flatten().collect();
    let time = |categories: &[&str]| -> u64 {
        let of = all.iter().filter(|(_, _, category)| categories.contains(&category.as_str()));
        of.map(|(begin_ns, end_ns, _)| end_ns - begin_ns).sum()
    };
    let spans: u64 = trace.spans().iter().map(|span| span.duration_ns()).sum();
    let streams: u64 = trace.streams().iter().map(|stream| stream.end_ns - stream.begin_ns).sum();
    assert_eq!(time(&["compute", "wait", "stream"]), spans + streams);
}

#[test]
fn chrome_names_its_threads_in_order() {
    let file: Value = serde_json::from_slice(&chrome(&sample())).unwrap();
    assert_eq!(file["otherData"]["gpu"], "a \"quoted\" GPU");
    let events = file["traceEvents"].as_array().unwrap();
    let names = events.iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<_> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["blk 000 consumers", "blk 000 loader", "blk 000 weight stream"]);
    let sorts = events.iter().filter(|event| event["name"] == "thread_sort_index");
    let sorts: Vec<_> = sorts.map(|event| event["args"]["sort_index"].as_u64().unwrap()).collect();
    assert_eq!(sorts, [1, 2, 3, 4, 5, 6]);
    let wait = events.iter().find(|event| event["args"]["waits_on"] == 1).unwrap();
    assert_eq!((&wait["name"], &wait["args"]["layer"]), (&json!("wait:exchange"), &json!(0)));
}

#[test]
fn chrome_times_are_microseconds_with_three_decimals() {
    let text = String::from_utf8(chrome(&sample())).unwrap();
    assert!(text.contains("\"ts\":4.200,\"dur\":1.800,\"name\":\"wait:exchange\""), "{text}");
}

/// The part of speedscope's schema that an evented profile has to keep.
fn speedscope_schema() -> Value {
    let event = json!({
        "type": "object",
        "required": ["type", "frame", "at"],
        "properties": {
            "type": { "enum": ["O", "C"] },
            "frame": { "type": "integer", "minimum": 0 },
            "at": { "type": "integer", "minimum": 0 },
        },
    });
    let profile = json!({
        "type": "object",
        "required": ["type", "name", "unit", "startValue", "endValue", "events"],
        "properties": {
            "type": { "const": "evented" },
            "name": { "type": "string" },
            "unit": { "const": "nanoseconds" },
            "startValue": { "type": "integer" },
            "endValue": { "type": "integer" },
            "events": { "type": "array", "items": event },
        },
    });
    let frame = json!({ "type": "object", "required": ["name"] });
    json!({
        "type": "object",
        "required": ["$schema", "shared", "profiles"],
        "properties": {
            "$schema": { "const": "https://www.speedscope.app/file-format-schema.json" },
            "shared": {
                "type": "object",
                "required": ["frames"],
                "properties": { "frames": { "type": "array", "items": frame } },
            },
            "profiles": { "type": "array", "minItems": 1, "items": profile },
        },
    })
}

fn check_speedscope(trace: &Trace) {
    let file: Value = serde_json::from_slice(&speedscope(trace)).unwrap();
    let validator = jsonschema::validator_for(&speedscope_schema()).unwrap();
    let errors: Vec<_> = validator.iter_errors(&file).map(|error| error.to_string()).collect();
    assert_eq!(errors, [""; 0]);
    let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
    let tracks: Vec<_> = trace.spans().iter().map(|span| (span.block, span.role)).collect();
    let profiles = file["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), tracks.chunk_by(|one, other| one == other).count());
    for profile in profiles {
        check_profile(profile, frames);
    }
}

/// Events in order, each close of the frame opened last, none left open.
fn check_profile(profile: &Value, frames: u64) {
    let mut open = Vec::new();
    let mut last = profile["startValue"].as_u64().unwrap();
    for event in profile["events"].as_array().unwrap() {
        let (frame, at) = (event["frame"].as_u64().unwrap(), event["at"].as_u64().unwrap());
        assert!(frame < frames && last <= at);
        last = at;
        if event["type"] == "O" {
            open.push(frame);
        } else {
            assert_eq!(open.pop(), Some(frame));
        }
    }
    assert!(open.is_empty() && profile["endValue"] == last);
}

fn optional<T: std::str::FromStr>(cell: &str) -> Option<T> {
    if cell.is_empty() { None } else { cell.parse().ok() }
}

fn rows_from_csv(text: &str) -> (Spans, Copies) {
    let (mut spans, mut copies) = (Spans::default(), Copies::default());
    let mut lines = text.lines();
    let header = "block,sm,role,kind,phase,layer,waits_on,begin_ns,end_ns,bytes";
    assert_eq!(lines.next(), Some(header));
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let [block, _, role, kind, phase, layer, waits_on, begin, end, bytes] = cells[..] else {
            panic!("{line}")
        };
        let (block, phase) = (block.parse().unwrap(), Phase::from_name(phase).unwrap());
        let (begin_ns, end_ns) = (begin.parse().unwrap(), end.parse().unwrap());
        let layer = optional(layer);
        if kind == "copy" {
            let bytes = bytes.parse().unwrap();
            let (issue_ns, arrival_ns) = (begin_ns, end_ns);
            copies.push(Copied { block, phase, layer, bytes, issue_ns, arrival_ns });
        } else {
            let (role, kind) = (Role::from_name(role), EventKind::from_name(kind));
            let (role, kind) = (role.unwrap(), kind.unwrap());
            let waits_on = optional(waits_on);
            spans.push(Span { block, role, kind, phase, layer, waits_on, begin_ns, end_ns });
        }
    }
    (spans, copies)
}

#[test]
fn csv_reads_as_this() {
    let text = String::from_utf8(csv(&sample())).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "0,1,consumer,work,embed,,,0,1000,");
    assert_eq!(lines[5], "0,1,consumer,wait_exchange,qkv,0,1,4200,6000,");
    assert_eq!(*lines.last().unwrap(), "1,0,loader,copy,qkv,0,,0,600,16384");
}

#[test]
fn a_pages_trace_exports_its_streams() {
    let full = sample();
    let mut spans = Spans::default();
    full.spans()
        .iter()
        .filter(|span| span.role == Role::Consumer)
        .for_each(|span| spans.push(span));
    let page = Trace::of_page(full.meta().clone(), spans, full.streams().clone()).unwrap();
    let text = String::from_utf8(csv(&page)).unwrap();
    assert!(text.ends_with("1,0,loader,stream,qkv,0,,0,600,16384\n"), "{text}");
    check_chrome(&page);
    check_speedscope(&page);
}

proptest! {
    #[test]
    fn every_text_says_what_the_trace_says(trace in any_trace()) {
        check_chrome(&trace);
        check_speedscope(&trace);
        let text = String::from_utf8(csv(&trace)).unwrap();
        let (spans, copies) = rows_from_csv(&text);
        prop_assert_eq!(&spans, trace.spans());
        prop_assert_eq!(&copies, trace.copies());
        prop_assert_eq!(chrome(&trace), chrome(&trace));
        prop_assert_eq!(speedscope(&trace), speedscope(&trace));
    }
}
