//! The checks that every trace must pass, whether it comes from a dump or from a file.

use crate::{
    Copies, CopyAt, CopyError, LayerError, MAX_TOKEN_NS, Meta, Pace, Span, Spans, Streams,
    TraceError,
};
use monolith_abi::{EventKind, Phase, Role};

/// Longest text in the metadata, in bytes.
const MAX_TEXT: usize = 256;
/// Largest integer that every JSON reader keeps exact (2^53 - 1).
const MAX_COUNT: u64 = 9_007_199_254_740_991;

/// Refuses metadata that no engine writes.
pub(crate) fn meta(meta: &Meta) -> Result<(), TraceError> {
    text("engine", &meta.engine)?;
    text("variant", &meta.variant)?;
    text("device", &meta.device)?;
    text("model", &meta.model)?;
    text("build", meta.build.as_deref().unwrap_or("none"))?;
    text("alignment", &meta.alignment)?;
    text("generator", &meta.generator)?;
    at_most("token_ns", meta.token_ns, MAX_TOKEN_NS)?;
    at_most("clock_error_ns", meta.clock_error_ns, MAX_TOKEN_NS)?;
    at_most("overflow", meta.overflow, MAX_COUNT)?;
    if meta.blocks == 0 {
        return Err(TraceError::NoBlocks);
    }
    if !meta.sms.is_empty() && meta.sms.len() != usize::from(meta.blocks) {
        return Err(TraceError::WrongSms { found: meta.sms.len(), blocks: meta.blocks });
    }
    phase_bytes(meta)?;
    meta.pace.as_ref().map_or(Ok(()), pace)
}

fn text(field: &'static str, text: &str) -> Result<(), TraceError> {
    if is_short_line(text) { Ok(()) } else { Err(TraceError::BadText(field)) }
}

/// Returns whether a text is safe to print in one line of a terminal, a picture or a table: it has
/// no control characters, no line separators, and nothing that changes the direction of writing.
pub(crate) fn is_short_line(text: &str) -> bool {
    let is_forbidden = |c: char| {
        let direction = matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}');
        let isolate = matches!(c, '\u{2066}'..='\u{2069}');
        c.is_control() || direction || isolate || matches!(c, '\u{2028}' | '\u{2029}')
    };
    !text.trim().is_empty() && text.len() <= MAX_TEXT && !text.chars().any(is_forbidden)
}

fn at_most(field: &'static str, found: u64, limit: u64) -> Result<(), TraceError> {
    if found <= limit { Ok(()) } else { Err(TraceError::TooMany { field, found, limit }) }
}

fn phase_bytes(meta: &Meta) -> Result<(), TraceError> {
    let mut before: Option<Phase> = None;
    for row in &meta.phase_bytes {
        if row.bytes == 0 || before.is_some_and(|before| before >= row.phase) {
            return Err(TraceError::BadPhaseBytes(row.phase.name()));
        }
        at_most("phase_bytes", row.bytes, MAX_COUNT)?;
        before = Some(row.phase);
    }
    Ok(())
}

fn pace(pace: &Pace) -> Result<(), TraceError> {
    let rate = |value: f64| value.is_finite() && value > 0.0;
    if !rate(pace.headline_tok_s) {
        return Err(TraceError::BadPace("headline_tok_s"));
    }
    if !rate(pace.instrumented_tok_s) {
        return Err(TraceError::BadPace("instrumented_tok_s"));
    }
    if pace.overhead_pct.is_finite() { Ok(()) } else { Err(TraceError::BadPace("overhead_pct")) }
}

/// Refuses spans that contradict the metadata, each other, or the meaning of their kind and role.
pub(crate) fn spans(meta: &Meta, spans: &Spans) -> Result<(), TraceError> {
    equal("spans", spans.uneven(), spans.len())?;
    if spans.is_empty() {
        return Err(TraceError::NoSpans);
    }
    let mut before: Option<Span> = None;
    for (index, span) in spans.iter().enumerate() {
        one_span(meta, &span, index)?;
        if let Some(before) = before {
            order(&before, &span, index)?;
        }
        before = Some(span);
    }
    Ok(())
}

