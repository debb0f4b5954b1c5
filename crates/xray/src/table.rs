//! Renders the analysis as a table for the terminal, at most 100 columns wide.

use crate::Pace;
use crate::analysis::{
    Analysis, BlockTime, HandoffShare, LatenessOfBlock, LoaderTime, PathClass, PathSegment,
    PathTotals, PhaseTime, Spread, WeightStream,
};
use std::fmt::{self, Formatter};

/// Number of producers that the table of waits lists; one line sums up the rest.
const PRODUCERS: usize = 5;
/// Number of blocks listed as those with most of a kind of time.
const MOST: usize = 3;
/// Number of blocks listed as the latest.
const LATEST: usize = 5;
/// Number of segments listed as the longest of the critical path.
const LONGEST: usize = 5;

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        summary(self, f)?;
        phases(self, f)?;
        waits(self, f)?;
        blocks(self, f)?;
        stream(self, f)?;
        handoffs(self, f)?;
        path(self, f)?;
        longest(self, f)
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn summary(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    let whole = analysis.available_ns();
    let count = analysis.blocks.len();
    let plural = if count == 1 { "" } else { "s" };
    writeln!(f, "{}", analysis.step)?;
    match analysis.pace {
        Some(Pace { headline_tok_s, overhead_pct, .. }) => writeln!(
            f,
            "decode loop around the step: {headline_tok_s:.0} tok/s unrecorded; recording takes \
             {overhead_pct:.1} % longer"
        )?,
        None => writeln!(f, "what recording costs was not measured")?,
    }
    writeln!(
        f,
        "token {:.1} us on {count} {}{plural}: {:.1} % work, {:.1} % waits, {:.1} % unrecorded\n\
         times are true to within {} ns",
        us(analysis.token_ns),
        analysis.unit,
        percent(analysis.work_ns(), whole),
        percent(analysis.wait_ns(), whole),
        percent(analysis.unrecorded_ns(), whole),
        analysis.clock_error_ns,
    )?;
    if analysis.overflow > 0 {
        writeln!(
            f,
            "{} records did not fit in the engine's buffers: their time counts as unrecorded",
            analysis.overflow
        )?;
    }
    if analysis.reduced {
        writeln!(
            f,
            "a page's trace has no loader spans and no single copies: the loaders' time and the\n\
             copies' latency are left out, and pauses within a stream count as busy"
        )?;
    }
    Ok(())
}

fn phases(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    let unit = analysis.unit;
    writeln!(
        f,
        "\n{:<10} {:>11} {:>9} {:>9} {:>7} {:>10} {:>9} {:>9} {:>9} {:>7}",
        "phase us", "work", "mean", "max", unit, "exchange", "ring", "barrier", "window", "GB/s"
    )?;
    for phase in &analysis.phases {
        let PhaseTime { work_mean_ns, work_max_block, gb_per_s, .. } = phase;
        writeln!(
            f,
            "{:<10} {:>11.1} {:>9.1} {:>9.1} {:>7} {:>10.1} {:>9.1} {:>9.1} {:>9.1} {:>7}",
            phase.phase.name(),
            us(phase.work_ns),
            work_mean_ns / 1e3,
            us(phase.work_max_ns),
            work_max_block,
            us(phase.wait_exchange_ns),
            us(phase.wait_ring_ns),
            us(phase.wait_barrier_ns),
            us(phase.window_ns),
            gb_per_s.map_or("-".to_owned(), |rate| format!("{rate:.0}")),
        )?;
    }
    writeln!(
        f,
        "work and waits: sums over all {unit}s; a wait counts for the phase that it waits for; \
         mean, max:\nof one {unit}; window: first begin of work to last end, summed over the \
         layers; GB/s: the phase's\nbytes over its window, including bytes that arrived before it"
    )
}

fn waits(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    if analysis.waits.is_empty() {
        return writeln!(f, "\nno waits");
    }
    let whole = analysis.available_ns();
    writeln!(
        f,
        "\n{:<44} {:>8} {:>12} {:>12} {:>10}",
        "waits for", "waits", "total us", "longest us", "of all"
    )?;
    for wait in &analysis.wait_kinds {
        let name = format!("{} {}", wait.kind.name(), wait.phase.name());
        wait_row(f, &name, (wait.waits, wait.total_ns, wait.longest_ns), whole)?;
    }
    let by_producer = || analysis.waits.iter().filter(|wait| wait.producer.is_some());
    let all = by_producer().count();
    if all == 0 {
        return Ok(());
    }
    writeln!(f, "by the {} whose value arrived last:", analysis.unit)?;
    for wait in by_producer().take(PRODUCERS) {
        let producer = wait.producer.unwrap_or_default();
        let name = format!("  {} from {} {producer}", wait.phase.name(), analysis.unit);
        wait_row(f, &name, (wait.waits, wait.total_ns, wait.longest_ns), whole)?;
    }
    if all <= PRODUCERS {
        return Ok(());
    }
    let rest = || by_producer().skip(PRODUCERS);
    let longest_ns = rest().map(|wait| wait.longest_ns).max().unwrap_or(0);
    let sums = (rest().map(|w| w.waits).sum(), rest().map(|w| w.total_ns).sum(), longest_ns);
    wait_row(f, &format!("  and {} more", all - PRODUCERS), sums, whole)
}

