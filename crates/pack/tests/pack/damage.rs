//! What is no whole pack is refused by name, and never by a panic.

use crate::support::{
    distinct, forged, header_bytes, header_of, ordinary, packed, payload_at, refused, small,
    source, with_header,
};
use monolith_abi::formats::fp8::fragment_index;
use monolith_abi::pack::{LAYOUT_VERSION, PREAMBLE_BYTES};
use monolith_pack::{Formats, Pack, PackError, Recipe, ScaleSearch, pack_to_bytes};
use proptest::prelude::*;
use sha2::Digest;

fn formats() -> impl Strategy<Value = Formats> {
    prop::sample::select(Formats::NAMED.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(90))]

    #[test]
    fn any_flipped_bit_is_refused(
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
        formats in formats(),
    ) {
        let mut bytes = packed(&ordinary(&small(), 1), formats);
        let pack = Pack::from_bytes(bytes.clone(), "the.pack").unwrap();
        let at = at.index(bytes.len());
        let in_gap = !covered(&pack, &bytes, at);
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(Pack::from_bytes(bytes, "the.pack").is_ok(), in_gap);
    }

    #[test]
    fn any_truncation_is_refused(keep in any::<prop::sample::Index>(), formats in formats()) {
        let mut bytes = packed(&ordinary(&small(), 1), formats);
        bytes.truncate(keep.index(bytes.len()));
        let error = refused(bytes);
        prop_assert!(
            matches!(error, PackError::Truncated { .. } | PackError::Foreign { .. }),
            "{}", error
        );
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        refused(bytes.clone());
        // The same behind a good preamble, as far as it is one.
        let good = pack_to_bytes(&distinct(&small()), source());
        bytes.splice(0..0, good[..PREAMBLE_BYTES].iter().copied());
        refused(bytes);
    }
}

/// Whether a byte is part of the preamble, the header or a section, and not of a gap between.
fn covered(pack: &Pack, bytes: &[u8], at: usize) -> bool {
    let front = PREAMBLE_BYTES + header_bytes(bytes);
    let payload = payload_at(bytes);
    at < front
        || pack.header().sections.iter().any(|entry| {
            let begin = payload + entry.offset as usize;
            (begin..begin + entry.bytes as usize).contains(&at)
        })
}

#[test]
fn each_damage_is_named() {
    let good = pack_to_bytes(&distinct(&small()), source());

    let mut older = good.clone();
    older[8..12].copy_from_slice(&(LAYOUT_VERSION - 1).to_le_bytes());
    let message = refused(older).to_string();
    assert!(message.contains("layout version 1") && message.contains("monolith pack"), "{message}");

    let mut newer = good.clone();
    newer[8..12].copy_from_slice(&(LAYOUT_VERSION + 1).to_le_bytes());
    assert!(refused(newer).to_string().contains("newer monolith"));

    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let message = refused(flipped).to_string();
    assert!(message.contains("altered") && message.contains("lm_head"), "{message}");

    let mut header = good.clone();
    header[PREAMBLE_BYTES + 40] ^= 1;
    assert!(refused(header).to_string().contains("header does not match"));

    let mut long = good.clone();
    long[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(refused(long), PackError::Truncated { .. }));

    for (bytes, word) in [
        (b"GGUF....".to_vec(), "GGUF"),
        (b"{\"a\": 1}".to_vec(), "JSON"),
        (b"\x10\0\0\0\0\0\0\0{}".to_vec(), "safetensors"),
        (b"".to_vec(), "empty"),
        (b"\x7fELF\x02\x01\x01\x00\x00".to_vec(), "7f454c46"),
    ] {
        let message = refused(bytes).to_string();
        assert!(message.contains("not a pack") && message.contains(word), "{message}");
    }
}

/// Sections of the small model's pack: the embedding, then five a layer.
const QKV: usize = 2;
const LAST: usize = 12;

