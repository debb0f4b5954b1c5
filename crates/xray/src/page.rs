//! The file that the page loads: gzipped JSON, described by `trace.schema.json` beside this
//! crate. Ids index into lists of names in the same file, and the reader uses the names: a later
//! version's unknown phase is refused, never mistaken for another.

use crate::analysis::{Analysis, PathClass, PathSegment};
use crate::names::escaped;
use crate::{MAX_TOKEN_NS, Meta, Span, Spans, Streams, Trace, TraceError};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use monolith_abi::dump::{NO_BLOCK, NO_LAYER};
use monolith_abi::{EventKind, Phase, Role};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::Read;

/// Format and version, first in every file.
pub const SCHEMA: &str = "monolith-trace/2";
/// Size limit of the JSON, far above any step's, so that a small file cannot unpack to fill the
/// memory.
pub const MAX_JSON_BYTES: usize = 64 << 20;

/// Most values in a column. Limiting the text is not enough to bound the reader's memory, since a
/// comma and a digit become eight bytes.
pub const MAX_ROWS: usize = 2 << 20;
/// Most names in a list.
const MAX_NAMES: usize = 256;
/// Most bytes in all names of a list.
const MAX_NAMES_BYTES: usize = 64 * MAX_NAMES;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    meta: Meta,
    #[serde(deserialize_with = "bounded::names")]
    phases: Vec<String>,
    #[serde(deserialize_with = "bounded::names")]
    kinds: Vec<String>,
    spans: FileSpans,
    /// The epilogues' work and their waits for other blocks; left out if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epilogue: Option<FileSpans>,
    streams: FileStreams,
    /// The critical path, which the page draws and does not compute. It follows from the rest, so
    /// the reader here ignores it. Older files lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<FilePath>,
}

/// The segments of the critical path, in order of time. The first begins at 0, and each of the
/// others at the end of the one before.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePath {
    #[serde(deserialize_with = "bounded::names")]
    classes: Vec<String>,
    #[serde(deserialize_with = "bounded::rows")]
    block: Vec<u16>,
    #[serde(deserialize_with = "bounded::rows")]
    class: Vec<u8>,
    #[serde(deserialize_with = "bounded::rows")]
    phase: Vec<u8>,
    #[serde(deserialize_with = "bounded::rows")]
    layer: Vec<u16>,
    #[serde(deserialize_with = "bounded::rows")]
    length_ns: Vec<u64>,
}

/// Stands for "no phase" in a segment of the critical path.
const NO_PHASE: u8 = u8::MAX;

/// The spans of one role, the consumers or the epilogues. Gaps and lengths are small numbers, which
/// compress better than times.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSpans {
    #[serde(deserialize_with = "bounded::rows")]
    counts: Vec<u32>,
    #[serde(deserialize_with = "bounded::rows")]
    kind: Vec<u8>,
    #[serde(deserialize_with = "bounded::rows")]
    phase: Vec<u8>,
    #[serde(deserialize_with = "bounded::rows")]
    layer: Vec<u16>,
    #[serde(deserialize_with = "bounded::rows")]
    waits_on: Vec<u16>,
    #[serde(deserialize_with = "bounded::rows")]
    gap_ns: Vec<u64>,
    #[serde(deserialize_with = "bounded::rows")]
    length_ns: Vec<u64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStreams {
    #[serde(deserialize_with = "bounded::rows")]
    counts: Vec<u32>,
    #[serde(deserialize_with = "bounded::rows")]
    phase: Vec<u8>,
    #[serde(deserialize_with = "bounded::rows")]
    layer: Vec<u16>,
    #[serde(deserialize_with = "bounded::rows")]
    copies: Vec<u32>,
    #[serde(deserialize_with = "bounded::rows")]
    bytes: Vec<u64>,
    #[serde(deserialize_with = "bounded::rows")]
    begin_ns: Vec<u64>,
    #[serde(deserialize_with = "bounded::rows")]
    length_ns: Vec<u64>,
}

/// Reads lists, and refuses one that is too long before it fills the memory.
mod bounded {
    use super::{MAX_NAMES, MAX_NAMES_BYTES, MAX_ROWS};
    use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
    use std::fmt;
    use std::marker::PhantomData;

    pub fn rows<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(List { most: MAX_ROWS, of: PhantomData })
    }

    pub fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        let names: Vec<String> = from.deserialize_seq(List { most: MAX_NAMES, of: PhantomData })?;
        if names.iter().map(String::len).sum::<usize>() > MAX_NAMES_BYTES {
            let what = format!("the names take more than {MAX_NAMES_BYTES} bytes");
            return Err(D::Error::custom(what));
        }
        Ok(names)
    }

    struct List<T> {
        most: usize,
        of: PhantomData<T>,
    }

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {} values", self.most)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = list.next_element()? {
                if values.len() == self.most {
                    return Err(A::Error::invalid_length(self.most + 1, &self));
                }
                values.push(value);
            }
            Ok(values)
        }
    }
}

