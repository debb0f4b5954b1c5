//! Dumps small enough to add up by hand.

use crate::dumps::{barrier, block_of, dump_of, exchange, nothing, ring, small, streamed, work};
use monolith_abi::dump::{Dump, NO_BLOCK, NO_LAYER};
use monolith_abi::{EventKind, Phase, Role};
use monolith_xray::analysis::{
    BlockTime, LatenessOfBlock, LoaderTime, PathClass, PathTotals, Spread, WaitTime,
};
use monolith_xray::{Analysis, Pace, Span, Stream, page, trace_from_dump};

fn analysis(dump: &Dump) -> Analysis {
    Analysis::of(&trace_from_dump(dump).unwrap())
}

#[test]
fn the_first_begin_is_time_0() {
    let trace = trace_from_dump(&small()).unwrap();
    let meta = trace.meta();
    assert_eq!((meta.token_ns, meta.blocks, meta.layers, meta.position), (1000, 2, 1, 7));
    assert_eq!((meta.engine.as_str(), meta.model.as_str()), ("cpu", "Qwen3-0.6B"));
    assert_eq!((meta.clock_error_ns, &meta.build, meta.sms.len()), (1, &None, 0));
    let spans: Vec<Span> = trace.spans().iter().collect();
    assert_eq!(spans.len(), 8);
    assert_eq!((spans[0].begin_ns, spans[0].end_ns, spans[0].layer), (0, 100, None));
    assert_eq!((spans[2].waits_on, spans[2].layer), (Some(1), Some(0)));
    assert_eq!(spans[6].waits_on, None);
}

#[test]
fn stamps_become_spans() {
    let stamps = vec![
        work(10, Phase::Qkv, 0),
        work(20, Phase::Qkv, 0),
        nothing(30),
        work(30, Phase::Qkv, 0),
        exchange(40, Phase::Qkv, 0, 0),
        exchange(50, Phase::Qkv, 0, NO_BLOCK),
        work(60, Phase::Down, 0),
        work(60, Phase::Down, 1),
        nothing(70),
    ];
    let dump = dump_of(2, vec![block_of(stamps, vec![], vec![])]);
    let trace = trace_from_dump(&dump).unwrap();
    let seen: Vec<_> = trace
        .spans()
        .iter()
        .map(|span| (span.kind, span.layer, span.waits_on, span.begin_ns, span.end_ns))
        .collect();
    // Equal spans in a row are one; one of no length is none; a block does not wait on itself.
    let (work, wait) = (EventKind::Work, EventKind::WaitExchange);
    assert_eq!(
        seen,
        [
            (work, Some(0), None, 0, 30),
            (wait, Some(0), None, 30, 50),
            (work, Some(1), None, 50, 60)
        ]
    );
}

#[test]
fn copies_in_a_row_are_a_stream() {
    let trace = trace_from_dump(&streamed()).unwrap();
    let stream = |block, phase, copies, bytes, begin_ns, end_ns| Stream {
        block,
        phase,
        layer: Some(0),
        copies,
        bytes,
        begin_ns,
        end_ns,
    };
    let streams: Vec<Stream> = trace.streams().iter().collect();
    assert_eq!(
        streams,
        [
            stream(0, Phase::Qkv, 2, 8000, 0, 250),
            stream(0, Phase::Down, 1, 2000, 320, 800),
            stream(2, Phase::Qkv, 1, 1000, 30, 90),
            stream(2, Phase::Down, 1, 3000, 330, 1000),
        ]
    );
    assert_eq!(trace.meta().sms, [4, 0, 2]);
    assert_eq!(trace.meta().build.as_deref(), Some("0123abcd"));
    let pace = Pace { headline_tok_s: 2000.0, instrumented_tok_s: 1980.198, overhead_pct: 1.0 };
    assert_eq!(trace.meta().pace, Some(pace));
    let roles = trace.spans().iter().filter(|span| span.role == Role::Loader).count();
    assert_eq!((roles, trace.copies().len()), (6, 5));
}

