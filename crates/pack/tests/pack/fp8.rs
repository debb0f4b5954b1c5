//! FP8 packs hold exactly what quantizing each row gives.

use crate::support::{config, opened, ordinary, packed, small, source};
use float8::F8E4M3;
use half::bf16;
use monolith_abi::WeightFormat;
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::formats::fp8::{FRAGMENT_COLS, fragment_index};
use monolith_model::{Config, LayerTensor, MemoryWeights, StoredView, Tensor, Weights};
use monolith_pack::{
    Formats, LayerSection, Pack, PackError, Recipe, ScaleSearch, Section, pack_to_bytes_as,
};
use proptest::prelude::*;

/// A row's values and its scale by the other implementation. The quotient is taken in f64: in f32
/// it may fall on a tie beside which the exact one lies.
fn requantized(weights: &[f32]) -> (Vec<f32>, f32) {
    let largest = weights.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
    let scale = largest / 448.0;
    let value =
        |weight: &f32| F8E4M3::from_f64(f64::from(*weight) / f64::from(scale)).to_f32() * scale;
    (weights.iter().map(value).collect(), scale)
}

fn is_quantized(config: &Config, tensor: Tensor, formats: Formats) -> bool {
    let format = match tensor {
        _ if tensor.is_norm() => WeightFormat::Bf16,
        Tensor::Layer(..) => formats.map().layers().unwrap(),
        _ => formats.map().head(),
    };
    assert!(tensor.shape(config).0 > 0);
    format == WeightFormat::Fp8
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn values_come_back_as_quantizing_each_row_gives_them(
        dims in [1..70usize, 1..50usize, 1..4usize, 1..4usize, 1..4usize, 1..12usize, 1..90usize],
        tied in any::<bool>(),
        seed in any::<u64>(),
        formats in prop::sample::select(Formats::NAMED.to_vec()),
    ) {
        let config = config(dims, tied);
        let weights = ordinary(&config, seed);
        let pack = opened(&weights, formats);
        prop_assert_eq!(pack.config(), &config);
        prop_assert_eq!(pack.header().formats, formats);
        for tensor in Tensor::all(&config) {
            let cols = tensor.shape(&config).1;
            let seen = pack.tensor_f32(tensor);
            let rows = seen.chunks_exact(cols);
            prop_assert_eq!(rows.len(), tensor.shape(&config).0);
            for (row, seen) in rows.enumerate() {
                let given = weights.view(tensor).row_f32(row);
                if is_quantized(&config, tensor, formats) {
                    prop_assert_eq!(seen, requantized(&given).0, "{} row {}", tensor.name(), row);
                } else {
                    prop_assert_eq!(seen, given);
                }
            }
        }
    }

    #[test]
    fn every_section_is_as_large_as_its_header_says(
        dims in [1..70usize, 1..50usize, 1..4usize, 1..4usize, 1..4usize, 1..12usize, 1..90usize],
        tied in any::<bool>(),
        formats in prop::sample::select(Formats::NAMED.to_vec()),
    ) {
        let config = config(dims, tied);
        let pack = opened(&ordinary(&config, 0), formats);
        let header = pack.header();
        let sections = Section::all(&config);
        prop_assert_eq!(sections.len(), header.sections.len());
        for (section, entry) in sections.into_iter().zip(&header.sections) {
            let format = formats.of(section);
            prop_assert_eq!(&entry.format, format.name());
            prop_assert_eq!(entry.bytes, section.bytes(&config, format));
            prop_assert_eq!(entry.quantization.is_some(), format == WeightFormat::Fp8);
            if section.is_vector() {
                continue;
            }
            let matrix = pack.matrix(section);
            prop_assert_eq!(matrix.format, format);
            prop_assert_eq!(matrix.tile_range(0..matrix.tiles()).len() as u64, entry.bytes);
            let element = if format == WeightFormat::Fp8 { 1 } else { 2 };
            let fragments = matrix.padded_cols() * TILE_ROWS * element;
            prop_assert_eq!(matrix.tile_fragment_bytes(), fragments);
            let scales = if format == WeightFormat::Fp8 { 64 } else { 0 };
            prop_assert_eq!(matrix.tile_bytes(), fragments + scales);
        }
    }

    #[test]
    fn what_is_unpacked_packs_to_the_same_bytes(
        seed in any::<u64>(),
        tied in any::<bool>(),
        formats in prop::sample::select(Formats::NAMED.to_vec()),
    ) {
        let config = Config { tied, ..small() };
        let pack = opened(&ordinary(&config, seed), formats);
        let unpacked = pack.unpacked();
        prop_assert_eq!(Formats::as_stored(&unpacked), formats);
        for tensor in Tensor::all(&config) {
            let rows = tensor.shape(&config).0;
            prop_assert_eq!(unpacked.stored(tensor).rows_f32(0..rows), pack.tensor_f32(tensor));
        }
        let again = opened(&unpacked, formats);
        prop_assert_eq!(again.payload(), pack.payload());
    }
}

