//! Everything that makes a trace one: run on every trace, wherever it came from.

use crate::{MAX_TOKEN_NS, Meta, Span, Spans, TraceError};

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
    text("generator", &meta.generator)?;
    at_most("token_ns", meta.token_ns, MAX_TOKEN_NS)?;
    at_most("clock_error_ns", meta.clock_error_ns, MAX_TOKEN_NS)?;
    at_most("overflow", meta.overflow, MAX_COUNT)?;
    if meta.blocks == 0 { Err(TraceError::NoBlocks) } else { Ok(()) }
}

fn text(field: &'static str, text: &str) -> Result<(), TraceError> {
    let short = !text.trim().is_empty() && text.len() <= MAX_TEXT;
    if short && !text.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(TraceError::BadText(field))
    }
}

fn at_most(field: &'static str, found: u64, limit: u64) -> Result<(), TraceError> {
    if found <= limit { Ok(()) } else { Err(TraceError::TooMany { field, found, limit }) }
}

/// Refuses spans that contradict the metadata, each other or the contract of the record.
pub(crate) fn spans(meta: &Meta, spans: &Spans) -> Result<(), TraceError> {
    equal_columns(spans)?;
    let mut before: Option<Span> = None;
    let mut first = u64::MAX;
    let mut last = 0;
    for (index, span) in spans.iter().enumerate() {
        one(meta, &span, index)?;
        if let Some(before) = before {
            order(&before, &span, index)?;
        }
        first = first.min(span.begin_ns);
        last = last.max(span.end_ns);
        before = Some(span);
    }
    if before.is_none() {
        return Err(TraceError::NoSpans);
    }
    if first != 0 {
        return Err(TraceError::LateStart(first));
    }
    if last != meta.token_ns {
        return Err(TraceError::WrongEnd { found: last, token_ns: meta.token_ns });
    }
    Ok(())
}

fn equal_columns(spans: &Spans) -> Result<(), TraceError> {
    let expected = spans.block.len();
    let columns = [
        ("kind", spans.kind.len()),
        ("phase", spans.phase.len()),
        ("layer", spans.layer.len()),
        ("waits_on", spans.waits_on.len()),
        ("begin_ns", spans.begin_ns.len()),
        ("end_ns", spans.end_ns.len()),
    ];
    match columns.into_iter().find(|&(_, found)| found != expected) {
        Some((column, found)) => Err(TraceError::UnequalColumns { column, found, expected }),
        None => Ok(()),
    }
}

/// What one span must be by itself.
fn one(meta: &Meta, span: &Span, index: usize) -> Result<(), TraceError> {
    let at = span.at(index);
    if span.end_ns < span.begin_ns {
        return Err(TraceError::Backwards(at));
    }
    if span.block >= meta.blocks {
        return Err(TraceError::UnknownBlock { at, blocks: meta.blocks });
    }
    match (span.phase.is_per_layer(), span.layer) {
        (true, None) => return Err(TraceError::MissingLayer(at)),
        (false, Some(_)) => return Err(TraceError::StrayLayer(at)),
        (true, Some(layer)) if layer >= meta.layers => {
            return Err(TraceError::UnknownLayer { at, layers: meta.layers });
        }
        _ => {}
    }
    match span.waits_on {
        Some(waits_on) if !span.kind.is_wait() => Err(TraceError::WorkWaits { at, waits_on }),
        Some(waits_on) if waits_on >= meta.blocks => {
            Err(TraceError::UnknownProducer { at, waits_on, blocks: meta.blocks })
        }
        Some(waits_on) if waits_on == span.block => Err(TraceError::SelfWait(at)),
        _ => Ok(()),
    }
}

/// What a span must be beside the one before it. A block does one thing at a time: spans that
/// share time would be counted twice.
fn order(before: &Span, span: &Span, index: usize) -> Result<(), TraceError> {
    if span.block < before.block {
        return Err(TraceError::OutOfOrder { at: span.at(index), after: before.block });
    }
    if span.block == before.block && span.begin_ns < before.end_ns {
        let by_ns = before.end_ns - span.begin_ns;
        return Err(TraceError::Overlap { at: span.at(index), by_ns });
    }
    Ok(())
}
