//! A dump small enough to add up by hand.

use crate::dumps::{dump_of, small, wait, work};
use monolith_abi::Phase;
use monolith_abi::dump::{Dump, NO_LAYER};
use monolith_xray::{Analysis, PhaseTime, Span, WaitTime, trace_from_dump};

#[test]
fn the_first_begin_is_time_0() {
    let trace = trace_from_dump(&small(), "Qwen3-0.6B").unwrap();
    let meta = trace.meta();
    assert_eq!((meta.token_ns, meta.blocks, meta.layers, meta.position), (1000, 2, 1, 7));
    assert_eq!((meta.engine.as_str(), meta.model.as_str()), ("cpu", "Qwen3-0.6B"));
    assert_eq!(meta.clock_error_ns, 25);
    let spans: Vec<Span> = trace.spans().iter().collect();
    assert_eq!(spans.len(), 8);
    assert_eq!((spans[0].begin_ns, spans[0].end_ns, spans[0].layer), (0, 100, None));
    assert_eq!((spans[2].waits_on, spans[2].layer), (Some(1), Some(0)));
    assert_eq!(spans[6].waits_on, None);
}

#[test]
fn sums_are_exact() {
    let analysis = Analysis::of(&trace_from_dump(&small(), "Qwen3-0.6B").unwrap());
    let time = |phase, work_ns, work_max_ns, wait_ns, wait_max_ns| PhaseTime {
        phase,
        work_ns,
        work_max_ns,
        wait_ns,
        wait_max_ns,
    };
    assert_eq!(
        analysis.phases,
        [
            time(Phase::Embed, 100, 100, 0, 0),
            time(Phase::Qkv, 800, 500, 250, 250),
            time(Phase::Attention, 250, 250, 230, 230),
            time(Phase::Argmax, 70, 70, 0, 0),
        ]
    );
    let waits = |phase, producer, total_ns| WaitTime {
        phase,
        producer,
        waits: 1,
        total_ns,
        longest_ns: total_ns,
    };
    assert_eq!(
        analysis.waits,
        [
            waits(Phase::Qkv, Some(1), 250),
            waits(Phase::Attention, Some(0), 200),
            waits(Phase::Attention, None, 30),
        ]
    );
    assert_eq!(analysis.unrecorded_ns, [100, 200]);
    assert_eq!(
        (analysis.work_ns(), analysis.wait_ns(), analysis.available_ns()),
        (1220, 480, 2000)
    );
}

#[test]
fn the_table_reads_as_this() {
    let dump = Dump { overflow: 3, ..small() };
    let analysis = Analysis::of(&trace_from_dump(&dump, "Qwen3-0.6B").unwrap());
    let expected = "\
token 1.0 us on 2 threads: 61.0 % work, 24.0 % waits, 15.0 % unrecorded
3 records did not fit: their time counts as unrecorded

phase           work us   max thread  waited-for us   max thread
embed               0.1          0.1            0.0          0.0
qkv                 0.8          0.5            0.2          0.2
attention           0.2          0.2            0.2          0.2
argmax              0.1          0.1            0.0          0.0

waits for                   waits     total us   longest us
qkv from thread 1               1          0.2          0.2
attention from thread 0         1          0.2          0.2
attention                       1          0.0          0.0
";
    assert_eq!(analysis.to_string(), expected);
}

#[test]
fn a_long_table_of_waits_ends_in_one_line() {
    let waits = (1..13_u16).map(|on| {
        let begin_ns = 10 * u64::from(on);
        wait(0, Phase::Down, 0, on, begin_ns, begin_ns + 10 - u64::from(on) / 2)
    });
    let analysis = Analysis::of(&trace_from_dump(&dump_of(13, 1, waits.collect()), "m").unwrap());
    let table = analysis.to_string();
    assert!(table.ends_with("and 2 more                                 0.0\n"), "{table}");
}

#[test]
fn one_block_that_never_waits() {
    let records = vec![work(0, Phase::Embed, NO_LAYER, 5, 5)];
    let mut dump = dump_of(1, 1, records);
    dump.engine = "cuda".into();
    let table = Analysis::of(&trace_from_dump(&dump, "m").unwrap()).to_string();
    assert!(table.starts_with("token 0.0 us on 1 block: 0.0 % work"), "{table}");
    assert!(table.ends_with("\nno waits\n"), "{table}");
}
