//! How large the exports of a trace of an H200's size are, and how long they take.

use crate::export_traces::{realistic, sample};
use monolith_abi::EventKind;
use monolith_xray::export::{GanttOptions, chrome, csv, gantt, perfetto, speedscope};
use monolith_xray::{Span, Trace, page};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

fn gzipped(bytes: &[u8]) -> usize {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().len()
}

fn picture(trace: &Trace) -> Vec<u8> {
    gantt(trace, &GanttOptions::default()).unwrap()
}

/// A name, the most megabytes it may have, and what makes it.
type Export = (&'static str, usize, fn(&Trace) -> Vec<u8>);

const EXPORTS: [Export; 5] = [
    ("pftrace", 25, perfetto),
    ("chrome", 65, chrome),
    ("speedscope", 25, speedscope),
    ("csv", 20, csv),
    ("png", 1, picture),
];

#[test]
fn no_export_is_larger_than_a_viewer_takes() {
    let trace = realistic();
    for (name, most_mb, export) in EXPORTS {
        let start = Instant::now();
        let file = export(&trace);
        let ms = start.elapsed().as_millis();
        println!("{name:<10} {:>10} bytes, {:>9} gzipped, {ms} ms", file.len(), gzipped(&file));
        assert!(file.len() <= most_mb * 1_000_000, "{name}: {} bytes", file.len());
    }
}

/// For tools/check_pftrace.py, which reads them as Perfetto does and compares the Chrome trace
/// beside each, and for tools/check_speedscope.mjs, which imports the JSON as speedscope does.
#[test]
fn files_are_left_for_the_viewers_own_readers() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/2026-11-30-h200-01");
    let committed = std::fs::read(results.join("xray-fp8-flag-16.json.gz")).unwrap();
    let h200 = page::read(&committed).unwrap();
    for (name, trace) in [("sample", sample()), ("realistic", realistic()), ("h200", h200)] {
        let write = |ending: &str, bytes: &[u8]| {
            std::fs::write(folder.join(format!("{name}.{ending}")), bytes).unwrap();
        };
        write("pftrace", &perfetto(&trace));
        write("chrome-trace.json", &chrome(&trace));
        write("chrome-trace.json.expected", &profiles(&trace, true));
        write("speedscope.json", &speedscope(&trace));
        write("speedscope.json.expected", &profiles(&trace, false));
    }
}

/// By block and role, nanoseconds of each frame without those of the frames in it.
type Profiles = BTreeMap<(u16, usize), BTreeMap<String, u64>>;

/// What a viewer must find, from the trace and not from an export of it.
fn profiles(trace: &Trace, is_chrome: bool) -> Vec<u8> {
    let mut profiles = Profiles::new();
    let mut layers: BTreeMap<(u16, usize), (u16, u64)> = BTreeMap::new();
    for span in trace.spans().iter() {
        let line = (span.block, span.role as usize);
        let frames = profiles.entry(line).or_default();
        *frames.entry(frame(&span, is_chrome)).or_default() += span.duration_ns();
        // Time between two spans of a layer that follow one another.
        let gap = layers.get(&line).filter(|&&(layer, _)| Some(layer) == span.layer);
        if let Some((layer, end_ns)) = gap {
            *frames.entry(format!("L{layer:02}")).or_default() += span.begin_ns - end_ns;
        }
        match span.layer {
            Some(layer) => layers.insert(line, (layer, span.end_ns)),
            None => layers.remove(&line),
        };
    }
    let name = |(block, role): (u16, usize)| {
        format!("blk {block:03} {}", if role == 0 { "consumers" } else { "loader" })
    };
    let meta = trace.meta();
    let process = format!("monolith {} / position {}", meta.variant, meta.position);
    let list: Vec<_> = profiles
        .into_iter()
        .map(|(line, ns)| serde_json::json!({ "track": name(line), "ns": ns }))
        .collect();
    serde_json::to_vec(&serde_json::json!({ "process": process, "tracks": list })).unwrap()
}

fn frame(span: &Span, is_chrome: bool) -> String {
    let wait = match span.kind {
        EventKind::WaitExchange => "wait:exchange",
        EventKind::WaitRingFull => "wait:weights",
        EventKind::WaitRingEmpty => "wait:stage",
        EventKind::WaitBarrier => "wait:barrier",
        EventKind::WaitCopies => "wait:copies",
        EventKind::Work | EventKind::Unrecorded => return span.phase.name().to_owned(),
    };
    if is_chrome { wait.to_owned() } else { format!("{wait} ({})", span.phase.name()) }
}
