//! Round trips over odd shapes, and the refusal, by name, of everything that is not a whole pack.

use monolith_abi::pack::{FRAGMENT_COLS, LAYOUT_VERSION, PREAMBLE_BYTES, TILE_ROWS};
use monolith_model::{Config, MemoryWeights, Tensor, Weights};
use monolith_pack::{Pack, PackError, Section, Source, pack_to_bytes, pack_to_file};
use proptest::prelude::*;

fn config(dims: [usize; 7], tied: bool) -> Config {
    let [hidden, intermediate, layers, kv_heads, group, half_head, vocab] = dims;
    Config {
        hidden,
        intermediate,
        layers,
        heads: kv_heads * group,
        kv_heads,
        head_dim: 2 * half_head,
        vocab,
        max_positions: 64,
        tied,
        ..Config::qwen3_0_6b()
    }
}

fn small() -> Config {
    config([24, 20, 2, 1, 2, 4, 37], false)
}

/// Every element of every tensor is another bf16 value, as far as 16 bits go.
fn distinct(config: &Config) -> MemoryWeights {
    let mut bits = 0u16;
    MemoryWeights::from_fn(config, |_, _, _| {
        loop {
            bits = bits.wrapping_add(1);
            let value = f32::from_bits(u32::from(bits) << 16);
            if !value.is_nan() {
                break value;
            }
        }
    })
}

fn source() -> Source {
    Source { model: "test".into(), revision: Some("abc".into()) }
}

fn refused(bytes: Vec<u8>) -> PackError {
    Pack::from_bytes(bytes, "the.pack").expect_err("a damaged pack is refused")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tensors_come_back_bit_for_bit(
        dims in [1..70usize, 1..50usize, 1..4usize, 1..4usize, 1..4usize, 1..12usize, 1..90usize],
        tied in any::<bool>(),
    ) {
        let config = config(dims, tied);
        let weights = distinct(&config);
        let pack = Pack::from_bytes(pack_to_bytes(&weights, source()), "the.pack").unwrap();
        prop_assert_eq!(pack.config(), &config);
        prop_assert_eq!(pack.source(), &source());
        for tensor in Tensor::all(&config) {
            prop_assert_eq!(pack.tensor_bytes(tensor), weights.view(tensor).bytes());
        }
        for section in Section::all(&config).into_iter().filter(|section| !section.is_vector()) {
            let matrix = pack.matrix(section);
            prop_assert_eq!(matrix.tile_bytes(), matrix.padded_cols() * TILE_ROWS * 2);
            prop_assert_eq!(matrix.padded_cols() % FRAGMENT_COLS, 0);
            let bytes = matrix.tile_range(0..matrix.tiles()).len() as u64;
            prop_assert_eq!(bytes, section.bytes_bf16(&config));
        }
    }

    #[test]
    fn any_flipped_bit_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = pack_to_bytes(&distinct(&small()), source());
        let pack = Pack::from_bytes(bytes.clone(), "the.pack").unwrap();
        let at = at.index(bytes.len());
        let in_gap = !covered(&pack, at);
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(Pack::from_bytes(bytes, "the.pack").is_ok(), in_gap);
    }

    #[test]
    fn any_truncation_is_refused(keep in any::<prop::sample::Index>()) {
        let mut bytes = pack_to_bytes(&distinct(&small()), source());
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
fn covered(pack: &Pack, at: usize) -> bool {
    let text = serde_json::to_vec_pretty(pack.header()).expect("a header is plain data");
    let front = PREAMBLE_BYTES + text.len();
    let payload = front.next_multiple_of(4096);
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
    assert!(message.contains("layout version 0") && message.contains("monolith pack"), "{message}");

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

#[test]
fn bytes_per_token_follow_from_the_header() {
    let full = Config::qwen3_0_6b();
    let layer = 2 * (4096 * 1024 + 1024 * 2048 + 6144 * 1024 + 1024 * 3072) + 2 * (2048 + 256);
    let expected = 28 * layer + 2 * 151_936 * 1024 + 2 * 1024;
    let total: usize =
        Section::all(&full).iter().map(|section| section.bytes_bf16(&full) as usize).sum();
    assert_eq!(total, expected);

    for tied in [true, false] {
        let config = Config { tied, ..small() };
        let bytes = pack_to_bytes(&distinct(&config), source());
        let pack = Pack::from_bytes(bytes, "the.pack").unwrap();
        let header = pack.header();
        let stored: u64 = header.sections.iter().map(|entry| entry.bytes).sum();
        let unread = if tied { 0 } else { header.sections[0].bytes - 2 * config.hidden as u64 };
        assert_eq!(header.bytes_per_token, stored - unread);
        assert_eq!(header.bytes_at(3) - header.bytes_at(1), 2 * config.kv_bytes_per_position());
        let kinds: u64 = header.bytes_by_kind().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(kinds, stored);
    }
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pack");
    let weights = distinct(&small());
    let mut seen = Vec::new();
    let header = pack_to_file(&weights, source(), &path, |done, total| {
        seen.push((done, total));
        Ok(())
    })
    .unwrap();
    assert_eq!(seen.len(), header.sections.len());
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert_eq!(std::fs::read(&path).unwrap(), pack_to_bytes(&weights, source()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(Pack::open(&path).unwrap().header(), &header);

    let nowhere = dir.path().join("no/such/folder/a.pack");
    assert!(pack_to_file(&weights, source(), &nowhere, |_, _| Ok(())).is_err());
    assert!(matches!(Pack::open(&nowhere), Err(PackError::Io { .. })));
}

#[test]
fn a_progress_that_fails_ends_the_writing_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pack");
    let enough = |_, _| Err(std::io::ErrorKind::Interrupted.into());
    let error = pack_to_file(&distinct(&small()), source(), &path, enough).unwrap_err();
    assert!(matches!(error, PackError::Io { .. }), "{error}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}