/// Lane and byte of the layout, element by element, with the padding around them.
#[test]
fn codes_and_scales_lie_where_the_layout_says() {
    let config = config([33, 13, 1, 1, 1, 3, 18], true);
    let weights = ordinary(&config, 3);
    let pack = opened(&weights, Formats::FP8);
    let matrix = pack.matrix(Section::LmHead);
    assert_eq!((matrix.tiles(), matrix.padded_cols(), matrix.tile_bytes()), (2, 64, 1024 + 64));
    for tile in 0..2 {
        let bytes = matrix.tile_range(tile..tile + 1);
        let scales = matrix.scales(tile);
        for (row, seen) in scales.into_iter().enumerate() {
            let stored = tile * TILE_ROWS + row;
            let expected = (stored < 18)
                .then(|| requantized(&weights.view(Tensor::Embedding).row_f32(stored)));
            let scale = expected.as_ref().map_or(0.0, |(_, scale)| *scale);
            assert_eq!(seen, scale);
            let at = 1024 + 4 * row;
            assert_eq!(bytes[at..at + 4], scale.to_le_bytes());
            for col in 0..64 {
                let at = col / FRAGMENT_COLS * 512 + fragment_index(row, col % 32);
                let value = F8E4M3::from_bits(bytes[at]).to_f32() * scale;
                let values = expected.as_ref().map_or(&[][..], |(values, _)| values);
                assert_eq!(value, values.get(col).copied().unwrap_or(0.0), "{stored} {col}");
                if stored >= 18 || col >= 33 {
                    assert_eq!(bytes[at], 0, "padding is zeros");
                }
            }
        }
    }
    // The thirteen gate rows end within the second tile: their padding has no scale either.
    let gate_up = pack.matrix(Section::Layer(0, LayerSection::GateUp));
    let zeros = gate_up.scales(1).map(|scale| scale == 0.0);
    assert_eq!(zeros[..8], [false, false, false, false, false, true, true, true]);
    assert_eq!(zeros[8..], zeros[..8]);
}

#[test]
fn rows_without_a_form_are_refused_by_name() {
    let config = small();
    let down = Tensor::Layer(1, LayerTensor::DownProj);
    let cases: [(Tensor, usize, f32, &str); 4] = [
        (down, 23, f32::NAN, "model.layers.1.mlp.down_proj.weight, row 23: column 3 is NaN"),
        (down, 0, f32::INFINITY, "model.layers.1.mlp.down_proj.weight, row 0: column 3 is inf"),
        (Tensor::LmHead, 36, f32::NEG_INFINITY, "lm_head.weight, row 36: column 3 is -inf"),
        (Tensor::Embedding, 9, f32::NAN, "model.embed_tokens.weight, row 9: column 3 is NaN"),
    ];
    for (tensor, row, value, message) in cases {
        let mut weights = ordinary(&config, 1);
        weights.set(tensor, row, 3, value);
        let error = pack_to_bytes_as(&weights, source(), Formats::FP8).unwrap_err();
        assert!(matches!(error, PackError::Row { .. }), "{error}");
        assert!(error.to_string().contains(message), "{error}");
        packed(&weights, Formats::BF16);
    }
    // Rows 7 and 19 are the two that are wrong: the first is told.
    for (value, message) in
        [(0.0, "row 7: all of its values are 0"), (1e-38, "row 7: its largest value")]
    {
        let weights = MemoryWeights::from_fn(&config, |tensor, row, _| {
            let wrong = tensor == Tensor::Layer(0, LayerTensor::OProj) && [7, 19].contains(&row);
            if wrong { value } else { 1.0 }
        });
        let error = pack_to_bytes_as(&weights, source(), Formats::FP8).unwrap_err().to_string();
        assert!(
            error.contains("layers.0.self_attn.o_proj.weight") && error.contains(message),
            "{error}"
        );
    }
    // A norm's weight is never quantized: it may be anything.
    let mut weights = ordinary(&config, 1);
    weights.set(Tensor::FinalNorm, 0, 0, 0.0);
    packed(&weights, Formats::FP8);
}