#[test]
fn every_nanosecond_of_a_block_has_a_name() {
    let time = |work_ns, exchange_ns, ring_ns, barrier: (u64, u64), unrecorded_ns| BlockTime {
        work_ns,
        exchange_ns,
        ring_ns,
        barrier_weights_ns: barrier.0,
        barrier_skew_ns: barrier.1,
        unrecorded_ns,
    };
    let threads = analysis(&small());
    assert_eq!(threads.blocks, [time(650, 250, 0, (0, 0), 100), time(570, 230, 0, (0, 0), 200)]);
    let blocks = analysis(&streamed());
    assert_eq!(
        blocks.blocks,
        [
            time(380, 1020, 100, (100, 100), 100),
            time(940, 560, 0, (0, 0), 300),
            time(510, 460, 0, (100, 300), 430),
        ]
    );
    assert_eq!(blocks.work_ns() + blocks.wait_ns() + blocks.unrecorded_ns(), 3 * 1800);
    let spread = |min_ns, median_ns, max_ns| Spread { min_ns, median_ns, p99_ns: max_ns, max_ns };
    assert_eq!(blocks.idle, spread(860, 1290, 1420));
    assert_eq!(blocks.barrier, spread(0, 200, 400));
    let loader = LoaderTime {
        loaders: 2,
        work_ns: 200,
        ring_empty_ns: 500,
        copies_ns: 0,
        other_wait_ns: 0,
        unrecorded_ns: 2900,
    };
    assert_eq!(blocks.loader, Some(loader));
}

#[test]
fn phases_and_waits() {
    let analysis = analysis(&streamed());
    let seen: Vec<_> = analysis
        .phases
        .iter()
        .map(|p| (p.phase, p.work_ns, p.work_max_ns, p.work_max_block, p.window_ns))
        .collect();
    assert_eq!(
        seen,
        [
            (Phase::Qkv, 600, 400, 1, 400),
            (Phase::Down, 810, 360, 2, 780),
            (Phase::LmHead, 340, 240, 1, 280),
            (Phase::Argmax, 80, 80, 0, 80),
        ]
    );
    let waits: Vec<_> = analysis
        .phases
        .iter()
        .map(|p| (p.wait_exchange_ns, p.wait_ring_ns, p.wait_barrier_ns))
        .collect();
    assert_eq!(waits, [(810, 100, 0), (1010, 0, 600), (220, 0, 0), (0, 0, 0)]);
    assert_eq!(analysis.phases[0].gb_per_s, Some(22.5));
    assert_eq!((analysis.phases[0].work_mean_ns, analysis.phases[2].bytes), (200.0, None));
    let wait = |kind, phase, producer, waits, total_ns, longest_ns| WaitTime {
        kind,
        phase,
        producer,
        waits,
        total_ns,
        longest_ns,
    };
    let exchange = EventKind::WaitExchange;
    assert_eq!(
        analysis.waits,
        [
            wait(exchange, Phase::Down, Some(2), 2, 990, 540),
            wait(exchange, Phase::Qkv, Some(1), 2, 790, 440),
            wait(EventKind::WaitBarrier, Phase::Down, None, 2, 600, 400),
            wait(exchange, Phase::LmHead, Some(1), 1, 220, 220),
            wait(EventKind::WaitRingFull, Phase::Qkv, None, 1, 100, 100),
            wait(exchange, Phase::Qkv, None, 1, 20, 20),
            wait(exchange, Phase::Down, Some(0), 1, 20, 20),
        ]
    );
}

#[test]
fn the_weight_stream() {
    let stream = analysis(&streamed()).stream.unwrap();
    assert_eq!((stream.copies, stream.bytes, stream.busy_ns), (5, 14_000, 930));
    assert_eq!(stream.gb_per_s, 14_000.0 / 930.0);
    let latency = Spread { min_ns: 60, median_ns: 230, p99_ns: 670, max_ns: 670 };
    assert_eq!(stream.latency, Some(latency));
    assert_eq!(analysis(&small()).stream, None);
}