/// Read before the rest, so that another version is reported as such, not as an unknown field.
#[derive(Deserialize)]
struct FileSchema {
    schema: String,
}

/// Writes the trace as the page's file: the consumers' spans, the epilogues' without their waits
/// for their own block's consumers (the rest of their time), and the copies as streams. The same
/// trace gives the same bytes.
pub fn write(trace: &Trace) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut gzip, &file_from_trace(trace))
        .map_err(std::io::Error::from)
        .and_then(|()| gzip.finish())
        .expect("plain structures serialize, and a Vec takes every write")
}

/// Reads the trace from a file of the page, gzipped or not.
pub fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    let json = unpack(bytes)?;
    // The message may quote the file, so it is escaped.
    let refuse = |error: serde_json::Error| TraceError::Json(escaped(&error.to_string()));
    let FileSchema { schema } = serde_json::from_slice(&json).map_err(refuse)?;
    if schema != SCHEMA {
        return Err(TraceError::Schema(schema));
    }
    trace_from_file(serde_json::from_slice(&json).map_err(refuse)?)
}

/// Returns the JSON text. The first bytes decide whether to unpack it, not the file's name, since a
/// server may have unpacked a `.gz`.
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
    let epilogue = file_spans(trace, |span| {
        span.role == Role::Epilogue && span.kind != EventKind::WaitBarrier
    });
    File {
        schema: SCHEMA.to_owned(),
        meta: trace.meta().clone(),
        phases: Phase::ALL.iter().map(|phase| phase.name().to_owned()).collect(),
        kinds: EventKind::ALL.iter().map(|kind| kind.name().to_owned()).collect(),
        spans: file_spans(trace, |span| span.role == Role::Consumer),
        epilogue: Some(epilogue).filter(|epilogue| !epilogue.kind.is_empty()),
        streams: file_streams(trace),
        path: Some(file_path(&Analysis::path_of(trace).segments)),
    }
}

fn file_path(segments: &[PathSegment]) -> FilePath {
    let classes = PathClass::ALL.iter().map(|class| class.name().to_owned()).collect();
    let mut file = FilePath { classes, ..FilePath::default() };
    for segment in segments {
        file.block.push(segment.block);
        file.class.push(segment.class as u8);
        file.phase.push(segment.phase.map_or(NO_PHASE, |phase| phase as u8));
        file.layer.push(segment.layer.unwrap_or(NO_LAYER));
        file.length_ns.push(segment.end_ns - segment.begin_ns);
    }
    file
}

fn file_spans(trace: &Trace, is_kept: impl Fn(&Span) -> bool) -> FileSpans {
    let counts = vec![0; usize::from(trace.meta().blocks)];
    let mut file = FileSpans { counts, ..FileSpans::default() };
    let mut before = (0, 0);
    for span in trace.spans().iter().filter(is_kept) {
        let since = if before.0 == span.block { before.1 } else { 0 };
        file.counts[usize::from(span.block)] += 1;
        file.kind.push(span.kind as u8);
        file.phase.push(span.phase as u8);
        file.layer.push(span.layer.unwrap_or(NO_LAYER));
        file.waits_on.push(span.waits_on.unwrap_or(NO_BLOCK));
        file.gap_ns.push(span.begin_ns - since);
        file.length_ns.push(span.duration_ns());
        before = (span.block, span.end_ns);
    }
    file
}

fn file_streams(trace: &Trace) -> FileStreams {
    let counts = vec![0; usize::from(trace.meta().blocks)];
    let mut file = FileStreams { counts, ..FileStreams::default() };
    for stream in trace.streams().iter() {
        file.counts[usize::from(stream.block)] += 1;
        file.phase.push(stream.phase as u8);
        file.layer.push(stream.layer.unwrap_or(NO_LAYER));
        file.copies.push(stream.copies);
        file.bytes.push(stream.bytes);
        file.begin_ns.push(stream.begin_ns);
        file.length_ns.push(stream.end_ns - stream.begin_ns);
    }
    file
}

fn trace_from_file(file: File) -> Result<Trace, TraceError> {
    let File { schema: _, meta, phases, kinds, spans, epilogue, streams, path: _ } = file;
    let phases = known("phases", &phases, Phase::from_name)?;
    let kinds = known("kinds", &kinds, EventKind::from_name)?;
    let mut spans = spans_from_file("spans", Role::Consumer, &meta, &spans, &phases, &kinds)?;
    if let Some(file) = epilogue {
        let epilogue = spans_from_file("epilogue", Role::Epilogue, &meta, &file, &phases, &kinds)?;
        spans = by_block(&spans, &epilogue)?;
    }
    let streams = streams_from_file(&meta, streams, &phases)?;
    Trace::of_page(meta, spans, streams)
}