fn wait_row(
    f: &mut Formatter<'_>,
    name: &str,
    (waits, total_ns, longest_ns): (u64, u64, u64),
    whole: u64,
) -> fmt::Result {
    let (total, longest) = (us(total_ns), us(longest_ns));
    let share = percent(total_ns, whole);
    writeln!(f, "{name:<44} {waits:>8} {total:>12.1} {longest:>12.1} {share:>8.1} %")
}

fn blocks(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "\n{:<26} {:>8} {:>8} {:>8}  most in {}{}",
        format!("us per {}", analysis.unit),
        "min",
        "median",
        "max",
        analysis.unit,
        if analysis.sms.is_empty() { "" } else { "/SM" }
    )?;
    spread(analysis, f, "idle (waits, unrecorded)", &analysis.idle, BlockTime::idle_ns)?;
    let sum = |part: fn(&BlockTime) -> u64| analysis.blocks.iter().map(part).sum::<u64>();
    if analysis.barrier.max_ns > 0 {
        spread(analysis, f, "barrier waits", &analysis.barrier, BlockTime::barrier_ns)?;
        let weights = sum(|block| block.barrier_weights_ns);
        writeln!(
            f,
            "of all barrier waits {:.1} % are for weights in flight, the rest for the {}'s own \
             warps",
            percent(weights, sum(BlockTime::barrier_ns)),
            analysis.unit
        )?;
    }
    match &analysis.loader {
        Some(time) => loader(analysis, time, f),
        None => Ok(()),
    }
}

fn spread(
    analysis: &Analysis,
    f: &mut Formatter<'_>,
    name: &str,
    spread: &Spread,
    of: fn(&BlockTime) -> u64,
) -> fmt::Result {
    let mut worst: Vec<(u64, usize)> =
        analysis.blocks.iter().enumerate().map(|(block, time)| (of(time), block)).collect();
    worst.sort_by_key(|&(time, block)| (std::cmp::Reverse(time), block));
    let name_of = |block: usize| match analysis.sms.get(block) {
        Some(sm) => format!("{block}/{sm}"),
        None => block.to_string(),
    };
    let most = |&(time, block): &(u64, usize)| format!("{}: {:.1}", name_of(block), us(time));
    let worst = worst.iter().take(MOST).map(most);
    writeln!(
        f,
        "{name:<26} {:>8.1} {:>8.1} {:>8.1}  {}",
        us(spread.min_ns),
        us(spread.median_ns),
        us(spread.max_ns),
        worst.collect::<Vec<_>>().join(", ")
    )
}

fn loader(analysis: &Analysis, time: &LoaderTime, f: &mut Formatter<'_>) -> fmt::Result {
    let whole = time.loaders * analysis.token_ns;
    writeln!(
        f,
        "loaders: {:.1} % work, {:.1} % waits for stages, {:.1} % for copies, {:.1} % others, \
         {:.1} % unrecorded",
        percent(time.work_ns, whole),
        percent(time.ring_empty_ns, whole),
        percent(time.copies_ns, whole),
        percent(time.other_wait_ns, whole),
        percent(time.unrecorded_ns, whole)
    )
}

fn stream(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    let Some(stream) = &analysis.stream else { return Ok(()) };
    let WeightStream { copies, bytes, busy_ns, gb_per_s, latency } = stream;
    writeln!(
        f,
        "\nweight stream: {:.1} MB in {copies} copies, at least one in flight for {:.1} us: \
         {gb_per_s:.0} GB/s",
        *bytes as f64 / 1e6,
        us(*busy_ns)
    )?;
    let Some(Spread { min_ns, median_ns, p99_ns, max_ns }) = latency else { return Ok(()) };
    writeln!(
        f,
        "issue to arrival: min {min_ns} ns, median {median_ns} ns, p99 {p99_ns} ns, max {max_ns} ns"
    )
}