#[test]
fn a_code_that_is_no_number_is_refused_by_place() {
    let good = packed(&ordinary(&small(), 1), Formats::FP8);
    // 32 rows of 24 columns, one fragment wide: the second tile begins behind the first's scales.
    for (row, col) in [(0, 0), (5, 7), (9, 23), (15, 8), (16, 0), (31, 23)] {
        for code in [0x7f, 0xff] {
            let mut bytes = good.clone();
            let at = row / 16 * (512 + 64) + fragment_index(row % 16, col);
            forged(&mut bytes, QKV, at, code);
            let error = refused(bytes);
            assert!(matches!(error, PackError::Content { .. }), "{error}");
            let expected = format!("layers.0.qkv, row {row}, column {col}: a NaN code");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
}

#[test]
fn a_scale_that_no_kernel_can_use_is_refused_by_row() {
    let good = packed(&ordinary(&small(), 1), Formats::FP8);
    // 37 rows are three tiles; row 36 is the last, 37 fills up.
    let of_row = |row: usize| row / 16 * (512 + 64) + 512 + 4 * (row % 16);
    for (row, byte, value) in [(36, 3, 0x80), (36, 3, 0xbf), (36, 3, 0x00), (37, 0, 1), (47, 3, 1)]
    {
        let mut bytes = good.clone();
        forged(&mut bytes, LAST, of_row(row) + byte, value);
        let error = refused(bytes).to_string();
        assert!(error.contains(&format!("lm_head, row {row}: its scale is")), "{error}");
    }
    let mut infinite = good.clone();
    forged(&mut infinite, LAST, of_row(0) + 3, 0x7f);
    forged(&mut infinite, LAST, of_row(0) + 2, 0x80);
    assert!(refused(infinite).to_string().contains("lm_head, row 0: its scale is"));
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let good = packed(&ordinary(&small(), 1), Formats::FP8_HEAD_BF16);
    let edits: [(&str, serde_json::Value); 15] = [
        ("/formats/layers", "bf16".into()),
        ("/formats/head", "fp8".into()),
        ("/formats/head", "fp4".into()),
        ("/sections/2/format", "bf16".into()),
        ("/sections/2/bytes", 1.into()),
        ("/sections/2/offset", 0.into()),
        ("/sections/0/quantization", header_of(&good)["sections"][2]["quantization"].clone()),
        ("/sections/2/quantization", serde_json::Value::Null),
        ("/sections/2/quantization/relative_error", (-0.5).into()),
        ("/sections/2/quantization/zeros", 1_000_000.into()),
        ("/sections/2/quantization/rows_taken_over", 33.into()),
        ("/geometry/1/scales", serde_json::Value::Null),
        ("/geometry/1/fragment_cols", 16.into()),
        ("/bytes_per_token", 1.into()),
        ("/tile_rows", 8.into()),
    ];
    for (place, value) in edits {
        let (mut bytes, mut header) = (good.clone(), header_of(&good));
        match header.pointer_mut(place) {
            Some(old) => *old = value,
            None => header["sections"][0]["quantization"] = value,
        }
        with_header(&mut bytes, &header);
        let error = refused(bytes);
        assert!(matches!(error, PackError::Header { .. }), "{place}: {error}");
    }
    let mut same = good.clone();
    with_header(&mut same, &header_of(&good));
    Pack::from_bytes(same, "the.pack").unwrap();
}

#[test]
fn sizes_whose_sums_overflow_are_refused_before_anything_is_added() {
    let good = packed(&ordinary(&small(), 1), Formats::FP8);
    let most = u64::MAX;
    let edits: [&[(&str, serde_json::Value)]; 7] = [
        &[("/sections/2/rows", most.into()), ("/sections/2/cols", most.into())],
        &[("/sections/2/rows", (1u64 << 33).into()), ("/sections/2/cols", (1u64 << 33).into())],
        &[("/sections/2/offset", most.into()), ("/sections/2/bytes", most.into())],
        &[
            ("/sections/2/quantization/rows_quantized", most.into()),
            ("/sections/2/quantization/rows_taken_over", most.into()),
        ],
        &[("/sections/2/quantization/saturated", most.into())],
        &[
            ("/config/hidden_size", (1 << 24).into()),
            ("/config/vocab_size", (1 << 24).into()),
            ("/config/intermediate_size", (1 << 24).into()),
            ("/config/num_hidden_layers", 65_534.into()),
        ],
        &[("/bytes_per_token", most.into()), ("/kv_bytes_per_position", most.into())],
    ];
    for edits in edits {
        let (mut bytes, mut header) = (good.clone(), header_of(&good));
        for (place, value) in edits {
            *header.pointer_mut(place).unwrap() = value.clone();
        }
        // Longer numbers: the text may need more room than there was.
        bytes = with_longer_header(&bytes, &header);
        let error = refused(bytes);
        assert!(matches!(error, PackError::Header { .. }), "{edits:?}: {error}");
    }
}

/// The same payload behind a header of any length.
fn with_longer_header(bytes: &[u8], header: &serde_json::Value) -> Vec<u8> {
    let payload = &bytes[payload_at(bytes)..];
    let length = serde_json::to_vec(header).unwrap().len();
    let mut longer = bytes[..PREAMBLE_BYTES].to_vec();
    longer[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    longer.resize((PREAMBLE_BYTES + length).next_multiple_of(4096), 0);
    longer.extend_from_slice(payload);
    with_header(&mut longer, header);
    longer
}

#[test]
fn a_header_that_says_something_twice_is_refused_by_name() {
    let good = packed(&ordinary(&small(), 1), Formats::BF16);
    let text = serde_json::to_string(&header_of(&good)).unwrap();
    let twice = text.replacen('{', r#"{"bytes_per_token":1,"#, 1);
    let mut bytes = good[..PREAMBLE_BYTES].to_vec();
    bytes[16..24].copy_from_slice(&(twice.len() as u64).to_le_bytes());
    bytes[32..64].copy_from_slice(&sha2::Sha256::digest(&twice));
    bytes.extend(twice.as_bytes());
    let error = refused(bytes).to_string();
    assert!(error.contains(r#"the key "bytes_per_token" is there twice"#), "{error}");
}

#[test]
fn packs_from_before_a_field_are_read_and_its_nonsense_is_not() {
    let recipe = Recipe::new(source(), Formats::FP8).scale_search(ScaleSearch::Mse);
    let good = recipe.end_ids([7, 9]).to_bytes(&ordinary(&small(), 1)).unwrap();
    let pack = Pack::from_bytes(good.clone(), "the.pack").unwrap();
    assert_eq!(pack.header().end_ids.as_deref(), Some(&[7, 9][..]));
    let mut old = header_of(&good);
    for name in ["end_ids", "scale_search"] {
        old.as_object_mut().unwrap().remove(name).unwrap();
    }
    let old = Pack::from_bytes(with_longer_header(&good, &old), "the.pack").unwrap();
    assert_eq!(old.header().end_ids, None);
    assert_eq!(old.header().scale_search, ScaleSearch::Amax);
    for (name, value) in [
        ("end_ids", serde_json::json!([-1])),
        ("end_ids", serde_json::json!(7)),
        ("end_ids", serde_json::json!([1u64 << 32])),
        ("scale_search", serde_json::json!("max")),
        ("scale_search", serde_json::json!(1)),
    ] {
        let mut header = header_of(&good);
        header[name] = value;
        let error = refused(with_longer_header(&good, &header));
        assert!(matches!(error, PackError::Header { .. }), "{name}: {error}");
    }
    let bf16 = packed(&ordinary(&small(), 1), Formats::BF16);
    let mut header = header_of(&bf16);
    header["scale_search"] = "mse".into();
    let error = refused(with_longer_header(&bf16, &header)).to_string();
    assert!(error.contains("scale_search mse, but no matrix has scales"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any edit of a header's text, sealed again: what a stranger could write.
    #[test]
    fn an_edited_header_never_panics(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        number in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
    ) {
        let recipe = Recipe::new(source(), Formats::FP8).scale_search(ScaleSearch::Mse);
        let mut bytes = recipe.end_ids([3]).to_bytes(&ordinary(&small(), 1)).unwrap();
        let room = header_bytes(&bytes);
        let mut text = String::from_utf8(bytes[PREAMBLE_BYTES..][..room].to_vec()).unwrap();
        if let Some((at, number)) = number {
            // Another number in place of one that is there.
            let digits: Vec<(usize, &str)> =
                text.match_indices(|c: char| c.is_ascii_digit()).collect();
            let at = digits[at.index(digits.len())].0;
            let rest = text[at..].trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
            text = format!("{}{number}{rest}", &text[..at]);
        }
        let mut text = text.into_bytes();
        text.resize(room, b' ');
        for (at, byte) in edits {
            let at = at.index(room);
            text[at] = byte;
        }
        bytes[32..64].copy_from_slice(&sha2::Sha256::digest(&text));
        bytes[PREAMBLE_BYTES..][..room].copy_from_slice(&text);
        if let Ok(pack) = Pack::from_bytes(bytes, "the.pack") {
            let header = pack.header();
            header.bytes_at(pack.config().max_positions);
            let _ = (header.bytes_by_kind(), header.quantization_by_kind());
        }
    }
}
