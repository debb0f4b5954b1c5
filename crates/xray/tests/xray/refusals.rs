//! Every error is refused with its own message.

use crate::dumps::{
    block_of, copy, dump_of, exchange, nothing, ring, ring_empty, small, streamed, work,
};
use monolith_abi::dump::{Anchor, Dump, NO_LAYER, Pace, Stamp};
use monolith_abi::{EventKind, Phase};
use monolith_xray::{Copies, MAX_TOKEN_NS, Spans, Trace, trace_from_dump};

fn refusal(dump: &Dump) -> String {
    trace_from_dump(dump).unwrap_err().to_string()
}

/// The refusal of the small dump with one stamp changed.
fn refusal_with(block: usize, index: usize, stamp: Stamp) -> String {
    let mut dump = small();
    dump.blocks[block].consumer[index] = stamp;
    refusal(&dump)
}

/// The refusal of the streamed dump, changed.
fn refusal_after(change: impl Fn(&mut Dump)) -> String {
    let mut dump = streamed();
    change(&mut dump);
    refusal(&dump)
}

#[test]
fn layers_that_are_not_the_models() {
    assert_eq!(
        refusal_with(0, 1, work(1100, Phase::Qkv, 1)),
        "span 1 (block 0, consumer, work qkv of layer 1) names a layer, but the model has 1 layers"
    );
    assert_eq!(
        refusal_with(0, 1, work(1100, Phase::Qkv, NO_LAYER)),
        "span 1 (block 0, consumer, work qkv) lacks its layer"
    );
    assert_eq!(
        refusal_with(0, 0, work(1000, Phase::Embed, 0)),
        "span 0 (block 0, consumer, work embed of layer 0) has a layer, but its phase occurs once \
         a step"
    );
}

#[test]
fn waits_on_blocks_that_do_not_exist() {
    let at = "span 2 (block 0, consumer, wait_exchange qkv of layer 0)";
    assert_eq!(
        refusal_with(0, 2, exchange(1400, Phase::Qkv, 0, 2)),
        format!("{at} waits on block 2, but there are 2 blocks")
    );
    assert_eq!(
        refusal_with(0, 1, Stamp { producer: 1, ..work(1100, Phase::Qkv, 0) }),
        "span 1 (block 0, consumer, work qkv of layer 0) waits on no exchange, but names block 1"
    );
}

#[test]
fn kinds_of_the_other_role() {
    assert_eq!(
        refusal_with(0, 1, ring_empty(1100, Phase::Qkv, 0)),
        "span 1 (block 0, consumer, wait_ring_empty qkv of layer 0) has a kind that its role \
         does not record"
    );
    let refusal = refusal_after(|dump| dump.blocks[0].loader[0] = ring(5000, Phase::Qkv, 0));
    assert!(refusal.contains("loader, wait_ring_full qkv of layer 0) has a kind"), "{refusal}");
}

#[test]
fn times_that_cannot_be() {
    assert_eq!(
        refusal_with(0, 1, work(999, Phase::Qkv, 0)),
        "block 0, consumer stamp 1 is at clock 999, earlier than the previous one at 1000"
    );
    assert_eq!(
        refusal_after(|dump| dump.blocks[2].loader[2].clock = 5),
        "block 2, loader stamp 2 is at clock 5, earlier than the previous one at 5050"
    );
    assert_eq!(
        refusal_with(1, 5, work(2000, Phase::Argmax, NO_LAYER)),
        "block 1, consumer stamp 5 is the last of its role, but is not `unrecorded`: its span has \
         no end"
    );
    let long = refusal_with(1, 5, nothing(1001 + MAX_TOKEN_NS));
    assert!(long.starts_with("the stamps span 3600000000001 ns, more than"), "{long}");
}

#[test]
fn copies_that_cannot_be() {
    let with = |index: usize, row| refusal_after(|dump| dump.blocks[0].copies[index] = row);
    let qkv = |issue, arrival, bytes| copy(issue, arrival, Phase::Qkv, 0, bytes);
    assert_eq!(with(1, qkv(5020, 5019, 1)), "block 0, copy 1 arrives before it is issued");
    assert_eq!(with(1, qkv(5020, 5250, 0)), "copy 1 (block 0, qkv of layer 0) loads no bytes");
    assert_eq!(
        with(1, qkv(4999, 5250, 1)),
        "block 0, copy 1 is at clock 4999, earlier than the previous one at 5000"
    );
    assert_eq!(
        with(1, copy(5020, 5250, Phase::Qkv, 9, 1)),
        "copy 1 (block 0, qkv of layer 9) names a layer, but the model has 1 layers"
    );
    assert_eq!(
        with(1, copy(5020, 5250, Phase::LmHead, 0, 1)),
        "copy 1 (block 0, lm_head of layer 0) has a layer, but its phase occurs once a step"
    );
}

#[test]
fn clocks_that_cannot_be_aligned() {
    let anchors = |anchors: &[(u64, u64)]| {
        let anchor = |&(clock, global_ns): &(u64, u64)| Anchor { clock, global_ns };
        let anchors: Vec<Anchor> = anchors.iter().map(anchor).collect();
        refusal_after(|dump| dump.blocks[1].anchors.clone_from(&anchors))
    };
    assert_eq!(anchors(&[]), "block 1: 0 anchors, but alignment needs at least two");
    assert_eq!(anchors(&[(1, 1)]), "block 1: 1 anchors, but alignment needs at least two");
    assert!(anchors(&[(2, 2), (1, 3)]).ends_with("a clock runs backwards"));
    assert!(anchors(&[(0, 0), (9000, 90_000)]).starts_with("block 1: according to its anchors"));
    let step = refusal_after(|dump| dump.global_step_ns = 0);
    assert_eq!(
        step,
        "block 0: clock_hz is 1000000000 and global_step_ns is 0: no clock has these values"
    );
}