/// The spans of both roles, by block and by role in it. The columns of a list are equal in length.
fn by_block(consumers: &Spans, epilogues: &Spans) -> Result<Spans, TraceError> {
    for (list, spans) in [("spans", consumers), ("epilogue", epilogues)] {
        if let Some((column, found)) = spans.uneven() {
            let expected = spans.len();
            return Err(TraceError::UnequalColumns { list, column, found, expected });
        }
    }
    let mut rows: Vec<Span> = consumers.iter().chain(epilogues.iter()).collect();
    rows.sort_by_key(|span| (span.block, span.role));
    let mut spans = Spans::default();
    rows.into_iter().for_each(|span| spans.push(span));
    Ok(spans)
}

fn spans_from_file(
    list: &'static str,
    role: Role,
    meta: &Meta,
    file: &FileSpans,
    phases: &[Phase],
    kinds: &[EventKind],
) -> Result<Spans, TraceError> {
    let rows = file.kind.len();
    let block = blocks(list, meta, &file.counts, rows)?;
    equal(list, "gap_ns", file.gap_ns.len(), rows)?;
    equal(list, "length_ns", file.length_ns.len(), rows)?;
    let (mut begin_ns, mut end_ns) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut before = (0, 0);
    for (index, &block) in block.iter().enumerate() {
        let since = if before.0 == block { before.1 } else { 0 };
        let begin = time(list, index, since, file.gap_ns[index])?;
        let end = time(list, index, begin, file.length_ns[index])?;
        begin_ns.push(begin);
        end_ns.push(end);
        before = (block, end);
    }
    Ok(Spans {
        block,
        role: vec![role; rows],
        kind: named(list, "kind", &file.kind, kinds)?,
        phase: named(list, "phase", &file.phase, phases)?,
        layer: layers(&file.layer),
        waits_on: file.waits_on.iter().map(|&on| (on != NO_BLOCK).then_some(on)).collect(),
        begin_ns,
        end_ns,
    })
}

fn streams_from_file(
    meta: &Meta,
    file: FileStreams,
    phases: &[Phase],
) -> Result<Streams, TraceError> {
    const LIST: &str = "streams";
    let rows = file.phase.len();
    let block = blocks(LIST, meta, &file.counts, rows)?;
    equal(LIST, "begin_ns", file.begin_ns.len(), rows)?;
    equal(LIST, "length_ns", file.length_ns.len(), rows)?;
    let ends = file.begin_ns.iter().zip(&file.length_ns).enumerate();
    let end_ns: Result<Vec<u64>, TraceError> =
        ends.map(|(index, (&begin, &length))| time(LIST, index, begin, length)).collect();
    Ok(Streams {
        block,
        phase: named(LIST, "phase", &file.phase, phases)?,
        layer: layers(&file.layer),
        copies: file.copies,
        bytes: file.bytes,
        begin_ns: file.begin_ns,
        end_ns: end_ns?,
    })
}

/// Returns the block of each row, from the number of rows of each block. It allocates nothing
/// before the counts are known to match the rows.
fn blocks(
    list: &'static str,
    meta: &Meta,
    counts: &[u32],
    expected: usize,
) -> Result<Vec<u16>, TraceError> {
    let rows: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    if counts.len() != usize::from(meta.blocks) || rows != expected as u64 {
        let (found, blocks) = (counts.len(), meta.blocks);
        return Err(TraceError::WrongCounts { list, found, rows, blocks, expected });
    }
    let rows = counts.iter().zip(0..meta.blocks);
    Ok(rows.flat_map(|(&count, block)| std::iter::repeat_n(block, count as usize)).collect())
}

fn layers(ids: &[u16]) -> Vec<Option<u16>> {
    ids.iter().map(|&layer| (layer != NO_LAYER).then_some(layer)).collect()
}

fn time(list: &'static str, index: usize, since: u64, add: u64) -> Result<u64, TraceError> {
    let sum = since.checked_add(add).filter(|&sum| sum <= MAX_TOKEN_NS);
    sum.ok_or(TraceError::TimeTooLong { list, index })
}

fn equal(
    list: &'static str,
    column: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), TraceError> {
    if found == expected {
        return Ok(());
    }
    Err(TraceError::UnequalColumns { list, column, found, expected })
}

/// Converts the file's list of names to values. A name that this version does not know is refused.
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

/// Converts a column of ids, which index the list of names, to values.
fn named<T: Copy>(
    list: &'static str,
    column: &'static str,
    ids: &[u8],
    values: &[T],
) -> Result<Vec<T>, TraceError> {
    let names = values.len();
    let value = |(index, &id): (usize, &u8)| {
        let unknown = TraceError::UnknownId { list, column, index, id, names };
        values.get(usize::from(id)).copied().ok_or(unknown)
    };
    ids.iter().enumerate().map(value).collect()
}
