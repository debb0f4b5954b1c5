//! Converts a dump to a trace: turns stamps into spans, maps every clock to the shared one, and
//! sets time 0 at the token's start.

use crate::align::{self, Clocks, Map, Maps, Method};
use crate::{Copied, Copies, MAX_TOKEN_NS, Meta, Pace, PhaseBytes, Span, Spans, StampAt};
use crate::{Trace, TraceError};
use monolith_abi::dump::{self, BlockDump, Dump, NO_BLOCK, NO_LAYER, NO_SM, Stamp};
use monolith_abi::{EventKind, Role};

/// Largest change of a time by rounding to whole nanoseconds.
const ROUNDING_NS: f64 = 0.5;

/// Checks an engine's dump, aligns the blocks' clocks, and sets time 0 at the first start of a span
/// or issue of a copy. If the last value of a wait came from the block itself, the span names no
/// producer: the values of all other blocks were there already.
///
/// # Errors
/// Clocks that cannot be aligned, and everything that a [`Trace`] refuses.
pub fn trace_from_dump(dump: &Dump) -> Result<Trace, TraceError> {
    let blocks = u16::try_from(dump.blocks.len()).map_err(|_| too_many_blocks(dump))?;
    let maps = maps(dump)?;
    let mut aligned = Aligned::default();
    for (block, part) in dump.blocks.iter().enumerate() {
        if let Some(map) = &maps.maps[block] {
            aligned.block(block, part, map)?;
        }
    }
    // Without consumer spans there is no step to analyze, and the page would have nothing to show.
    if !aligned.spans.iter().any(|(span, ..)| span.role == Role::Consumer) {
        return Err(TraceError::NoSpans);
    }
    let (start, end) = aligned.bounds().ok_or(TraceError::NoSpans)?;
    let token_ns = end.abs_diff(start);
    if token_ns > MAX_TOKEN_NS {
        return Err(TraceError::TooLongToken(token_ns));
    }
    let meta = meta_from_dump(dump, blocks, token_ns, &maps);
    let (spans, copies) = aligned.columns(start);
    Trace::new(meta, spans, copies)
}

fn too_many_blocks(dump: &Dump) -> TraceError {
    let found = dump.blocks.len() as u64;
    TraceError::TooMany { field: "blocks", found, limit: u64::from(u16::MAX) }
}

/// Returns one map per block; none for a block without stamps and copies.
fn maps(dump: &Dump) -> Result<Maps, TraceError> {
    let clocks = Clocks { clock_hz: dump.clock_hz, step_ns: dump.global_step_ns };
    let part = |(block, part)| {
        let readings = readings(block, part)?;
        let used = align::Block { anchors: &part.anchors, readings };
        Ok((!used.readings.is_empty()).then_some(used))
    };
    let blocks: Vec<Option<align::Block<'_>>> =
        dump.blocks.iter().enumerate().map(part).collect::<Result<_, TraceError>>()?;
    let anchors = blocks.iter().flatten().filter_map(|block| block.anchors.first());
    let base_ns = anchors.map(|anchor| anchor.global_ns).min().unwrap_or(0);
    Maps::fit(clocks, &blocks, base_ns).map_err(|(block, error)| TraceError::Align { block, error })
}

/// Returns the clock readings of a block's stamps and copies, which must be in order.
fn readings(block: usize, part: &BlockDump) -> Result<Vec<u64>, TraceError> {
    let consumer: Vec<u64> = part.consumer.iter().map(|stamp| stamp.clock).collect();
    let loader: Vec<u64> = part.loader.iter().map(|stamp| stamp.clock).collect();
    let issues: Vec<u64> = part.copies.iter().map(|copy| copy.issue_clock).collect();
    in_order(block, "consumer stamp", &consumer)?;
    let epilogue: Vec<u64> = part.epilogue.iter().map(|stamp| stamp.clock).collect();
    in_order(block, "loader stamp", &loader)?;
    in_order(block, "epilogue stamp", &epilogue)?;
    in_order(block, "copy", &issues)?;
    let early = |copy: &dump::Copied| copy.arrival_clock < copy.issue_clock;
    if let Some(index) = part.copies.iter().position(early) {
        return Err(TraceError::EarlyArrival(StampAt { block, list: "copy", index }));
    }
    let arrivals = part.copies.iter().map(|copy| copy.arrival_clock);
    let stamps = consumer.into_iter().chain(loader).chain(epilogue);
    Ok(stamps.chain(issues).chain(arrivals).collect())
}

fn in_order(block: usize, list: &'static str, clocks: &[u64]) -> Result<(), TraceError> {
    match clocks.windows(2).position(|pair| pair[1] < pair[0]) {
        Some(index) => Err(TraceError::ClockBackwards {
            at: StampAt { block, list, index: index + 1 },
            clock: clocks[index + 1],
            before: clocks[index],
        }),
        None => Ok(()),
    }
}

/// Spans and copies on the shared clock, before time 0 is known.
#[derive(Default)]
struct Aligned {
    spans: Vec<(Span, i64, i64)>,
    copies: Vec<(Copied, i64, i64)>,
}

impl Aligned {
    fn block(&mut self, block: usize, part: &BlockDump, map: &Map) -> Result<(), TraceError> {
        self.role(block, Role::Consumer, &part.consumer, map)?;
        self.role(block, Role::Loader, &part.loader, map)?;
        self.role(block, Role::Epilogue, &part.epilogue, map)?;
        for copy in &part.copies {
            self.copy(block, copy, map)?;
        }
        Ok(())
    }