fn handoffs(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    if let Some(HandoffShare { layers_ns, mean_pct, path_pct, .. }) = &analysis.handoff {
        writeln!(
            f,
            "\nhand-offs take {mean_pct:.1} % of the layers' {:.1} us (waits on exchanges, mean \
             over {}s), and\n{path_pct:.1} % of it on the critical path",
            us(*layers_ns),
            analysis.unit
        )?;
        if analysis.is_gpu {
            writeln!(
                f,
                "(qwen_megakernel's author reports one third of the per-layer time as \
                 synchronization, on an\nRTX 5090 in bf16)"
            )?;
        }
    }
    let late = &analysis.lateness;
    if late.handoffs == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "\nlateness of the producers of {} hand-offs (time published minus the median), in ns:\n\
         median {}, p90 {}, p99 {}, max {}; the last producer is {:.0} late on average\n\
         latest on average:",
        late.handoffs, late.median_ns, late.p90_ns, late.p99_ns, late.max_ns, late.last_mean_ns
    )?;
    writeln!(
        f,
        "{:<16} {:>10} {:>10} {:>10} {:>10}",
        analysis.unit, "hand-offs", "mean ns", "max ns", "was last"
    )?;
    for LatenessOfBlock { block, sm, handoffs, mean_ns, max_ns, last } in
        late.blocks.iter().take(LATEST)
    {
        let name = sm.map_or(block.to_string(), |sm| format!("{block} (SM {sm})"));
        writeln!(f, "{name:<16} {handoffs:>10} {mean_ns:>10.0} {max_ns:>10} {last:>10}")?;
    }
    Ok(())
}

fn path(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    let path = &analysis.path;
    let head = |f: &mut Formatter<'_>, name: &str| {
        writeln!(
            f,
            "{name:<16} {:>10} {:>10} {:>10} {:>10} {:>12} {:>10}",
            "compute", "weights", "hand-off", "skew", "unrecorded", "sum"
        )
    };
    writeln!(
        f,
        "\ncritical path: {} segments, {} jumps from one {} to another",
        path.segments.len(),
        path.jumps,
        analysis.unit
    )?;
    head(f, "us")?;
    let mut rest = path.totals;
    for row in &path.phases {
        path_row(f, row.phase.name(), &row.time)?;
        rest = minus(&rest, &row.time);
    }
    if rest.sum_ns() > 0 {
        path_row(f, "no phase", &rest)?;
    }
    path_row(f, "token", &path.totals)?;
    let share = |ns| format!("{:.1} %", percent(ns, analysis.token_ns));
    let PathTotals { compute_ns, weights_ns, handoff_ns, skew_ns, unrecorded_ns } = path.totals;
    writeln!(
        f,
        "{:<16} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "of the token",
        share(compute_ns),
        share(weights_ns),
        share(handoff_ns),
        share(skew_ns),
        share(unrecorded_ns)
    )?;
    writeln!(
        f,
        "compute: work until half of the phase's {unit}s had published; skew: work after that, \
         and barrier\nwaits for the {unit}'s own warps; weights: waits for weights in flight; \
         hand-off: from a producer's\npublication to the end of the wait for it, in the row of \
         the published phase",
        unit = analysis.unit
    )
}

fn path_row(f: &mut Formatter<'_>, name: &str, time: &PathTotals) -> fmt::Result {
    writeln!(
        f,
        "{name:<16} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>12.1} {:>10.1}",
        us(time.compute_ns),
        us(time.weights_ns),
        us(time.handoff_ns),
        us(time.skew_ns),
        us(time.unrecorded_ns),
        us(time.sum_ns())
    )
}

fn minus(all: &PathTotals, part: &PathTotals) -> PathTotals {
    PathTotals {
        compute_ns: all.compute_ns - part.compute_ns,
        weights_ns: all.weights_ns - part.weights_ns,
        handoff_ns: all.handoff_ns - part.handoff_ns,
        skew_ns: all.skew_ns - part.skew_ns,
        unrecorded_ns: all.unrecorded_ns - part.unrecorded_ns,
    }
}

fn longest(analysis: &Analysis, f: &mut Formatter<'_>) -> fmt::Result {
    let mut segments: Vec<&PathSegment> = analysis.path.segments.iter().collect();
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.end_ns - segment.begin_ns));
    writeln!(f, "its longest segments:")?;
    for segment in segments.into_iter().take(LONGEST) {
        let PathSegment { block, class, phase, layer, begin_ns, end_ns } = segment;
        let what = match (phase, layer) {
            (Some(phase), Some(layer)) => format!(" {} of layer {layer}", phase.name()),
            (Some(phase), None) => format!(" {}", phase.name()),
            (None, _) => String::new(),
        };
        writeln!(
            f,
            "  {:>9.1} us at {:>9.1} us on {} {block}: {}{what}",
            us(end_ns - begin_ns),
            us(*begin_ns),
            analysis.unit,
            class_name(*class)
        )?;
    }
    Ok(())
}

fn class_name(class: PathClass) -> &'static str {
    match class {
        PathClass::Compute => "compute",
        PathClass::Weights => "wait for weights of",
        PathClass::Handoff => "hand-off of",
        PathClass::Skew => "skew in",
        PathClass::Unrecorded => "unrecorded",
    }
}