#[test]
fn nothing_to_see() {
    let empty = || block_of(vec![], vec![], vec![]);
    assert_eq!(refusal(&dump_of(1, vec![])), "the trace has no spans of consumers");
    assert_eq!(refusal(&dump_of(1, vec![empty(), empty()])), "the trace has no spans of consumers");
    let only = block_of(vec![nothing(5)], vec![], vec![]);
    assert_eq!(refusal(&dump_of(1, vec![only])), "the trace has no spans of consumers");
    let loader = block_of(vec![], vec![work(5, Phase::Qkv, 0), nothing(9)], vec![]);
    assert_eq!(refusal(&dump_of(1, vec![loader])), "the trace has no spans of consumers");
    let many = (0..65_536).map(|_| empty()).collect();
    assert_eq!(refusal(&dump_of(1, many)), "meta.blocks is 65536, more than 65535");
}

#[test]
fn metadata_that_no_engine_writes() {
    let not_text = |field| format!("meta.{field} is not a short line of text");
    assert_eq!(refusal(&Dump { engine: " ".into(), ..small() }), not_text("engine"));
    assert_eq!(refusal(&Dump { device: "a\nb".into(), ..small() }), not_text("device"));
    assert_eq!(refusal(&Dump { variant: "x".repeat(257), ..small() }), not_text("variant"));
    assert_eq!(refusal(&Dump { model: String::new(), ..small() }), not_text("model"));
    assert_eq!(refusal(&Dump { build: "\t".into(), ..small() }), not_text("build"));
    assert_eq!(
        refusal_after(|dump| dump.blocks[0].lost = 1 << 53),
        "meta.overflow is 9007199254740992, more than 9007199254740991"
    );
    for headline_ns in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let pace = Some(Pace { headline_ns, instrumented_ns: 1.0 });
        assert_eq!(
            refusal(&Dump { pace, ..small() }),
            "meta.pace.headline_tok_s is not a possible measurement"
        );
    }
    let twice = vec![(Phase::Qkv, 1), (Phase::Down, 1), (Phase::Qkv, 2)];
    let refused = "meta.phase_bytes: qkv is listed twice, out of order, or with no bytes";
    assert_eq!(refusal(&Dump { phase_bytes: twice, ..small() }), refused);
    assert_eq!(refusal(&Dump { phase_bytes: vec![(Phase::Qkv, 0)], ..small() }), refused);
}

#[test]
fn columns_put_together_by_hand() {
    let trace = trace_from_dump(&small()).unwrap();
    let (meta, spans) = (trace.meta(), trace.spans());
    let refusal = |meta, spans| Trace::new(meta, spans, Copies::default()).unwrap_err().to_string();
    let uneven = Spans { layer: vec![None], ..spans.clone() };
    assert_eq!(
        refusal(meta.clone(), uneven),
        "spans.layer has 1 values, but the list's other columns have 8"
    );
    let changed = |change: &dyn Fn(&mut Spans)| {
        let mut spans = spans.clone();
        change(&mut spans);
        refusal(meta.clone(), spans)
    };
    let qkv = "span 1 (block 0, consumer, work qkv of layer 0)";
    assert_eq!(changed(&|s| s.end_ns[1] = 100), format!("{qkv} does not end after it begins"));
    assert_eq!(
        changed(&|s| s.begin_ns[1] = 90),
        format!("{qkv} begins 10 ns before the previous span ends")
    );
    assert_eq!(
        changed(&|s| s.waits_on[2] = Some(0)),
        "span 2 (block 0, consumer, wait_exchange qkv of layer 0) waits on its own block"
    );
    assert_eq!(
        changed(&|s| s.block[0] = 1),
        format!("{qkv} is out of order: it follows a span of block 1, consumer")
    );
    assert_eq!(
        changed(&|s| s.block[7] = 2),
        "span 7 (block 2, consumer, work argmax) is on a block that does not exist: there are 2 \
         blocks"
    );
    assert!(changed(&|s| s.kind[0] = EventKind::Unrecorded).ends_with("does not record"));
    assert!(changed(&|s| s.end_ns[7] = 1001).ends_with("after the token's end at 1000 ns"));
    let late = changed(&|s| s.begin_ns[0] = 1);
    assert_eq!(late, "the first span begins at 1 ns, not at 0");
    let mut longer = meta.clone();
    longer.token_ns = 1001;
    assert_eq!(
        refusal(longer, spans.clone()),
        "the last span ends at 1000 ns, but the token at 1001 ns"
    );
    let mut sms = meta.clone();
    sms.sms = vec![1];
    assert_eq!(refusal(sms, spans.clone()), "meta.sms has 1 values, but there are 2 blocks");
    let mut none = meta.clone();
    none.blocks = 0;
    assert_eq!(refusal(none, spans.clone()), "the trace has no blocks");
}

#[test]
fn what_did_not_fit_is_carried() {
    let mut dump = small();
    (dump.blocks[0].lost, dump.blocks[1].lost) = (5, 7);
    assert_eq!(trace_from_dump(&dump).unwrap().meta().overflow, 12);
}