#[test]
fn a_refusal_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut weights = ordinary(&small(), 1);
    weights.set(Tensor::LmHead, 0, 0, f32::NAN);
    let path = dir.path().join("a.pack");
    let recipe = |formats| Recipe::new(source(), formats);
    recipe(Formats::FP8).write(&weights, &path, |_, _| Ok(())).unwrap_err();
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    let header = recipe(Formats::FP8_HEAD_BF16).write(&weights, &path, |_, _| Ok(())).unwrap();
    assert_eq!(Pack::open(&path).unwrap().header(), &header);
}

#[test]
fn the_report_counts_what_was_lost() {
    let config = config([40, 16, 2, 1, 1, 4, 20], true);
    // Powers of two lose nothing; one value is 2^-20 of its row's largest, so it becomes 0.
    let mut weights = MemoryWeights::from_fn(&config, |_, _, col| 2f32.powi(col as i32 % 8));
    let q = Tensor::Layer(1, LayerTensor::QProj);
    weights.set(q, 0, 0, 2f32.powi(-13));
    weights.set(Tensor::Layer(0, LayerTensor::UpProj), 5, 1, 0.0);
    let pack = opened(&weights, Formats::FP8);
    let kinds = pack.header().quantization_by_kind();
    let names: Vec<&str> = kinds.iter().map(|report| report.kind.as_str()).collect();
    assert_eq!(names, ["qkv", "o_proj", "gate_up", "down", "lm_head"]);
    let qkv = &kinds[0];
    assert_eq!((qkv.matrices, qkv.rows_quantized, qkv.weights), (2, 48, 48 * 40));
    assert_eq!((qkv.zeros, qkv.saturated, qkv.rows_taken_over), (1, 0, 0));
    assert_eq!(qkv.worst_section, "layers.1.qkv");
    assert!(qkv.worst_row_error > qkv.worst_error && qkv.worst_error > 0.0, "{qkv:?}");
    assert!((qkv.mean_error - qkv.worst_error / 2.0).abs() < 1e-6, "{qkv:?}");
    assert_eq!(kinds[2].zeros, 0, "what was 0 did not become 0");
    assert!(kinds[1..].iter().all(|report| report.worst_error < 1e-6), "{kinds:?}");
    assert!(opened(&weights, Formats::BF16).header().quantization_by_kind().is_empty());
}

#[test]
fn quantizing_loses_what_three_bits_of_mantissa_lose() {
    let pack = opened(&ordinary(&config([64, 48, 2, 2, 2, 8, 90], true), 9), Formats::FP8);
    for report in pack.header().quantization_by_kind() {
        // A relative error of at most 1/16, evenly spread, has an rms of about 1/40.
        let errors = [report.mean_error, report.worst_error, report.worst_row_error];
        assert!(errors.iter().all(|error| (0.015..0.035).contains(error)), "{report:?}");
    }
}

#[test]
fn bytes_per_token_are_those_of_codes_and_scales() {
    let full = Config::qwen3_0_6b();
    let of = |section: Section| section.bytes(&full, WeightFormat::Fp8);
    assert_eq!(of(Section::LmHead), 151_936 * (1024 + 4));
    assert_eq!(of(Section::Layer(0, LayerSection::Down)), 1024 * (3072 + 4));
    assert_eq!(of(Section::Layer(0, LayerSection::Norms)), 2 * (2048 + 256));
    for tied in [true, false] {
        for formats in Formats::NAMED {
            let config = Config { tied, ..small() };
            let pack = opened(&ordinary(&config, 1), formats);
            let header = pack.header();
            let stored: u64 = header.sections.iter().map(|entry| entry.bytes).sum();
            let row = match formats.map().head() {
                WeightFormat::Bf16 => 2 * config.hidden as u64,
                WeightFormat::Fp8 => config.hidden as u64 + 4,
            };
            let unread = if tied { 0 } else { header.sections[0].bytes - row };
            assert_eq!(header.bytes_per_token, stored - unread);
        }
    }
}

