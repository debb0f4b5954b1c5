//! What holds for every dump, and for every file.

use crate::dumps::{any_dump, small, streamed};
use flate2::read::GzDecoder;
use monolith_abi::dump::{NO_BLOCK, NO_LAYER};
use monolith_abi::{EventKind, Phase, Role};
use monolith_xray::analysis::BlockTime;
use monolith_xray::{Analysis, Span, Trace, page, trace_from_dump};
use proptest::prelude::*;
use std::io::Read;

fn small_files() -> [Vec<u8>; 4] {
    let files = [small(), streamed()].map(|dump| page::write(&trace_from_dump(&dump).unwrap()));
    let plain = files.clone().map(|packed| {
        let mut plain = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        plain
    });
    let [a, b] = files;
    let [c, d] = plain;
    [a, b, c, d]
}

/// Reading either refuses, or gives a trace that can be added up and written again.
fn holds(bytes: &[u8]) {
    if let Ok(trace) = page::read(bytes) {
        adds_up(&trace);
        assert_eq!(page::read(&page::write(&trace)), Ok(trace));
    }
}

/// No time is lost or counted twice, neither on the blocks nor on the critical path.
fn adds_up(trace: &Trace) {
    let analysis = Analysis::of(trace);
    for block in &analysis.blocks {
        let spent = block.work_ns + block.wait_ns() + block.unrecorded_ns;
        assert_eq!(spent, analysis.token_ns);
    }
    let phases: u64 = analysis.phases.iter().map(|phase| phase.work_ns).sum();
    let waits: u64 = analysis.waits.iter().map(|wait| wait.total_ns).sum();
    assert_eq!((phases, waits), (analysis.work_ns(), analysis.wait_ns()));
    let spent = phases + waits + analysis.unrecorded_ns();
    assert_eq!(spent, analysis.token_ns * analysis.blocks.len() as u64);
    let barrier: u64 = analysis.phases.iter().map(|phase| phase.wait_barrier_ns).sum();
    assert_eq!(barrier, analysis.blocks.iter().map(BlockTime::barrier_ns).sum::<u64>());
    path_covers_the_token(trace, &analysis);
    assert!(!analysis.to_string().is_empty());
    assert!(!serde_json::to_string(&analysis).unwrap().is_empty());
}

fn path_covers_the_token(trace: &Trace, analysis: &Analysis) {
    let mut now = 0;
    for segment in &analysis.path.segments {
        assert!(segment.begin_ns == now && segment.end_ns > now, "{segment:?} at {now}");
        assert!(segment.block < trace.meta().blocks);
        now = segment.end_ns;
    }
    assert_eq!(now, analysis.token_ns);
    assert_eq!(analysis.path.totals.sum_ns(), analysis.token_ns);
    let phases: u64 = analysis.path.phases.iter().map(|row| row.time.sum_ns()).sum();
    assert!(phases <= analysis.token_ns);
}

