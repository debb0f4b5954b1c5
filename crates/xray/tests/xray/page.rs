//! The page's file: what it says, and what is refused.

use crate::dumps::small;
use flate2::{Compression, write::GzEncoder};
use monolith_abi::{EventKind, Phase};
use monolith_xray::{TraceError, page, trace_from_dump};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn small_file() -> Vec<u8> {
    page::write(&trace_from_dump(&small(), "Qwen3-0.6B").unwrap())
}

fn small_json() -> Value {
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(&small_file()[..]).read_to_end(&mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// The refusal of the small file with the value at `pointer` replaced.
fn refusal_with(pointer: &str, value: Value) -> String {
    let mut file = small_json();
    *file.pointer_mut(pointer).unwrap() = value;
    page::read(file.to_string().as_bytes()).unwrap_err().to_string()
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../../trace.schema.json")).unwrap()
}

#[test]
fn the_file_says_this() {
    let file = small_json();
    assert_eq!(
        file["meta"],
        json!({
            "engine": "cpu", "variant": "bf16-cpu", "device": "a test", "model": "Qwen3-0.6B",
            "position": 7, "blocks": 2, "layers": 1, "token_ns": 1000, "clock_error_ns": 25,
            "overflow": 0, "generator": concat!("monolith-xray ", env!("CARGO_PKG_VERSION")),
        })
    );
    assert_eq!(
        file["spans"],
        json!({
            "block": [0, 0, 0, 0, 1, 1, 1, 1],
            "kind": [0, 0, 1, 0, 0, 1, 1, 0],
            "phase": [0, 1, 1, 2, 1, 2, 2, 7],
            "layer": [65535, 0, 0, 0, 0, 0, 0, 65535],
            "waits_on": [65535, 65535, 1, 65535, 65535, 0, 65535, 65535],
            "begin_ns": [0, 100, 400, 650, 150, 700, 900, 930],
            "end_ns": [100, 400, 650, 900, 650, 900, 930, 1000],
        })
    );
}

#[test]
fn the_schema_describes_the_file() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(&small_json()).map(|e| e.to_string()).collect();
    assert_eq!(errors, [""; 0]);
    let mut stray = small_json();
    stray["meta"]["temperature"] = json!(1);
    assert!(!validator.is_valid(&stray));
}

#[test]
fn the_schema_knows_every_name() {
    let schema = schema();
    let phases: Vec<_> = Phase::ALL.iter().map(|phase| phase.name()).collect();
    let kinds: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(schema["properties"]["phases"]["items"]["enum"], json!(phases));
    assert_eq!(schema["properties"]["kinds"]["items"]["enum"], json!(kinds));
    assert_eq!(schema["properties"]["schema"]["const"], json!(page::SCHEMA));
}

#[test]
fn the_same_trace_gives_the_same_bytes_and_reads_back() {
    let trace = trace_from_dump(&small(), "Qwen3-0.6B").unwrap();
    assert_eq!(page::write(&trace), page::write(&trace));
    assert_eq!(page::read(&page::write(&trace)), Ok(trace.clone()));
    assert_eq!(page::read(small_json().to_string().as_bytes()), Ok(trace));
}

#[test]
fn ids_go_by_name() {
    let mut file = small_json();
    file["phases"] = json!(["argmax", "qkv", "attention", "embed"]);
    file["spans"]["phase"] = json!([3, 1, 1, 2, 1, 2, 2, 0]);
    let trace = trace_from_dump(&small(), "Qwen3-0.6B").unwrap();
    assert_eq!(page::read(file.to_string().as_bytes()), Ok(trace));
}

#[test]
fn later_versions_are_refused_by_what_is_new() {
    assert_eq!(
        refusal_with("/schema", json!("monolith-trace/2")),
        "schema is \"monolith-trace/2\", this version reads \"monolith-trace/1\""
    );
    assert_eq!(
        refusal_with("/kinds", json!(["work", "wait_ring"])),
        "kinds: unknown name \"wait_ring\""
    );
    assert_eq!(refusal_with("/phases/3", json!("qk_norm")), "phases: unknown name \"qk_norm\"");
    assert_eq!(refusal_with("/phases/3", json!("qkv")), "phases: \"qkv\" is listed twice");
    assert!(refusal_with("/meta", json!({"clock": 1})).contains("unknown field `clock`"));
}

#[test]
fn values_that_cannot_be() {
    assert_eq!(
        refusal_with("/kinds", json!(["work"])),
        "spans.kind[2] is 1, but there are 1 names"
    );
    assert_eq!(refusal_with("/spans/layer", json!([0])), "spans.layer has 1 values, spans.block 8");
    assert_eq!(
        refusal_with("/spans/waits_on/2", json!(9)),
        "record 2 (block 0, wait_exchange qkv of layer 0) waits on block 9, but there are 2 blocks"
    );
    for value in [json!(-1), json!(1.5), json!("1"), json!(null), json!(65536)] {
        assert!(refusal_with("/spans/block/0", value).starts_with("not a trace's JSON"));
    }
    assert!(refusal_with("/spans", json!({})).contains("missing field `block`"));
}

#[test]
fn files_of_something_else() {
    let refusal = |bytes: &[u8]| page::read(bytes).unwrap_err();
    assert_eq!(refusal(b""), TraceError::Foreign(vec![]));
    let zip = "neither gzip nor JSON: the file begins with [50, 4b, 03, 04]";
    assert_eq!(refusal(b"PK\x03\x04zip").to_string(), zip);
    assert!(refusal(b"{}").to_string().contains("missing field `schema`"));
    assert!(refusal(br#"{"traceEvents":[]}"#).to_string().contains("missing field `schema`"));
    assert!(matches!(refusal(&gzip(b"\x00\x01")), TraceError::Json(_)));
}

#[test]
fn broken_gzip() {
    let file = small_file();
    let refusal = |bytes: &[u8]| page::read(bytes).unwrap_err();
    for length in 2..file.len() {
        assert!(matches!(refusal(&file[..length]), TraceError::Gzip(_)), "cut at {length}");
    }
    let mut wrong_sum = file.clone();
    let sum = wrong_sum.len() - 8;
    wrong_sum[sum] ^= 1;
    assert!(matches!(refusal(&wrong_sum), TraceError::Gzip(_)));
    assert_eq!(refusal(&[&file[..], b"more"].concat()), TraceError::TrailingBytes(4));
}

#[test]
fn a_small_file_does_not_unpack_to_fill_the_memory() {
    let bomb = gzip(&vec![b' '; page::MAX_JSON_BYTES + 1]);
    assert!(bomb.len() < 1 << 20);
    let refusal = page::read(&bomb).unwrap_err();
    assert_eq!(refusal.to_string(), "the text is longer than 67108864 bytes");
    let mut plain = vec![b' '; page::MAX_JSON_BYTES];
    plain.insert(0, b'{');
    assert_eq!(page::read(&plain), Err(refusal));
}
