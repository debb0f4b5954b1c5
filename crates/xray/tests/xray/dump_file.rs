//! The dump on disk: what was written is read back, and anything else is refused.

use crate::dumps::{any_dump, small, streamed};
use monolith_xray::{DumpError, dump_file};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const HEADER: usize = 52;

/// A file with this body, and the right length and sha256 in its header.
fn file_of(body: &[u8]) -> Vec<u8> {
    let version = 3_u32.to_le_bytes();
    let length = (body.len() as u64).to_le_bytes();
    [&b"MONOXRAY"[..], &version, &length, &Sha256::digest(body)[..], body].concat()
}

fn refusal(bytes: &[u8]) -> DumpError {
    dump_file::read(bytes).unwrap_err()
}

#[test]
fn what_was_written_is_read() {
    for dump in [small(), streamed()] {
        let file = dump_file::write(&dump);
        assert!(dump_file::is_dump(&file));
        assert_eq!(file, dump_file::write(&dump));
        assert_eq!(file, file_of(&file[HEADER..]));
        assert_eq!(dump_file::read(&file), Ok(dump));
    }
}

#[test]
fn a_file_that_was_truncated_or_extended() {
    let file = dump_file::write(&streamed());
    for length in 0..file.len() {
        let refused = refusal(&file[..length]);
        match length {
            0..8 => assert!(matches!(refused, DumpError::Foreign(_)), "{length}"),
            8..HEADER => assert_eq!(refused, DumpError::ShortHeader(length)),
            _ => assert!(matches!(refused, DumpError::Length { .. }), "{length}"),
        }
    }
    let longer = refusal(&[&file[..], b"more"].concat()).to_string();
    assert!(longer.contains("the file was truncated or extended"), "{longer}");
}

#[test]
fn every_changed_bit_is_seen() {
    let file = dump_file::write(&small());
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut file = file.clone();
            file[at] ^= 1 << bit;
            assert!(dump_file::read(&file).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn files_of_something_else() {
    assert_eq!(refusal(b""), DumpError::Foreign(vec![]));
    assert!(refusal(b"PK\x03\x04 and more").to_string().starts_with("not a dump: the file begins"));
    let mut old = dump_file::write(&small());
    old[8] = 1;
    assert_eq!(
        refusal(&old).to_string(),
        "the dump's version is 1, this program reads 3: record it again"
    );
}

#[test]
fn wrong_bodies_with_a_right_sha256() {
    let body = dump_file::write(&small())[HEADER..].to_vec();
    let changed = |at: usize, bytes: &[u8]| {
        let mut body = body.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        refusal(&file_of(&body)).to_string()
    };
    let huge = changed(0, &u64::MAX.to_le_bytes());
    let left = body.len() - 8;
    assert_eq!(
        huge,
        format!(
            "byte 52: {} x the engine's name do not fit into the {left} bytes that are left",
            u64::MAX
        )
    );
    assert_eq!(changed(8, &[0xff]), "byte 60: the engine's name is not UTF-8 text");
    // Five texts, layers, position, two clocks, no phases' bytes.
    let texts = 5 * 8 + "cpubf16-cpua testQwen3-0.6B".len();
    let pace = texts + 2 + 4 + 8 + 8 + 8;
    let at = HEADER + pace;
    assert_eq!(changed(pace, &[2]), format!("byte {at}: 2 is not a valid pace flag (0 or 1)"));
    let blocks = changed(pace + 1, &1_000_000_u64.to_le_bytes());
    assert!(blocks.contains(": 1000000 x block do not fit"), "{blocks}");
    let stamp = pace + 1 + 8 + 2 + 8 + 8;
    let kind = HEADER + stamp + 12;
    assert_eq!(changed(stamp + 12, &[7]), format!("byte {kind}: 7 is not a valid kind"));
    assert_eq!(changed(stamp + 13, &[8]), format!("byte {}: 8 is not a valid phase", kind + 1));
    let longer = [&body[..], b"end"].concat();
    let trailing = refusal(&file_of(&longer));
    assert_eq!(trailing, DumpError::Trailing { at: HEADER + body.len(), left: 3 });
    for length in 0..body.len() {
        let refused = refusal(&file_of(&body[..length]));
        let short = matches!(refused, DumpError::Short { .. } | DumpError::Count { .. });
        assert!(short, "{length}: {refused}");
    }
}

proptest! {
    #[test]
    fn any_dump_is_read_as_written(dump in any_dump()) {
        prop_assert_eq!(dump_file::read(&dump_file::write(&dump)), Ok(dump));
    }

    #[test]
    fn any_body_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(dump) = dump_file::read(&file_of(&body)) {
            prop_assert_eq!(dump_file::write(&dump), file_of(&body));
        }
    }

    #[test]
    fn bodies_with_a_few_bytes_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut body = dump_file::write(&streamed())[HEADER..].to_vec();
        for (index, byte) in changes {
            let index = index.index(body.len());
            body[index] = byte;
        }
        if let Ok(dump) = dump_file::read(&file_of(&body)) {
            // The dump may still be nonsense: then it is refused, without a panic.
            let _ = monolith_xray::trace_from_dump(&dump).map(|t| monolith_xray::Analysis::of(&t));
        }
    }
}
