//! Packs whose kinds of matrices have different formats.

use crate::support::{config, header_of, opened, ordinary, packed, refused, with_header};
use monolith_abi::{MatrixKind, WeightFormat};
use monolith_model::Tensor;
use monolith_pack::{Formats, LayerSection, Section};

/// Attention in bf16, the rest in FP8.
fn mixed() -> Formats {
    let kinds = [MatrixKind::Qkv, MatrixKind::OProj];
    kinds.into_iter().fold(Formats::FP8, |formats, kind| formats.with(kind, WeightFormat::Bf16))
}

#[test]
fn every_matrix_has_its_kinds_format_and_values() {
    for tied in [true, false] {
        let config = config([40, 36, 2, 1, 2, 4, 37], tied);
        let weights = ordinary(&config, 3);
        let [bf16, fp8, pack] = [Formats::BF16, Formats::FP8, mixed()].map(|f| opened(&weights, f));
        assert_eq!(pack.header().formats, mixed());
        assert_eq!(pack.header().geometry.len(), 2);
        for (section, entry) in Section::all(&config).into_iter().zip(&pack.header().sections) {
            let wanted = match section {
                Section::Layer(_, LayerSection::GateUp | LayerSection::Down) => "fp8",
                Section::Embedding | Section::LmHead => "fp8",
                _ => "bf16",
            };
            assert_eq!(entry.format, wanted, "{}", entry.name);
            assert_eq!(entry.quantization.is_some(), wanted == "fp8", "{}", entry.name);
        }
        for tensor in Tensor::all(&config) {
            let alike = if pack.is_bf16(tensor) { &bf16 } else { &fp8 };
            assert_eq!(pack.value_bytes(tensor), alike.value_bytes(tensor), "{}", tensor.name());
        }
        let unpacked = pack.unpacked();
        assert!(packed(&unpacked, mixed()).ends_with(pack.payload()), "packed again");
    }
}

#[test]
fn a_header_names_each_kind_and_contradictions_are_refused() {
    let good = packed(&ordinary(&config([40, 36, 2, 1, 2, 4, 37], true), 3), mixed());
    let header = header_of(&good);
    let wanted = serde_json::json!({
        "layers": "mixed", "head": "fp8",
        "qkv": "bf16", "o_proj": "bf16", "gate_up": "fp8", "down": "fp8",
    });
    assert_eq!(header["formats"], wanted);
    for (kind, value, part) in [
        ("qkv", "fp8", "section layers.0.qkv is not where the model asks"),
        ("layers", "fp8", "qkv is \"bf16\", but all layers' matrices are fp8"),
        ("down", "nvfp9", "unknown weight format \"nvfp9\""),
    ] {
        let mut header = header.clone();
        header["formats"][kind] = value.into();
        let mut bytes = good.clone();
        with_header(&mut bytes, &header);
        let error = refused(bytes).to_string();
        assert!(error.contains(part), "{error}");
    }
}