#[test]
fn handoffs_and_lateness() {
    let analysis = analysis(&streamed());
    let share = analysis.handoff.unwrap();
    assert_eq!((share.layers_ns, share.path_ns), (1300, 140));
    assert_eq!(share.mean_ns, 1690.0 / 3.0);
    assert_eq!(share.mean_pct, 100.0 * (1690.0 / 3.0) / 1300.0);
    let late = &analysis.lateness;
    assert_eq!(
        (late.handoffs, late.median_ns, late.p90_ns, late.p99_ns, late.max_ns),
        (3, 0, 400, 400, 400)
    );
    assert_eq!(late.last_mean_ns, 800.0 / 3.0);
    let block = |block, sm, mean_ns, max_ns, last| LatenessOfBlock {
        block,
        sm: Some(sm),
        handoffs: 3,
        mean_ns,
        max_ns,
        last,
    };
    assert_eq!(
        late.blocks,
        [block(1, 0, 320.0 / 3.0, 200, 2), block(2, 2, 90.0, 400, 1), block(0, 4, 0.0, 0, 0),]
    );
}

#[test]
fn the_critical_path() {
    use PathClass::{Compute, Handoff, Skew, Unrecorded, Weights};
    let path = analysis(&streamed()).path;
    let seen: Vec<_> =
        path.segments.iter().map(|s| (s.block, s.class, s.phase, s.begin_ns, s.end_ns)).collect();
    let (qkv, down, lm_head) = (Some(Phase::Qkv), Some(Phase::Down), Some(Phase::LmHead));
    assert_eq!(
        seen,
        [
            (1, Unrecorded, None, 0, 100),
            (1, Compute, qkv, 100, 300),
            (1, Skew, qkv, 300, 500),
            (2, Handoff, qkv, 500, 640),
            (2, Compute, down, 640, 900),
            (2, Weights, down, 900, 1000),
            (2, Skew, down, 1000, 1300),
            (2, Skew, down, 1300, 1400),
            (1, Handoff, down, 1400, 1460),
            (1, Compute, lm_head, 1460, 1500),
            (1, Skew, lm_head, 1500, 1700),
            (0, Handoff, lm_head, 1700, 1720),
            (0, Compute, Some(Phase::Argmax), 1720, 1800),
        ]
    );
    let totals = |compute_ns, weights_ns, handoff_ns, skew_ns, unrecorded_ns| PathTotals {
        compute_ns,
        weights_ns,
        handoff_ns,
        skew_ns,
        unrecorded_ns,
    };
    assert_eq!((path.totals, path.jumps), (totals(580, 100, 220, 800, 100), 3));
    let phases: Vec<_> = path.phases.iter().map(|row| (row.phase, row.time)).collect();
    assert_eq!(
        phases,
        [
            (Phase::Qkv, totals(200, 0, 140, 200, 0)),
            (Phase::Down, totals(260, 100, 60, 400, 0)),
            (Phase::LmHead, totals(40, 0, 20, 200, 0)),
            (Phase::Argmax, totals(80, 0, 0, 0, 0)),
        ]
    );
}

#[test]
fn a_wait_whose_value_was_there_stays_in_its_block() {
    // The producer published at 40, before the wait began at 50: the wait is hand-off latency only.
    let first = vec![work(0, Phase::Qkv, 0), nothing(40)];
    let second = vec![
        work(10, Phase::Qkv, 0),
        exchange(50, Phase::Qkv, 0, 0),
        work(70, Phase::Argmax, NO_LAYER),
        nothing(90),
    ];
    let blocks = [first, second].map(|stamps| block_of(stamps, vec![], vec![]));
    let path = analysis(&dump_of(1, blocks.to_vec())).path;
    let seen: Vec<_> =
        path.segments.iter().map(|s| (s.block, s.class, s.begin_ns, s.end_ns)).collect();
    assert_eq!(
        seen,
        [
            (1, PathClass::Unrecorded, 0, 10),
            (1, PathClass::Compute, 10, 40),
            (1, PathClass::Skew, 40, 50),
            (1, PathClass::Handoff, 50, 70),
            (1, PathClass::Compute, 70, 90),
        ]
    );
}

