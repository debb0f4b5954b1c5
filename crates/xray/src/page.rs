//! The file that the page loads: gzipped JSON, described by `trace.schema.json` beside this
//! crate. Ids index into lists of names in the same file, and the reader goes by name: a later
//! version's unknown phase is refused, never mistaken for another.

use crate::{Meta, Spans, Trace, TraceError};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use monolith_abi::dump::{NO_BLOCK, NO_LAYER};
use monolith_abi::{EventKind, Phase};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::Read;

/// Format and version, first in every file.
pub const SCHEMA: &str = "monolith-trace/1";
/// Longest JSON that the reader takes, far above any step's: a small file cannot unpack to fill
/// the memory.
pub const MAX_JSON_BYTES: usize = 64 << 20;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    meta: Meta,
    phases: Vec<String>,
    kinds: Vec<String>,
    spans: FileSpans,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSpans {
    block: Vec<u16>,
    kind: Vec<u8>,
    phase: Vec<u8>,
    layer: Vec<u16>,
    waits_on: Vec<u16>,
    begin_ns: Vec<u64>,
    end_ns: Vec<u64>,
}

/// Read before the rest, so that another version is called that and not an unknown field.
#[derive(Deserialize)]
struct FileSchema {
    schema: String,
}

/// The trace as the page's file. The same trace gives the same bytes.
pub fn write(trace: &Trace) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut gzip, &file_from_trace(trace))
        .map_err(std::io::Error::from)
        .and_then(|()| gzip.finish())
        .expect("plain structures serialize, and a Vec takes every write")
}

/// The trace in a file of the page, gzipped or not, or what is wrong with it.
pub fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    let json = unpack(bytes)?;
    let refuse = |error: serde_json::Error| TraceError::Json(error.to_string());
    let FileSchema { schema } = serde_json::from_slice(&json).map_err(refuse)?;
    if schema != SCHEMA {
        return Err(TraceError::Schema(schema));
    }
    trace_from_file(serde_json::from_slice(&json).map_err(refuse)?)
}

/// The JSON text, known by its first bytes: servers may unpack a `.gz` on the way.
fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, TraceError> {
    if bytes.starts_with(&GZIP_MAGIC) {
        return gunzip(bytes).map(Cow::Owned);
    }
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(TraceError::Foreign(bytes.iter().take(4).copied().collect()));
    }
    if bytes.len() > MAX_JSON_BYTES {
        return Err(TraceError::TooLong(MAX_JSON_BYTES));
    }
    Ok(Cow::Borrowed(bytes))
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, TraceError> {
    let mut json = Vec::new();
    let mut bounded = GzDecoder::new(bytes).take(MAX_JSON_BYTES as u64 + 1);
    bounded.read_to_end(&mut json).map_err(|error| TraceError::Gzip(error.to_string()))?;
    if json.len() > MAX_JSON_BYTES {
        return Err(TraceError::TooLong(MAX_JSON_BYTES));
    }
    match bounded.into_inner().into_inner().len() {
        0 => Ok(json),
        trailing => Err(TraceError::TrailingBytes(trailing)),
    }
}

fn file_from_trace(trace: &Trace) -> File {
    let spans = trace.spans();
    File {
        schema: SCHEMA.to_owned(),
        meta: trace.meta().clone(),
        phases: Phase::ALL.iter().map(|phase| phase.name().to_owned()).collect(),
        kinds: EventKind::ALL.iter().map(|kind| kind.name().to_owned()).collect(),
        spans: FileSpans {
            block: spans.block.clone(),
            kind: spans.kind.iter().map(|&kind| kind as u8).collect(),
            phase: spans.phase.iter().map(|&phase| phase as u8).collect(),
            layer: spans.layer.iter().map(|layer| layer.unwrap_or(NO_LAYER)).collect(),
            waits_on: spans.waits_on.iter().map(|block| block.unwrap_or(NO_BLOCK)).collect(),
            begin_ns: spans.begin_ns.clone(),
            end_ns: spans.end_ns.clone(),
        },
    }
}

fn trace_from_file(file: File) -> Result<Trace, TraceError> {
    let File { schema: _, meta, phases, kinds, spans } = file;
    let phases = known("phases", &phases, Phase::from_name)?;
    let kinds = known("kinds", &kinds, EventKind::from_name)?;
    let spans = Spans {
        block: spans.block,
        kind: named("kind", &spans.kind, &kinds)?,
        phase: named("phase", &spans.phase, &phases)?,
        layer: spans.layer.iter().map(|&layer| (layer != NO_LAYER).then_some(layer)).collect(),
        waits_on: spans.waits_on.iter().map(|&on| (on != NO_BLOCK).then_some(on)).collect(),
        begin_ns: spans.begin_ns,
        end_ns: spans.end_ns,
    };
    Trace::new(meta, spans)
}

/// The file's list of names, in this version's terms.
fn known<T>(
    list: &'static str,
    names: &[String],
    from_name: fn(&str) -> Option<T>,
) -> Result<Vec<T>, TraceError> {
    let mut values = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(TraceError::RepeatedName { list, name: name.clone() });
        }
        let unknown = || TraceError::UnknownName { list, name: name.clone() };
        values.push(from_name(name).ok_or_else(unknown)?);
    }
    Ok(values)
}

/// A column of ids, in this version's terms.
fn named<T: Copy>(column: &'static str, ids: &[u8], values: &[T]) -> Result<Vec<T>, TraceError> {
    let names = values.len();
    let value = |(index, &id): (usize, &u8)| {
        let unknown = TraceError::UnknownId { column, index, id, names };
        values.get(usize::from(id)).copied().ok_or(unknown)
    };
    ids.iter().enumerate().map(value).collect()
}
