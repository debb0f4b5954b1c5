//! bf16 packs: every bit comes back.

use crate::support::{config, distinct, small, source};
use monolith_abi::WeightFormat;
use monolith_abi::formats::{TILE_ROWS, bf16::FRAGMENT_COLS};
use monolith_model::{Config, Tensor, Weights};
use monolith_pack::{Pack, PackError, Section, pack_to_bytes, pack_to_file};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tensors_come_back_bit_for_bit(
        dims in [1..70usize, 1..50usize, 1..4usize, 1..4usize, 1..4usize, 1..12usize, 1..90usize],
        tied in any::<bool>(),
        at in any::<prop::sample::Index>(),
    ) {
        let config = config(dims, tied);
        let weights = distinct(&config);
        let pack = Pack::from_bytes(pack_to_bytes(&weights, source()), "the.pack").unwrap();
        prop_assert_eq!(pack.config(), &config);
        prop_assert_eq!(pack.source(), &source());
        for tensor in Tensor::all(&config) {
            prop_assert_eq!(pack.tensor_bytes(tensor), weights.view(tensor).bytes());
            let rows = tensor.shape(&config).0;
            let parts = [0..at.index(rows), at.index(rows)..rows];
            let parts = parts.map(|rows| pack.value_row_bytes(tensor, rows)).concat();
            prop_assert_eq!(parts, weights.view(tensor).bytes());
        }
        for section in Section::all(&config).into_iter().filter(|section| !section.is_vector()) {
            let matrix = pack.matrix(section);
            prop_assert_eq!(matrix.tile_bytes(), matrix.padded_cols() * TILE_ROWS * 2);
            prop_assert_eq!(matrix.padded_cols() % FRAGMENT_COLS, 0);
            let bytes = matrix.tile_range(0..matrix.tiles()).len() as u64;
            prop_assert_eq!(bytes, section.bytes(&config, WeightFormat::Bf16));
        }
    }
}

#[test]
fn bytes_per_token_follow_from_the_header() {
    let full = Config::qwen3_0_6b();
    let layer = 2 * (4096 * 1024 + 1024 * 2048 + 6144 * 1024 + 1024 * 3072) + 2 * (2048 + 256);
    let expected = 28 * layer + 2 * 151_936 * 1024 + 2 * 1024;
    let total: usize = Section::all(&full)
        .iter()
        .map(|section| section.bytes(&full, WeightFormat::Bf16) as usize)
        .sum();
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
    assert!(seen.len() >= header.sections.len());
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 == pair[1].1));
    let (done, total) = seen[seen.len() - 1];
    assert_eq!(done, total);
    assert_eq!(std::fs::read(&path).unwrap(), pack_to_bytes(&weights, source()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(Pack::open(&path).unwrap().header(), &header);
    let most = std::sync::atomic::AtomicU64::new(0);
    Pack::open_watched(&path, &|done, all| {
        assert_eq!(all, total);
        most.fetch_max(done, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    })
    .unwrap();
    assert_eq!(most.into_inner(), total);
    let refuse = |_, _| Err(std::io::ErrorKind::Interrupted.into());
    assert!(matches!(Pack::open_watched(&path, &refuse), Err(PackError::Io { .. })));

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