#[test]
fn the_same_from_the_pages_file_less_what_it_lacks() {
    let trace = trace_from_dump(&streamed()).unwrap();
    let (whole, read) =
        (Analysis::of(&trace), Analysis::of(&page::read(&page::write(&trace)).unwrap()));
    assert!(read.reduced && !whole.reduced);
    assert_eq!((&read.path, &read.blocks), (&whole.path, &whole.blocks));
    assert_eq!((read.loader, read.phases), (None, whole.phases));
    let stream = read.stream.unwrap();
    assert_eq!((stream.copies, stream.bytes, stream.latency), (5, 14_000, None));
}

#[test]
fn the_table_reads_as_this() {
    let mut dump = streamed();
    dump.blocks[1].lost = 3;
    let table = analysis(&dump).to_string();
    assert!(table == include_str!("streamed.txt"), "{table}");
}

#[test]
fn a_long_table_of_waits_ends_in_one_line() {
    let mut stamps = Vec::new();
    for on in 1..13_u16 {
        stamps.push(exchange(10 * u64::from(on), Phase::Down, 0, on));
    }
    stamps.push(nothing(130));
    let mut blocks = vec![block_of(stamps, vec![], vec![])];
    blocks.extend((1..13).map(|_| block_of(vec![], vec![], vec![])));
    let table = analysis(&dump_of(1, blocks)).to_string();
    assert!(table.contains("\n  and 7 more "), "{table}");
}

#[test]
fn one_block_that_never_waits() {
    let stamps = vec![work(5, Phase::Embed, NO_LAYER), nothing(6)];
    let table = analysis(&dump_of(1, vec![block_of(stamps, vec![], vec![])])).to_string();
    assert!(table.contains("\ntoken 0.0 us on 1 thread: 100.0 % work"), "{table}");
    assert!(table.contains("\nno waits\n"), "{table}");
}

/// Where a warp of its own publishes, the critical path goes over its work to the consumers'.
#[test]
fn the_path_goes_through_the_warp_that_publishes() {
    let (qkv, down) = (Phase::Qkv, Phase::Down);
    // It waits for the other block's qkv.
    let first = block_of(
        vec![work(1000, qkv, 0), exchange(1100, qkv, 0, 1), work(1600, down, 0), nothing(1700)],
        vec![],
        vec![],
    );
    // Its consumers are at the next weights when its epilogue publishes, at 1300.
    let mut second = block_of(
        vec![work(1000, qkv, 0), ring(1200, down, 0), work(1650, down, 0), nothing(1660)],
        vec![],
        vec![],
    );
    second.epilogue =
        vec![barrier(1000, qkv, 0), work(1200, qkv, 0), barrier(1300, down, 0), nothing(1660)];
    let trace = trace_from_dump(&dump_of(1, vec![first, second])).unwrap();
    for trace in [page::read(&page::write(&trace)).unwrap(), trace] {
        let analysis = Analysis::of(&trace);
        let path: Vec<_> = analysis
            .path
            .segments
            .iter()
            .map(|segment| (segment.block, segment.class, segment.begin_ns, segment.end_ns))
            .collect();
        let wanted = [
            (1, PathClass::Compute, 0, 100),
            (1, PathClass::Skew, 100, 200),
            (1, PathClass::Skew, 200, 300),
            (0, PathClass::Handoff, 300, 600),
            (0, PathClass::Compute, 600, 700),
        ];
        assert_eq!(path, wanted);
        assert_eq!(analysis.path.jumps, 1);
        let qkv = analysis.phases.iter().find(|row| row.phase == qkv).unwrap();
        assert_eq!((qkv.work_ns, qkv.epilogue_ns, qkv.window_ns), (300, 100, 300));
    }
}