fn equal(
    list: &'static str,
    uneven: Option<(&'static str, usize)>,
    expected: usize,
) -> Result<(), TraceError> {
    match uneven {
        Some((column, found)) => Err(TraceError::UnequalColumns { list, column, found, expected }),
        None => Ok(()),
    }
}

/// Checks a single span.
fn one_span(meta: &Meta, span: &Span, index: usize) -> Result<(), TraceError> {
    let at = span.at(index);
    if span.end_ns <= span.begin_ns {
        return Err(TraceError::Backwards(at));
    }
    if span.end_ns > meta.token_ns {
        let (end_ns, token_ns) = (span.end_ns, meta.token_ns);
        return Err(TraceError::AfterEnd { at, end_ns, token_ns });
    }
    if !is_of_role(span.kind, span.role) {
        return Err(TraceError::WrongKind(at));
    }
    if span.block >= meta.blocks {
        return Err(TraceError::UnknownBlock { at, blocks: meta.blocks });
    }
    layer(meta, span.phase, span.layer).map_err(|what| TraceError::BadLayer { at, what })?;
    match span.waits_on {
        Some(waits_on) if span.kind != EventKind::WaitExchange => {
            Err(TraceError::StrayProducer { at, waits_on })
        }
        Some(waits_on) if waits_on >= meta.blocks => {
            Err(TraceError::UnknownProducer { at, waits_on, blocks: meta.blocks })
        }
        Some(waits_on) if waits_on == span.block => Err(TraceError::SelfWait(at)),
        _ => Ok(()),
    }
}

/// Returns whether a role records spans of this kind. Only consumers wait for a full stage of the
/// ring, and only the loader for an empty one.
fn is_of_role(kind: EventKind, role: Role) -> bool {
    match kind {
        EventKind::Unrecorded => false,
        EventKind::WaitRingFull => role == Role::Consumer,
        EventKind::WaitRingEmpty | EventKind::WaitCopies => role == Role::Loader,
        EventKind::Work | EventKind::WaitExchange | EventKind::WaitBarrier => true,
    }
}

fn layer(meta: &Meta, phase: Phase, layer: Option<u16>) -> Result<(), LayerError> {
    match (phase.is_per_layer(), layer) {
        (true, None) => Err(LayerError::Missing),
        (false, Some(_)) => Err(LayerError::Stray),
        (true, Some(layer)) if layer >= meta.layers => Err(LayerError::Unknown(meta.layers)),
        _ => Ok(()),
    }
}

/// Checks a span against the previous one. A role does one thing at a time: the analysis would
/// count overlapping spans twice.
fn order(before: &Span, span: &Span, index: usize) -> Result<(), TraceError> {
    let (was, is) = ((before.block, before.role), (span.block, span.role));
    if is < was {
        let (block, role) = was;
        return Err(TraceError::OutOfOrder { at: span.at(index), block, role });
    }
    if is == was && span.begin_ns < before.end_ns {
        let by_ns = before.end_ns - span.begin_ns;
        return Err(TraceError::Overlap { at: span.at(index), by_ns });
    }
    Ok(())
}

/// Refuses copies that contradict the metadata or each other.
pub(crate) fn copies(meta: &Meta, copies: &Copies) -> Result<(), TraceError> {
    equal("copies", copies.uneven(), copies.len())?;
    let mut before = (0, 0);
    for (index, copy) in copies.iter().enumerate() {
        let place = (copy.block, copy.issue_ns);
        let times = (copy.issue_ns, copy.arrival_ns);
        one_copy(meta, copy.at(index), times, u64::from(copy.bytes), place < before)?;
        before = place;
    }
    Ok(())
}

/// Refuses streams that contradict the metadata or each other.
pub(crate) fn streams(meta: &Meta, streams: &Streams) -> Result<(), TraceError> {
    equal("streams", streams.uneven(), streams.len())?;
    let mut before = (0, 0);
    for (index, stream) in streams.iter().enumerate() {
        let place = (stream.block, stream.begin_ns);
        let times = (stream.begin_ns, stream.end_ns);
        at_most("streams.bytes", stream.bytes, MAX_COUNT)?;
        // No copy is empty, so there are at least as many bytes as copies.
        let bytes = if stream.bytes < u64::from(stream.copies) { 0 } else { stream.bytes };
        let bytes = if stream.copies == 0 { 0 } else { bytes };
        one_copy(meta, stream.at(index), times, bytes, place < before)?;
        before = place;
    }
    Ok(())
}

fn one_copy(
    meta: &Meta,
    at: CopyAt,
    (begin_ns, end_ns): (u64, u64),
    bytes: u64,
    out_of_order: bool,
) -> Result<(), TraceError> {
    let refuse = |what| Err(TraceError::BadCopy { at, what });
    if at.block >= meta.blocks {
        return refuse(CopyError::UnknownBlock(meta.blocks));
    }
    if let Err(what) = layer(meta, at.phase, at.layer) {
        return refuse(CopyError::Layer(what));
    }
    if end_ns < begin_ns {
        return refuse(CopyError::Backwards);
    }
    if end_ns > meta.token_ns {
        return refuse(CopyError::AfterEnd);
    }
    if bytes == 0 {
        return refuse(CopyError::Empty);
    }
    if out_of_order { refuse(CopyError::OutOfOrder) } else { Ok(()) }
}

/// Refuses a token that does not begin with its first span or copy, or does not end with its last.
pub(crate) fn whole_token(meta: &Meta, spans: &Spans, copies: &Copies) -> Result<(), TraceError> {
    let first = spans.begin_ns.iter().chain(&copies.issue_ns).copied().min().unwrap_or(0);
    let found = spans.end_ns.iter().chain(&copies.arrival_ns).copied().max().unwrap_or(0);
    if first != 0 {
        return Err(TraceError::LateStart(first));
    }
    let token_ns = meta.token_ns;
    if found == token_ns { Ok(()) } else { Err(TraceError::WrongEnd { found, token_ns }) }
}
