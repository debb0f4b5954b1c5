//! What holds for every dump, and for every file.

use crate::dumps::{any_dump, small};
use flate2::read::GzDecoder;
use monolith_xray::{Analysis, page, trace_from_dump};
use proptest::prelude::*;
use std::io::Read;

fn small_files() -> [Vec<u8>; 2] {
    let packed = page::write(&trace_from_dump(&small(), "Qwen3-0.6B").unwrap());
    let mut plain = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
    [packed, plain]
}

/// Reading either refuses, or gives a trace that can be added up and written again.
fn holds(bytes: &[u8]) {
    if let Ok(trace) = page::read(bytes) {
        let analysis = Analysis::of(&trace);
        assert!(!analysis.to_string().is_empty());
        assert_eq!(page::read(&page::write(&trace)), Ok(trace));
    }
}

proptest! {
    #[test]
    fn a_dump_goes_through_the_file_unchanged(dump in any_dump()) {
        let trace = trace_from_dump(&dump, "Qwen3-0.6B").unwrap();
        prop_assert_eq!(trace.spans().len(), dump.records.len());
        let start = dump.records.iter().map(|record| record.begin_ns).min().unwrap();
        for (span, record) in trace.spans().iter().zip(&dump.records) {
            prop_assert_eq!(span.begin_ns + start, record.begin_ns);
            prop_assert_eq!(span.end_ns + start, record.end_ns);
            prop_assert_eq!((span.block, span.phase), (record.block, record.phase));
        }
        prop_assert_eq!(page::read(&page::write(&trace)), Ok(trace));
    }

    #[test]
    fn no_time_is_lost_or_counted_twice(dump in any_dump()) {
        let analysis = Analysis::of(&trace_from_dump(&dump, "Qwen3-0.6B").unwrap());
        let unrecorded: u64 = analysis.unrecorded_ns.iter().sum();
        let spent = analysis.work_ns() + analysis.wait_ns() + unrecorded;
        prop_assert_eq!(spent, analysis.available_ns());
        let waits: u64 = analysis.waits.iter().map(|wait| wait.total_ns).sum();
        prop_assert_eq!(waits, analysis.wait_ns());
        for phase in &analysis.phases {
            prop_assert!(phase.work_max_ns <= analysis.token_ns);
            prop_assert!(phase.work_max_ns <= phase.work_ns);
            prop_assert!(phase.wait_max_ns <= phase.wait_ns);
        }
    }

    #[test]
    fn a_changed_record_is_refused_or_still_adds_up(
        mut dump in any_dump(),
        index in any::<prop::sample::Index>(),
        values in any::<(u64, u64, u16, u16, u16)>(),
        fields in any::<[bool; 5]>(),
    ) {
        let index = index.index(dump.records.len());
        let record = &mut dump.records[index];
        if fields[0] { record.begin_ns = values.0 }
        if fields[1] { record.end_ns = values.1 }
        if fields[2] { record.layer = values.2 }
        if fields[3] { record.block = values.3 }
        if fields[4] { record.waits_on = values.4 }
        if let Ok(trace) = trace_from_dump(&dump, "Qwen3-0.6B") {
            prop_assert_eq!(page::read(&page::write(&trace)), Ok(trace));
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
        let [_, mut plain] = small_files();
        let digits: Vec<usize> =
            (0..plain.len()).filter(|&at| plain[at].is_ascii_digit()).collect();
        plain[digits[index.index(digits.len())]] = digit;
        holds(&plain);
    }
}
