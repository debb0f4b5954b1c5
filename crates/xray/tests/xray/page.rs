//! The page's file: what it says, and what is refused.

use crate::dumps::{small, streamed};
use flate2::{Compression, write::GzEncoder};
use monolith_abi::dump::Dump;
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
    page::write(&trace_from_dump(&small()).unwrap())
}

fn json_of(dump: &Dump) -> Value {
    let file = page::write(&trace_from_dump(dump).unwrap());
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(&file[..]).read_to_end(&mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn small_json() -> Value {
    json_of(&small())
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
    let file = json_of(&streamed());
    assert_eq!(
        file["meta"],
        json!({
            "engine": "cuda", "variant": "bf16-cpu", "device": "a test", "model": "Qwen3-0.6B",
            "build": "0123abcd", "position": 7, "blocks": 3, "layers": 1, "token_ns": 1800,
            "clock_error_ns": 1, "overflow": 0, "sms": [4, 0, 2],
            "alignment": "none: all blocks read one clock (in steps of 1 ns)",
            "phase_bytes": { "qkv": 9000, "down": 5000 },
            "pace": { "headline_tok_s": 2000.0, "instrumented_tok_s": 1980.198,
                "overhead_pct": 1.0 },
            "generator": concat!("monolith-xray ", env!("CARGO_PKG_VERSION")),
        })
    );
    assert_eq!(
        file["streams"],
        json!({
            "counts": [2, 0, 2],
            "phase": [1, 5, 1, 5],
            "layer": [0, 0, 0, 0],
            "copies": [2, 1, 1, 1],
            "bytes": [8000, 2000, 1000, 3000],
            "begin_ns": [0, 320, 30, 330],
            "length_ns": [250, 480, 60, 670],
        })
    );
    let threads = small_json();
    assert_eq!((&threads["meta"]["build"], &threads["meta"]["sms"]), (&json!(null), &json!([])));
    assert_eq!(
        threads["spans"],
        json!({
            "counts": [4, 4],
            "kind": [0, 0, 1, 0, 0, 1, 1, 0],
            "phase": [0, 1, 1, 2, 1, 2, 2, 7],
            "layer": [65535, 0, 0, 0, 0, 0, 0, 65535],
            "waits_on": [65535, 65535, 1, 65535, 65535, 0, 65535, 65535],
            "gap_ns": [0, 0, 0, 0, 150, 50, 0, 0],
            "length_ns": [100, 300, 250, 250, 500, 200, 30, 70],
        })
    );
}

#[test]
fn the_schema_describes_the_file() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for file in [small_json(), json_of(&streamed())] {
        let errors: Vec<_> = validator.iter_errors(&file).map(|e| e.to_string()).collect();
        assert_eq!(errors, [""; 0]);
    }
    let mut stray = small_json();
    stray["meta"]["temperature"] = json!(1);
    assert!(!validator.is_valid(&stray));
}

#[test]
fn the_schema_knows_every_name() {
    let schema = schema();
    let phases: Vec<_> = Phase::ALL.iter().map(|phase| phase.name()).collect();
    let kinds: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(schema["$defs"]["phase"]["enum"], json!(phases));
    assert_eq!(schema["properties"]["kinds"]["items"]["enum"], json!(kinds));
    assert_eq!(schema["properties"]["schema"]["const"], json!(page::SCHEMA));
}

#[test]
fn the_same_trace_gives_the_same_bytes_and_reads_back() {
    let trace = trace_from_dump(&small()).unwrap();
    assert_eq!(page::write(&trace), page::write(&trace));
    assert_eq!(page::read(&page::write(&trace)), Ok(trace.clone()));
    assert_eq!(page::read(small_json().to_string().as_bytes()), Ok(trace));
}

#[test]
fn what_the_page_leaves_out_is_known_to_be() {
    let whole = trace_from_dump(&streamed()).unwrap();
    let read = page::read(&page::write(&whole)).unwrap();
    assert!(read.is_reduced() && !whole.is_reduced());
    assert_eq!((read.meta(), read.streams()), (whole.meta(), whole.streams()));
    assert_eq!((read.spans().len(), read.copies().len()), (whole.spans().len() - 6, 0));
    assert_eq!(page::write(&read), page::write(&whole));
}

#[test]
fn ids_go_by_name() {
    let mut file = small_json();
    file["phases"] = json!(["argmax", "qkv", "attention", "embed"]);
    file["spans"]["phase"] = json!([3, 1, 1, 2, 1, 2, 2, 0]);
    let trace = trace_from_dump(&small()).unwrap();
    assert_eq!(page::read(file.to_string().as_bytes()), Ok(trace));
}

#[test]
fn later_versions_are_refused_by_what_is_new() {
    assert_eq!(
        refusal_with("/schema", json!("monolith-trace/3")),
        "schema is \"monolith-trace/3\", this version reads \"monolith-trace/2\""
    );
    assert_eq!(
        refusal_with("/kinds", json!(["work", "wait_disk"])),
        "kinds: unknown name \"wait_disk\""
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
    assert_eq!(
        refusal_with("/spans/layer", json!([0])),
        "spans.layer has 1 values, but the list's other columns have 8"
    );
    assert_eq!(
        refusal_with("/spans/gap_ns", json!([0])),
        "spans.gap_ns has 1 values, but the list's other columns have 8"
    );
    assert_eq!(
        refusal_with("/spans/waits_on/2", json!(9)),
        "span 2 (block 0, consumer, wait_exchange qkv of layer 0) waits on block 9, but there are \
         2 blocks"
    );
    assert_eq!(
        refusal_with("/spans/counts/0", json!(4_294_967_295_u32)),
        "spans.counts has 2 blocks and 4294967299 rows, not 2 and 8"
    );
    assert_eq!(
        refusal_with("/spans/counts", json!([8])),
        "spans.counts has 1 blocks and 8 rows, not 2 and 8"
    );
    assert_eq!(
        refusal_with("/spans/length_ns/1", json!(u64::MAX)),
        "spans: the times of row 1 add up to more than 3600000000000 ns"
    );
    assert!(refusal_with("/spans/length_ns/1", json!(0)).ends_with("does not end after it begins"));
    assert!(refusal_with("/spans/length_ns/7", json!(71)).contains("after the token's end"));
    for value in [json!(-1), json!(1.5), json!("1"), json!(null), json!(65536)] {
        assert!(refusal_with("/spans/layer/0", value).starts_with("not a trace's JSON"));
    }
    assert!(refusal_with("/spans", json!({})).contains("missing field `counts`"));
    let bytes = refusal_with("/meta/phase_bytes", json!({"tea": 1}));
    assert!(bytes.contains("meta.phase_bytes: unknown phase \"tea\""), "{bytes}");
}

#[test]
fn streams_that_cannot_be() {
    let refusal = |pointer: &str, value: Value| {
        let mut file = json_of(&streamed());
        *file.pointer_mut(pointer).unwrap() = value;
        page::read(file.to_string().as_bytes()).unwrap_err().to_string()
    };
    let second = "stream 1 (block 0, down of layer 0)";
    assert_eq!(refusal("/streams/copies/1", json!(0)), format!("{second} loads no bytes"));
    assert_eq!(refusal("/streams/bytes/1", json!(0)), format!("{second} loads no bytes"));
    assert_eq!(
        refusal("/streams/length_ns/1", json!(1481)),
        format!("{second} arrives after the token's end")
    );
    assert_eq!(
        refusal("/streams/layer/1", json!(1)),
        "stream 1 (block 0, down of layer 1) names a layer, but the model has 1 layers"
    );
    let last = "stream 3 (block 2, down of layer 0)";
    assert_eq!(
        refusal("/streams/begin_ns/3", json!(29)),
        format!("{last} is out of order: rows are sorted by block, then by time of issue")
    );
    assert_eq!(
        refusal("/streams/counts", json!([2, 0, 1])),
        "streams.counts has 3 blocks and 3 rows, not 3 and 4"
    );
    assert_eq!(
        refusal("/streams/phase/0", json!(8)),
        "streams.phase[0] is 8, but there are 8 names"
    );
    assert!(refusal("/streams/bytes/0", json!(u64::MAX)).contains("meta.streams.bytes is"));
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

/// The memory that a reader takes is bounded by what it keeps.
#[test]
fn lists_longer_than_any_traces_are_refused_as_they_are_read() {
    let most = page::MAX_ROWS;
    let zeros = format!("[{}0]", "0,".repeat(most));
    for column in ["counts", "kind", "phase", "layer", "waits_on", "gap_ns", "length_ns"] {
        let mut json = small_json();
        json["spans"][column] = json!("HERE");
        let text = json.to_string().replace("\"HERE\"", &zeros);
        let refusal = page::read(text.as_bytes()).unwrap_err().to_string();
        assert!(refusal.contains(&format!("at most {most} values")), "{column}: {refusal}");
    }
    for list in ["phases", "kinds"] {
        for names in [vec![String::new(); 300], vec!["x".repeat(100_000)]] {
            let refusal = refusal_with(&format!("/{list}"), json!(names));
            assert!(refusal.starts_with("not a trace's JSON: "), "{list}: {refusal}");
        }
    }
}

/// Names out of a file reach terminals, pictures and Markdown.
#[test]
fn texts_that_steer_a_terminal_are_refused_without_being_repeated() {
    let plain = |text: &str| !text.chars().any(char::is_control);
    for evil in ["\u{1b}]0;x\u{7}", "\u{9b}2J", "a\nb", "a\rb", "\u{202e}gnp", "\0"] {
        for field in ["variant", "device", "model", "alignment", "generator"] {
            let refusal = refusal_with(&format!("/meta/{field}"), json!(evil));
            assert_eq!(refusal, format!("meta.{field} is not a short line of text"));
        }
        for pointer in ["/schema", "/phases/0", "/kinds/0"] {
            let refusal = refusal_with(pointer, json!(evil));
            assert!(plain(&refusal), "{pointer}: {refusal:?}");
        }
        let mut json = small_json();
        json["meta"]["phase_bytes"][evil] = json!(1);
        json[evil] = json!(1);
        let refusal = page::read(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(plain(&refusal), "{refusal:?}");
    }
}