#[test]
fn the_same_weights_give_the_same_bytes() {
    let weights = ordinary(&config([64, 48, 3, 2, 2, 8, 333], true), 9);
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let alone = one.install(|| packed(&weights, Formats::FP8));
    let many = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    assert!(many.install(|| packed(&weights, Formats::FP8)) == alone);
}

#[test]
fn values_by_rows_are_the_values() {
    let pack = opened(&ordinary(&small(), 3), Formats::FP8);
    for tensor in Tensor::all(pack.config()) {
        let rows = tensor.shape(pack.config()).0;
        let by_row = (0..rows).flat_map(|row| pack.value_row_bytes(tensor, row..row + 1));
        assert_eq!(by_row.collect::<Vec<u8>>(), pack.value_bytes(tensor));
        let values = pack.tensor_f32(tensor);
        let bits = |value: &f32| match pack.is_bf16(tensor) {
            true => value.to_le_bytes()[2..].to_vec(),
            false => value.to_le_bytes().to_vec(),
        };
        assert_eq!(pack.value_bytes(tensor), values.iter().flat_map(bits).collect::<Vec<u8>>());
    }
}

#[test]
fn other_formats_have_no_bf16_bits() {
    let pack = opened(&ordinary(&small(), 1), Formats::FP8);
    let unpacked = pack.unpacked();
    assert!(matches!(unpacked.stored(Tensor::LmHead), StoredView::Fp8(_)));
    assert!(std::panic::catch_unwind(|| unpacked.view(Tensor::LmHead).rows).is_err());
    assert!(std::panic::catch_unwind(|| pack.tensor_bytes(Tensor::LmHead)).is_err());
    let expected = bf16::from_f32(pack.norm(Tensor::FinalNorm)[1]);
    assert_eq!(unpacked.view(Tensor::FinalNorm).at(0, 1), expected);
    let error = pack_to_bytes_as(&unpacked, source(), Formats::BF16).unwrap_err();
    assert!(matches!(&error, PackError::NotBf16 { .. }), "{error}");
    assert!(error.to_string().contains("model.embed_tokens.weight"), "{error}");
}

#[test]
fn scales_by_squared_error_lose_less_and_are_told_in_the_header() {
    let weights = ordinary(&small(), 4);
    let recipe = |search| Recipe::new(source(), Formats::FP8_HEAD_BF16).scale_search(search);
    let pack =
        |search| Pack::from_bytes(recipe(search).to_bytes(&weights).unwrap(), "the.pack").unwrap();
    let (amax, mse) = (pack(ScaleSearch::Amax), pack(ScaleSearch::Mse));
    assert_eq!(mse.header().scale_search, ScaleSearch::Mse);
    assert_eq!(
        recipe(ScaleSearch::Amax).to_bytes(&weights).unwrap(),
        packed(&weights, Formats::FP8_HEAD_BF16),
        "the default is written as it was before there was a choice"
    );
    for (amax, mse) in amax.header().sections.iter().zip(&mse.header().sections) {
        match (&amax.quantization, &mse.quantization) {
            (Some(amax), Some(mse)) => assert!(mse.relative_error < amax.relative_error),
            (None, None) => assert_eq!(amax.sha256, mse.sha256, "{}", amax.name),
            other => panic!("{other:?}"),
        }
    }
    // Nothing has scales: there was nothing to search.
    let bf16 = Recipe::new(source(), Formats::BF16).scale_search(ScaleSearch::Mse);
    assert_eq!(bf16.to_bytes(&weights).unwrap(), packed(&weights, Formats::BF16));
}

#[test]
fn the_number_of_threads_does_not_show_whatever_the_scales() {
    let weights = ordinary(&small(), 5);
    for search in ScaleSearch::ALL {
        let recipe = Recipe::new(source(), Formats::FP8).scale_search(search);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| recipe.to_bytes(&weights)).unwrap()
        };
        assert!(with(1) == with(5), "{}", search.name());
    }
}
