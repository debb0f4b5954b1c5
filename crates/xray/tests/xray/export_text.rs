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
    let us = us.as_f64().unwrap();
    assert!(us >= 0.0, "{us} us");
    (us * 1e3).round() as u64
}

/// A slice of a Chrome trace.
#[derive(Clone, Debug)]
struct Slice {
    name: String,
    category: String,
    args: Value,
    begin_ns: u64,
    end_ns: u64,
    depth: usize,
}

/// A Chrome trace, read event by event as viewers do.
#[derive(Default)]
struct Chrome {
    open: BTreeMap<u64, Vec<Slice>>,
    last_ns: BTreeMap<u64, u64>,
    slices: Vec<Slice>,
    /// Of each flow, the slice that it is in and its time: tail and head.
    tails: BTreeMap<u64, (Slice, u64)>,
    heads: BTreeMap<u64, (Slice, u64)>,
}

impl Chrome {
    fn read(file: &Value) -> Chrome {
        let mut chrome = Chrome::default();
        for event in file["traceEvents"].as_array().unwrap() {
            if event["ph"] != "M" {
                chrome.event(event);
            }
        }
        assert!(chrome.open.values().all(Vec::is_empty), "slices are left open");
        chrome
    }

    fn event(&mut self, event: &Value) {
        let (tid, at_ns) = (event["tid"].as_u64().unwrap(), ns(&event["ts"]));
        let last_ns = self.last_ns.insert(tid, at_ns).unwrap_or(0);
        assert!(last_ns <= at_ns, "thread {tid} goes back from {last_ns} to {at_ns}");
        let open = self.open.entry(tid).or_default();
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        match event["ph"].as_str().unwrap() {
            ph @ ("B" | "i") => {
                let slice = Slice {
                    name: text("name"),
                    category: text("cat"),
                    args: event["args"].clone(),
                    begin_ns: at_ns,
                    end_ns: at_ns,
                    depth: open.len(),
                };
                if ph == "B" { open.push(slice) } else { self.slices.push(slice) }
            }
            "E" => {
                let mut slice = open.pop().expect("an end without a begin");
                assert_eq!(event["name"], slice.name);
                assert!(event.get("args").is_none_or(|args| *args == slice.args));
                slice.end_ns = at_ns;
                assert!(slice.begin_ns < slice.end_ns, "{slice:?}");
                self.slices.push(slice);
            }
            ph @ ("s" | "f") => {
                let ends = if ph == "s" { &mut self.tails } else { &mut self.heads };
                let inner = open.last().expect("a flow in no slice").clone();
                assert!(ph == "s" || event["bp"] == "e");
                assert!(ends.insert(event["id"].as_u64().unwrap(), (inner, at_ns)).is_none());
            }
            ph => panic!("an event of kind {ph}"),
        }
    }

    /// Time of the slices of these categories.
    fn time_ns(&self, categories: &[&str]) -> u64 {
        let of = self.slices.iter().filter(|slice| categories.contains(&&*slice.category));
        of.map(|slice| slice.end_ns - slice.begin_ns).sum()
    }
}

fn check_chrome(trace: &Trace) {
    let chrome = Chrome::read(&serde_json::from_slice(&chrome(trace)).unwrap());
    let spans: u64 = trace.spans().iter().map(|span| span.duration_ns()).sum();
    let waits = trace.spans().iter().filter(|span| span.kind.is_wait());
    let streams: u64 = trace.streams().iter().map(|stream| stream.end_ns - stream.begin_ns).sum();
    assert_eq!(chrome.time_ns(&["compute", "wait", "stream"]), spans + streams);
    assert_eq!(chrome.time_ns(&["wait"]), waits.map(|span| span.duration_ns()).sum::<u64>());
    let slices = chrome.slices.iter().filter(|slice| slice.category != "layer");
    assert_eq!(slices.count(), trace.spans().len() + trace.streams().len());
    let end_ns = chrome.slices.iter().map(|slice| slice.end_ns).max().unwrap();
    assert!(end_ns <= trace.meta().token_ns);
    // Layers are outermost; nothing is deeper than what is in them.
    assert!(chrome.slices.iter().all(|slice| slice.depth < 2));
    assert!(chrome.slices.iter().all(|slice| slice.depth == 0 || slice.category != "layer"));
    assert!(chrome.tails.keys().eq(chrome.heads.keys()), "a flow lacks an end");
    for (id, (wait, at_ns)) in &chrome.heads {
        let (work, published_ns) = &chrome.tails[id];
        assert_eq!((&*wait.name, &*work.category), ("wait:exchange", "compute"));
        assert_eq!(
            (&wait.args["phase"], &wait.args["layer"]),
            (&json!(work.name), &work.args["layer"])
        );
        assert!(published_ns < at_ns, "flow {id} leads back in time");
    }
    let named = trace.spans().iter().filter(|span| span.waits_on.is_some());
    assert!(chrome.heads.len() <= named.count());
}

/// The recorded steps that are committed.
fn committed() -> Vec<(std::path::PathBuf, Trace)> {
    let results = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let folders = results.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files = folders.filter(|path| path.is_dir()).flat_map(|path| path.read_dir().unwrap());
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("xray-") && name.ends_with(".json.gz")
    });
    let read = |path: std::path::PathBuf| {
        let trace = monolith_xray::page::read(&std::fs::read(&path).unwrap()).unwrap();
        (path, trace)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn committed_traces_nest_and_add_up() {
    let traces = committed();
    assert!(traces.len() >= 8);
    for (path, trace) in traces {
        println!("{}", path.display());
        check_chrome(&trace);
        check_profiles(&serde_json::from_slice(&speedscope(&trace)).unwrap(), &trace);
    }
}

#[test]
fn what_has_no_length_is_no_slice_of_chromes() {
    let full = sample();
    let mut streams = full.streams().clone();
    streams.end_ns[0] = streams.begin_ns[0];
    let page = Trace::of_page(full.meta().clone(), consumers(&full), streams).unwrap();
    check_chrome(&page);
    let file: Value = serde_json::from_slice(&chrome(&page)).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["ph"] == "i").count(), 1);
}

fn consumers(trace: &Trace) -> Spans {
    let mut spans = Spans::default();
    let consumers = trace.spans().iter().filter(|span| span.role == Role::Consumer);
    consumers.for_each(|span| spans.push(span));
    spans
}

#[test]
fn chromes_flows_are_in_the_slices_that_they_are_of() {
    let chrome = Chrome::read(&serde_json::from_slice(&chrome(&sample())).unwrap());
    // A nanosecond before the end of the work, and of the wait.
    let ends = chrome.heads.iter().map(|(id, head)| (chrome.tails[id].1 + 1, head.1 + 1));
    assert_eq!(ends.collect::<Vec<_>>(), [(5500, 6000), (9000, 9400)]);
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
    assert!(text.contains("\"ts\":4.200,\"name\":\"wait:exchange\""), "{text}");
    assert!(text.contains("\"ts\":6.000,\"name\":\"wait:exchange\""), "{text}");
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
    check_profiles(&file, trace);
}

fn check_profiles(file: &Value, trace: &Trace) {
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
    let page =
        Trace::of_page(full.meta().clone(), consumers(&full), full.streams().clone()).unwrap();
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
