//! Each thing that is wrong is refused by its name.

use crate::dumps::{dump_of, small, wait, work};
use monolith_abi::Phase;
use monolith_abi::dump::{Dump, NO_BLOCK, NO_LAYER, Record};
use monolith_xray::{MAX_TOKEN_NS, Spans, Trace, trace_from_dump};

fn refusal(dump: &Dump) -> String {
    trace_from_dump(dump, "Qwen3-0.6B").unwrap_err().to_string()
}

/// The refusal of the small dump with one record changed.
fn refusal_with(index: usize, record: Record) -> String {
    let mut dump = small();
    dump.records[index] = record;
    refusal(&dump)
}

#[test]
fn records_out_of_bounds() {
    let qkv = |block, layer| work(block, Phase::Qkv, layer, 1100, 1400);
    assert_eq!(
        refusal_with(7, work(2, Phase::Argmax, NO_LAYER, 1950, 2000)),
        "record 7 (block 2, work argmax) names a block, but there are 2 blocks"
    );
    assert_eq!(
        refusal_with(1, qkv(0, 1)),
        "record 1 (block 0, work qkv of layer 1) names a layer, but the model has 1 layers"
    );
    assert_eq!(refusal_with(1, qkv(0, NO_LAYER)), "record 1 (block 0, work qkv) lacks its layer");
    assert_eq!(
        refusal_with(0, work(0, Phase::Embed, 0, 1000, 1100)),
        "record 0 (block 0, work embed of layer 0) has a layer, but its phase occurs once a step"
    );
}

#[test]
fn waits_on_nobody_there() {
    let qkv = |on| wait(0, Phase::Qkv, 0, on, 1400, 1650);
    let at = "record 2 (block 0, wait_exchange qkv of layer 0)";
    assert_eq!(refusal_with(2, qkv(2)), format!("{at} waits on block 2, but there are 2 blocks"));
    assert_eq!(refusal_with(2, qkv(0)), format!("{at} waits on its own block"));
    let busy = Record { waits_on: 1, ..work(0, Phase::Qkv, 0, 1100, 1400) };
    assert_eq!(
        refusal_with(1, busy),
        "record 1 (block 0, work qkv of layer 0) is work, but waits on block 1"
    );
}

#[test]
fn times_that_cannot_be() {
    let at = "record 1 (block 0, work qkv of layer 0)";
    let qkv = |begin, end| work(0, Phase::Qkv, 0, begin, end);
    assert_eq!(refusal_with(1, qkv(1100, 1099)), format!("{at} ends before it begins"));
    assert_eq!(refusal_with(1, qkv(1100, 3)), format!("{at} ends before it begins"));
    assert_eq!(
        refusal_with(1, qkv(1090, 1400)),
        format!("{at} begins 10 ns before the end of the record before it")
    );
    assert_eq!(
        refusal_with(7, work(1, Phase::Argmax, NO_LAYER, 1950, 1001 + MAX_TOKEN_NS)),
        "meta.token_ns is 3600000000001, more than 3600000000000"
    );
}

#[test]
fn blocks_that_do_not_follow_one_another() {
    let mut dump = small();
    dump.records.rotate_left(4);
    assert_eq!(refusal(&dump), "record 4 (block 0, work embed) comes after the records of block 1");
}

#[test]
fn nothing_to_see() {
    assert_eq!(refusal(&dump_of(2, 1, vec![])), "the trace has no spans");
    assert_eq!(refusal(&Dump { blocks: 0, ..small() }), "the trace has no blocks");
}

#[test]
fn metadata_that_no_engine_writes() {
    let not_text = |field| format!("meta.{field} is not a short line of text");
    assert_eq!(refusal(&Dump { engine: " ".into(), ..small() }), not_text("engine"));
    assert_eq!(refusal(&Dump { device: "a\nb".into(), ..small() }), not_text("device"));
    assert_eq!(refusal(&Dump { variant: "x".repeat(257), ..small() }), not_text("variant"));
    assert_eq!(trace_from_dump(&small(), "").unwrap_err().to_string(), not_text("model"));
    assert_eq!(
        refusal(&Dump { overflow: 1 << 53, ..small() }),
        "meta.overflow is 9007199254740992, more than 9007199254740991"
    );
    assert!(refusal(&Dump { clock_error_ns: u64::MAX, ..small() }).contains("clock_error_ns"));
}

#[test]
fn columns_put_together_by_hand() {
    let trace = trace_from_dump(&small(), "Qwen3-0.6B").unwrap();
    let (meta, spans) = (trace.meta(), trace.spans());
    let refusal = |meta, spans| Trace::new(meta, spans).unwrap_err().to_string();
    let uneven = Spans { layer: vec![None], ..spans.clone() };
    assert_eq!(refusal(meta.clone(), uneven), "spans.layer has 1 values, spans.block 8");
    let mut late = Spans::default();
    spans.iter().filter(|span| span.begin_ns > 0).for_each(|span| late.push(span));
    assert_eq!(refusal(meta.clone(), late), "the first span begins at 100 ns, not at 0");
    let mut longer = meta.clone();
    longer.token_ns = 1001;
    assert_eq!(
        refusal(longer, spans.clone()),
        "the last span ends at 1000 ns, but the token at 1001 ns"
    );
}

#[test]
fn what_did_not_fit_is_carried() {
    let dump = Dump { overflow: 12, ..small() };
    assert_eq!(trace_from_dump(&dump, "m").unwrap().meta().overflow, 12);
    assert_eq!(small().records[6].waits_on, NO_BLOCK);
}
