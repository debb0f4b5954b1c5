//! Converts the trace to tracks of nested slices, the model that all viewers share.

use super::lanes::lanes;
use super::wait_name;
use crate::{Span, Stream, Trace};
use monolith_abi::Role;
use std::borrow::Cow;

/// One track of a block: a row of slices.
pub(super) struct Track {
    pub(super) block: u16,
    pub(super) kind: TrackKind,
    /// In order of time, outer before inner. Two slices are disjoint, or one contains the other.
    pub(super) slices: Vec<Slice>,
}

/// What a track of a block shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TrackKind {
    Consumers,
    Epilogue,
    Loader,
    /// A lane of the weight stream.
    Stream(usize),
}

/// An interval on a track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// Number of slices that contain it.
    pub(super) depth: usize,
    pub(super) what: What,
}

/// What a slice shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A layer, around its consecutive slices.
    Layer(u16),
    /// A span, and its row in the trace.
    Span(usize, Span),
    /// A stream of weight copies.
    Stream(Stream),
}

impl What {
    /// The slice's name. Viewers add up time by name, so only the names of layers contain a layer,
    /// and none contains a block.
    pub(super) fn name(&self) -> Cow<'static, str> {
        match self {
            What::Layer(layer) => format!("L{layer:02}").into(),
            What::Span(_, span) => wait_name(span.kind).unwrap_or(span.phase.name()).into(),
            What::Stream(stream) => stream.phase.name().into(),
        }
    }

    /// The kind of time, in one word; `None` for a layer, so that its time does not count twice.
    pub(super) fn category(&self) -> Option<&'static str> {
        match self {
            What::Layer(_) => None,
            What::Span(_, span) if span.kind.is_wait() => Some("wait"),
            What::Span(_, span) if span.role != Role::Loader => Some("compute"),
            What::Span(..) | What::Stream(_) => Some("stream"),
        }
    }

    fn layer(&self) -> Option<u16> {
        match self {
            What::Layer(layer) => Some(*layer),
            What::Span(_, span) => span.layer,
            What::Stream(stream) => stream.layer,
        }
    }
}

/// The begin or the end of a slice.
pub(super) enum Edge<'a> {
    Begin(&'a Slice),
    End(&'a Slice),
}

impl Edge<'_> {
    /// The time of the begin or the end.
    pub(super) fn at_ns(&self) -> u64 {
        match self {
            Edge::Begin(slice) => slice.begin_ns,
            Edge::End(slice) => slice.end_ns,
        }
    }
}

impl Track {
    /// Begins and ends in order of time; every end belongs to the open slice that began last.
    pub(super) fn edges(&self) -> Vec<Edge<'_>> {
        let mut edges = Vec::with_capacity(2 * self.slices.len());
        let mut open: Vec<&Slice> = Vec::new();
        for slice in &self.slices {
            edges.extend(open.drain(slice.depth..).rev().map(Edge::End));
            edges.push(Edge::Begin(slice));
            open.push(slice);
        }
        edges.extend(open.into_iter().rev().map(Edge::End));
        edges
    }

    /// The track's name in a viewer.
    pub(super) fn name(&self) -> String {
        let block = self.block;
        match self.kind {
            TrackKind::Consumers => format!("blk {block:03} consumers"),
            TrackKind::Epilogue => format!("blk {block:03} epilogue"),
            TrackKind::Loader => format!("blk {block:03} loader"),
            TrackKind::Stream(0) => format!("blk {block:03} weight stream"),
            TrackKind::Stream(lane) => format!("blk {block:03} weight stream {}", lane + 1),
        }
    }

    /// What the track shows, in one sentence.
    pub(super) fn description(&self) -> String {
        let block = self.block;
        match self.kind {
            TrackKind::Consumers => format!("Block {block}: its work and its waits."),
            TrackKind::Epilogue => {
                format!("Block {block}: the warp that adds up the others' sums and publishes.")
            }
            TrackKind::Loader => format!("Block {block}: the lane that streams the weights."),
            TrackKind::Stream(_) => format!(
                "Block {block}: weights on their way, from a phase's first copy issued to its last \
                 arrived. Phases that overlap are on further tracks."
            ),
        }
    }
}

/// Every track that has slices, ordered by block and kind.
pub(super) fn tracks(trace: &Trace) -> Vec<Track> {
    let mut tracks = span_tracks(trace);
    let streams: Vec<Stream> = trace.streams().iter().collect();
    for streams in streams.chunk_by(|one, other| one.block == other.block) {
        for (lane, streams) in lanes(streams).into_iter().enumerate() {
            let (block, kind) = (streams[0].block, TrackKind::Stream(lane));
            let slices = under_layers(streams.into_iter().map(stream_slice));
            tracks.push(Track { block, kind, slices });
        }
    }
    tracks.sort_by_key(|track| (track.block, track.kind));
    tracks
}

fn span_tracks(trace: &Trace) -> Vec<Track> {
    let spans: Vec<(usize, Span)> = trace.spans().iter().enumerate().collect();
    let one_track = |(_, one): &(usize, Span), (_, other): &(usize, Span)| {
        (one.block, one.role) == (other.block, other.role)
    };
    let tracks = spans.chunk_by(one_track).map(|spans| Track {
        block: spans[0].1.block,
        kind: match spans[0].1.role {
            Role::Consumer => TrackKind::Consumers,
            Role::Loader => TrackKind::Loader,
            Role::Epilogue => TrackKind::Epilogue,
        },
        slices: under_layers(spans.iter().map(span_slice)),
    });
    tracks.collect()
}

fn span_slice(&(row, span): &(usize, Span)) -> Slice {
    let what = What::Span(row, span);
    Slice { begin_ns: span.begin_ns, end_ns: span.end_ns, depth: 0, what }
}

fn stream_slice(stream: Stream) -> Slice {
    let what = What::Stream(stream);
    Slice { begin_ns: stream.begin_ns, end_ns: stream.end_ns, depth: 0, what }
}

/// Puts a slice of the layer around consecutive slices of one layer. The inner slices do not
/// overlap, so those of the layers do not overlap either.
fn under_layers(slices: impl Iterator<Item = Slice>) -> Vec<Slice> {
    let mut nested: Vec<Slice> = Vec::new();
    let mut around: Option<(u16, usize)> = None;
    for slice in slices {
        match (slice.what.layer(), around) {
            (Some(layer), Some((current, at))) if layer == current => {
                nested[at].end_ns = slice.end_ns;
            }
            (Some(layer), _) => {
                around = Some((layer, nested.len()));
                nested.push(Slice { what: What::Layer(layer), ..slice });
            }
            (None, _) => around = None,
        }
        nested.push(Slice { depth: usize::from(around.is_some()), ..slice });
    }
    nested
}
