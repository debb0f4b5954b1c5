//! How large and how slow the exports are, on a trace as an H200's.

use crate::export_traces::{realistic, sample};
use monolith_xray::Trace;
use monolith_xray::export::{GanttOptions, chrome, csv, gantt, perfetto, speedscope};
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
    ("chrome", 50, chrome),
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

/// For tools/check_pftrace.py, which reads them as Perfetto does.
#[test]
fn pftraces_are_left_for_perfettos_own_reader() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, trace) in [("sample", sample()), ("realistic", realistic())] {
        std::fs::write(folder.join(format!("{name}.pftrace")), perfetto(&trace)).unwrap();
    }
}
