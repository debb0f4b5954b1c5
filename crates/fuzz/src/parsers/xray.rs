//! The X-ray: dumps, traces, faults.

use super::{Parser, nothing};
use crate::mutate::mutated;
use crate::random::Random;
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use monolith_abi::dump::{Anchor, BlockDump, Copied, Dump, NO_BLOCK, NO_LAYER, Pace, Stamp};
use monolith_abi::{EventKind, Phase};
use monolith_xray::export::{self, GanttOptions};
use monolith_xray::fault::{self, Report};
use monolith_xray::{Analysis, Trace, dump_file, page, trace_from_dump};
use sha2::{Digest, Sha256};
use std::io::Write;

pub const PARSERS: &[Parser] = &[
    Parser {
        name: "dump",
        about: "a recorded step (.xray)",
        weight: 100,
        corpus: || Ok(vec![dump_file::write(&dump(1)), dump_file::write(&dump(0))]),
        mutate: dump_mutated,
        prepare: nothing,
        run: |bytes, _| {
            let trace = dump_file::read(bytes).ok().and_then(|dump| trace_from_dump(&dump).ok());
            trace.is_some_and(|trace| is_shown(&trace, bytes))
        },
    },
    Parser {
        name: "trace",
        about: "a page's trace, uncompressed",
        weight: 120,
        corpus: || Ok(vec![trace(1)?, trace(0)?]),
        mutate: mutated,
        prepare: nothing,
        run: |bytes, _| page::read(bytes).is_ok_and(|trace| is_shown(&trace, bytes)),
    },
    Parser {
        name: "trace-gz",
        about: "a page's trace (.json.gz)",
        weight: 40,
        corpus: || Ok(vec![gzip(&trace(1)?)?, gzip(&trace(0)?)?]),
        mutate: gzip_mutated,
        prepare: nothing,
        run: |bytes, _| page::read(bytes).is_ok_and(|trace| is_shown(&trace, bytes)),
    },
    Parser {
        name: "fault",
        about: "the fault file of a step that did not end",
        weight: 120,
        corpus: || Ok(vec![FAULT.into()]),
        mutate: mutated,
        prepare: nothing,
        run: |bytes, _| fault::read(bytes).is_ok_and(|dump| !Report(&dump).to_string().is_empty()),
    },
];

const FAULT: &str = include_str!("../../corpus/fault.json");

/// Makes every analysis and export of a trace; the picture only of some, because it is slowest.
fn is_shown(trace: &Trace, bytes: &[u8]) -> bool {
    let analysis = Analysis::of(trace);
    let text = analysis.to_string();
    let json = serde_json::to_string(&analysis).is_ok();
    let files = [
        export::perfetto(trace),
        export::chrome(trace),
        export::speedscope(trace),
        export::csv(trace),
        page::write(trace),
    ];
    let again = page::read(&files[4]).is_ok_and(|again| again.streams() == trace.streams());
    if Sha256::digest(bytes)[0] == 0 {
        drop(export::gantt(trace, &GanttOptions::default()));
    }
    assert!(again, "a trace that was written cannot be read back");
    json && !text.is_empty() && files.iter().all(|file| !file.is_empty())
}

/// A step of two blocks: one streams weights, the other waits for it.
fn dump(pace: u8) -> Dump {
    use EventKind::WaitCopies;
    use EventKind::{Unrecorded, WaitBarrier, WaitExchange, WaitRingEmpty, WaitRingFull, Work};
    let stamp = |clock, kind, phase, layer, producer| Stamp { clock, kind, phase, layer, producer };
    let (none, first) = (NO_LAYER, 0);
    let one = vec![
        stamp(1000, Work, Phase::Embed, none, NO_BLOCK),
        stamp(1200, WaitRingFull, Phase::Qkv, first, NO_BLOCK),
        stamp(1400, Work, Phase::Qkv, first, NO_BLOCK),
        stamp(1900, WaitBarrier, Phase::Qkv, first, NO_BLOCK),
        stamp(2000, WaitExchange, Phase::Attention, first, 1),
        stamp(2600, Work, Phase::Argmax, none, NO_BLOCK),
        stamp(2900, Unrecorded, Phase::Argmax, none, NO_BLOCK),
    ];
    let loader = vec![
        stamp(1000, Work, Phase::Qkv, first, NO_BLOCK),
        stamp(1050, WaitCopies, Phase::Down, first, NO_BLOCK),
        stamp(1100, WaitRingEmpty, Phase::Down, first, NO_BLOCK),
        stamp(2000, Unrecorded, Phase::Down, first, NO_BLOCK),
    ];
    let copy = |issue_clock, phase| Copied {
        issue_clock,
        arrival_clock: issue_clock + 300,
        bytes: 4096,
        phase,
        layer: first,
    };
    let other = vec![
        stamp(1100, WaitExchange, Phase::Qkv, first, 0),
        stamp(2000, Work, Phase::Attention, first, NO_BLOCK),
        stamp(2400, Unrecorded, Phase::Attention, first, NO_BLOCK),
    ];
    let block = |sm, consumer, loader, copies| BlockDump {
        sm,
        consumer,
        loader,
        epilogue: vec![
            stamp(1000, WaitBarrier, Phase::Qkv, first, NO_BLOCK),
            stamp(1900, Work, Phase::Qkv, first, NO_BLOCK),
            stamp(1950, Unrecorded, Phase::Qkv, first, NO_BLOCK),
        ],
        copies,
        anchors: (0..5)
            .map(|at| Anchor { clock: 900 + 500 * at, global_ns: 7_000_032 + 256 * at })
            .collect(),
        lost: 0,
    };
    let copies = vec![copy(1000, Phase::Qkv), copy(1050, Phase::Qkv), copy(1150, Phase::Down)];
    Dump {
        engine: "cuda".into(),
        variant: "bf16-flag".into(),
        device: "a GPU".into(),
        model: "small".into(),
        build: "0123abcd".into(),
        layers: 1,
        position: 5,
        clock_hz: 1_980_000_000,
        global_step_ns: 32,
        phase_bytes: vec![(Phase::Qkv, 8192), (Phase::Down, 4096)],
        pace: (pace > 0).then_some(Pace { headline_ns: 1000.0, instrumented_ns: 1020.0 }),
        blocks: vec![block(3, one, loader, copies), block(4, other, vec![], vec![])],
    }
}

/// Magic, version, length, sha256: see `monolith_xray::dump_file`.
const DUMP_HEADER: usize = 8 + 4 + 8 + 32;

/// Mutates mostly the body, then recomputes the sha256.
fn dump_mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    if random.one_in(8) || input.len() < DUMP_HEADER {
        return mutated(input, other, random);
    }
    let body = mutated(&input[DUMP_HEADER..], other, random);
    let mut dump = input[..12].to_vec();
    dump.extend((body.len() as u64).to_le_bytes());
    dump.extend(Sha256::digest(&body));
    dump.extend(body);
    dump
}

fn trace(pace: u8) -> Result<Vec<u8>> {
    gunzip(&page::write(&trace_from_dump(&dump(pace))?))
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut text = GzDecoder::new(Vec::new());
    text.write_all(bytes)?;
    text.finish().context("not gzip")
}

fn gzip(text: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text)?;
    packed.finish().context("not packed")
}

/// Mutates the uncompressed text, or the compressed bytes.
fn gzip_mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    if random.one_in(2) {
        return mutated(input, other, random);
    }
    let packed = gunzip(input).and_then(|text| gzip(&mutated(&text, b"[0,0]", random)));
    packed.unwrap_or_default()
}