    fn role(
        &mut self,
        block: usize,
        role: Role,
        stamps: &[Stamp],
        map: &Map,
    ) -> Result<(), TraceError> {
        let Some(last) = stamps.last() else { return Ok(()) };
        if last.kind != EventKind::Unrecorded {
            let list = match role {
                Role::Consumer => "consumer stamp",
                Role::Loader => "loader stamp",
                Role::Epilogue => "epilogue stamp",
            };
            return Err(TraceError::OpenEnd(StampAt { block, list, index: stamps.len() - 1 }));
        }
        for pair in stamps.windows(2) {
            let time = |clock| map.at(clock).map_err(|error| TraceError::Align { block, error });
            let (begin, end) = (time(pair[0].clock)?, time(pair[1].clock)?);
            if pair[0].kind != EventKind::Unrecorded && begin < end {
                self.span(span_from_stamp(block as u16, role, &pair[0]), begin, end);
            }
        }
        Ok(())
    }

    /// Adds a span, or extends the previous one if the new one continues it.
    fn span(&mut self, span: Span, begin: i64, end: i64) {
        match self.spans.last_mut() {
            Some((before, _, until)) if *before == span && *until == begin => *until = end,
            _ => self.spans.push((span, begin, end)),
        }
    }

    fn copy(&mut self, block: usize, copy: &dump::Copied, map: &Map) -> Result<(), TraceError> {
        let time = |clock| map.at(clock).map_err(|error| TraceError::Align { block, error });
        let (issue, arrival) = (time(copy.issue_clock)?, time(copy.arrival_clock)?);
        let row = Copied {
            block: block as u16,
            phase: copy.phase,
            layer: (copy.layer != NO_LAYER).then_some(copy.layer),
            bytes: copy.bytes,
            issue_ns: 0,
            arrival_ns: 0,
        };
        self.copies.push((row, issue, arrival));
        Ok(())
    }

    /// Returns the first start and the last end.
    fn bounds(&self) -> Option<(i64, i64)> {
        let spans = self.spans.iter().map(|&(_, begin, end)| (begin, end));
        let copies = self.copies.iter().map(|&(_, issue, arrival)| (issue, arrival));
        let widest = |(first, last): (i64, i64), (a, b): (i64, i64)| (first.min(a), last.max(b));
        spans.chain(copies).reduce(widest)
    }

    /// Converts to columns, with times relative to `start`, which precedes them all.
    fn columns(self, start: i64) -> (Spans, Copies) {
        let time = |at: i64| at.abs_diff(start);
        let (mut spans, mut copies) = (Spans::default(), Copies::default());
        for (span, begin, end) in self.spans {
            spans.push(Span { begin_ns: time(begin), end_ns: time(end), ..span });
        }
        for (copy, issue, arrival) in self.copies {
            copies.push(Copied { issue_ns: time(issue), arrival_ns: time(arrival), ..copy });
        }
        (spans, copies)
    }
}

fn span_from_stamp(block: u16, role: Role, stamp: &Stamp) -> Span {
    let producer = stamp.producer;
    Span {
        block,
        role,
        kind: stamp.kind,
        phase: stamp.phase,
        layer: (stamp.layer != NO_LAYER).then_some(stamp.layer),
        waits_on: (producer != NO_BLOCK && producer != block).then_some(producer),
        begin_ns: 0,
        end_ns: 0,
    }
}

fn meta_from_dump(dump: &Dump, blocks: u16, token_ns: u64, maps: &Maps) -> Meta {
    let sms: Vec<u16> = dump.blocks.iter().map(|block| block.sm).collect();
    let mut phase_bytes: Vec<PhaseBytes> =
        dump.phase_bytes.iter().map(|&(phase, bytes)| PhaseBytes { phase, bytes }).collect();
    phase_bytes.sort_by_key(|row| row.phase);
    Meta {
        engine: dump.engine.clone(),
        variant: dump.variant.clone(),
        device: dump.device.clone(),
        model: dump.model.clone(),
        build: (!dump.build.is_empty()).then(|| dump.build.clone()),
        position: dump.position,
        blocks,
        layers: dump.layers,
        token_ns,
        clock_error_ns: (maps.error_ns + ROUNDING_NS).ceil() as u64,
        alignment: alignment(dump.global_step_ns, maps.method),
        overflow: dump.blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.lost)),
        sms: if sms.contains(&NO_SM) { Vec::new() } else { sms },
        phase_bytes,
        pace: dump.pace.as_ref().map(pace_from_dump),
        generator: concat!("monolith-xray ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

/// Describes the method in one line of at most 256 bytes (`check::text`). Blocks that read the
/// shared clock itself need no alignment.
fn alignment(step_ns: u64, method: Method) -> String {
    match method {
        Method::None => format!("none: all blocks read one clock (in steps of {step_ns} ns)"),
        Method::Lines { read_ns } => format!(
            "middle of the lines that all anchors allow (shared clock in steps of {step_ns} ns, \
             both clocks read within {read_ns:.1} ns)"
        ),
        Method::Tunnels { read_ns, typical_ns, clocks, mhz: (low, high) } => format!(
            "middle of the curves that the anchors of {clocks} clocks allow, half of all times \
             within {typical_ns:.0} ns (assumed rates of {low:.0} to {high:.0} MHz, \
             shared clock in steps of {step_ns} ns, both clocks read within {read_ns:.1} ns)"
        ),
    }
}

/// Rounds to three decimals, the precision of the measurement.
fn pace_from_dump(pace: &dump::Pace) -> Pace {
    let short = |value: f64| (value * 1e3).round() / 1e3;
    Pace {
        headline_tok_s: short(1e9 / pace.headline_ns),
        instrumented_tok_s: short(1e9 / pace.instrumented_ns),
        overhead_pct: short(100.0 * (pace.instrumented_ns / pace.headline_ns - 1.0)),
    }
}