proptest! {
    #[test]
    fn a_dump_goes_through_the_file_unchanged_less_what_the_page_lacks(dump in any_dump()) {
        let trace = trace_from_dump(&dump).unwrap();
        let read = page::read(&page::write(&trace)).unwrap();
        prop_assert_eq!((read.meta(), read.streams()), (trace.meta(), trace.streams()));
        let is_kept = |span: &Span| match span.role {
            Role::Consumer => true,
            Role::Epilogue => span.kind != EventKind::WaitBarrier,
            Role::Loader => false,
        };
        let kept: Vec<_> = trace.spans().iter().filter(is_kept).collect();
        prop_assert_eq!(read.spans().iter().collect::<Vec<_>>(), kept);
        prop_assert_eq!(page::write(&read), page::write(&trace));
    }

    #[test]
    fn the_file_is_what_the_schema_says(dump in any_dump()) {
        let schema = serde_json::from_str(include_str!("../../trace.schema.json")).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut json = Vec::new();
        let file = page::write(&trace_from_dump(&dump).unwrap());
        GzDecoder::new(&file[..]).read_to_end(&mut json).unwrap();
        let file = serde_json::from_slice(&json).unwrap();
        let errors: Vec<_> = validator.iter_errors(&file).map(|e| e.to_string()).collect();
        prop_assert_eq!(errors, [""; 0]);
    }

    #[test]
    fn spans_are_the_time_between_stamps(dump in any_dump()) {
        let trace = trace_from_dump(&dump).unwrap();
        for (block, part) in dump.blocks.iter().enumerate() {
            let roles = [
                (Role::Consumer, &part.consumer),
                (Role::Loader, &part.loader),
                (Role::Epilogue, &part.epilogue),
            ];
            for (role, stamps) in roles {
                let recorded = stamps.windows(2).filter(|p| p[0].kind != EventKind::Unrecorded);
                let expected: u64 = recorded.map(|pair| pair[1].clock - pair[0].clock).sum();
                let own = trace
                    .spans()
                    .iter()
                    .filter(|span| usize::from(span.block) == block && span.role == role);
                prop_assert_eq!(own.map(|span| span.duration_ns()).sum::<u64>(), expected);
            }
        }
        let bytes: u64 = trace.streams().bytes.iter().sum();
        let copied = trace.copies().bytes.iter().map(|&bytes| u64::from(bytes));
        prop_assert_eq!(bytes, copied.sum::<u64>());
    }

    #[test]
    fn no_time_is_lost_or_counted_twice(dump in any_dump()) {
        let trace = trace_from_dump(&dump).unwrap();
        adds_up(&trace);
        let table = Analysis::of(&trace).to_string();
        let wide: Vec<&str> = table.lines().filter(|line| line.chars().count() > 100).collect();
        prop_assert_eq!(wide, [""; 0]);
    }

    #[test]
    fn a_changed_stamp_is_refused_or_still_adds_up(
        mut dump in any_dump(),
        index in any::<prop::sample::Index>(),
        values in any::<(u64, u16, u16, bool)>(),
        fields in any::<[bool; 4]>(),
        kind in prop::sample::select(EventKind::ALL),
        phase in prop::sample::select(Phase::ALL),
    ) {
        let stamps = dump.blocks.iter_mut().flat_map(|block| &mut block.consumer);
        let mut stamps: Vec<_> = stamps.collect();
        let index = index.index(stamps.len());
        let stamp = &mut *stamps[index];
        if fields[0] { stamp.clock = values.0 }
        if fields[1] { stamp.layer = if values.3 { NO_LAYER } else { values.1 } }
        if fields[2] { stamp.producer = if values.3 { NO_BLOCK } else { values.2 } }
        if fields[3] { (stamp.kind, stamp.phase) = (kind, phase) }
        if let Ok(trace) = trace_from_dump(&dump) {
            adds_up(&trace);
            prop_assert!(page::read(&page::write(&trace)).is_ok());
        }
    }

    #[test]
    fn any_bytes_at_all(bytes in prop::collection::vec(any::<u8>(), 0..300), packed: bool) {
        let magic: &[u8] = if packed { &[0x1f, 0x8b, 8] } else { b"{" };
        holds(&bytes);
        holds(&[magic, &bytes].concat());
    }

    #[test]
    fn a_file_with_a_few_bytes_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        for mut bytes in small_files() {
            for (index, byte) in &changes {
                let index = index.index(bytes.len());
                bytes[index] = *byte;
            }
            if let Some(cut) = &cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            holds(&bytes);
        }
    }

    #[test]
    fn a_file_with_one_digit_changed(index: prop::sample::Index, digit in b'0'..=b'9') {
        let [_, _, threads, blocks] = small_files();
        for mut plain in [threads, blocks] {
            let digits: Vec<usize> =
                (0..plain.len()).filter(|&at| plain[at].is_ascii_digit()).collect();
            plain[digits[index.index(digits.len())]] = digit;
            holds(&plain);
        }
    }
}
