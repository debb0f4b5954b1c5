//! Interned names: each sequence defines its name ids once.

use super::proto::{DebugAnnotation, Interned, InternedData};
use crate::Span;
use crate::export::tracks::{Slice, Track, What};
use monolith_abi::Phase;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The first id of event names that are phases.
const PHASES: u64 = 1;
/// The first id of event names that are kinds of waits.
const WAITS: u64 = 32;
/// The first id of event names that are layers.
const LAYERS: u64 = 64;

const CATEGORIES: [&str; 3] = ["compute", "wait", "stream"];

const ANNOTATIONS: [&str; 8] =
    ["layer", "phase", "block", "sm", "waits_on", "ns", "bytes", "copies"];
const LAYER: u64 = 1;
const PHASE: u64 = 2;
const BLOCK: u64 = 3;
const SM: u64 = 4;
const WAITS_ON: u64 = 5;
const NS: u64 = 6;
const BYTES: u64 = 7;
const COPIES: u64 = 8;

/// All names that events of the track may use.
pub(super) fn interned(track: &Track) -> InternedData {
    let names: BTreeMap<u64, Cow<'static, str>> =
        track.slices.iter().map(|slice| (name_iid(&slice.what), slice.what.name())).collect();
    let phases = Phase::ALL.iter().map(|&phase| text(phase_iid(phase), phase.name()));
    InternedData {
        event_categories: texts(&CATEGORIES),
        event_names: names.iter().map(|(&iid, name)| text(iid, name)).collect(),
        debug_annotation_names: texts(&ANNOTATIONS),
        debug_annotation_string_values: phases.collect(),
    }
}

fn texts(texts: &[&str]) -> Vec<Interned> {
    texts.iter().zip(1..).map(|(name, iid)| text(iid, name)).collect()
}

fn text(iid: u64, name: &str) -> Interned {
    Interned { iid: Some(iid), name: Some(name.to_owned()) }
}

fn phase_iid(phase: Phase) -> u64 {
    PHASES + phase as u64
}

/// The id of a slice's name.
pub(super) fn name_iid(what: &What) -> u64 {
    match what {
        What::Layer(layer) => LAYERS + u64::from(*layer),
        What::Span(_, span) if span.kind.is_wait() => WAITS + span.kind as u64,
        What::Span(_, span) => phase_iid(span.phase),
        What::Stream(stream) => phase_iid(stream.phase),
    }
}

/// The id of a slice's category, if it has one.
pub(super) fn category(what: &What) -> Option<u64> {
    let category = what.category()?;
    CATEGORIES.iter().zip(1..).find_map(|(&name, iid)| (name == category).then_some(iid))
}

/// The details that a viewer shows for a selected slice.
pub(super) fn annotations(slice: &Slice, block: u16, sm: Option<u16>) -> Vec<DebugAnnotation> {
    let mut all = vec![count(BLOCK, block), count(NS, slice.end_ns - slice.begin_ns)];
    all.extend(sm.map(|sm| count(SM, sm)));
    match slice.what {
        What::Layer(layer) => all.push(count(LAYER, layer)),
        What::Span(_, Span { phase, layer, waits_on, .. }) => {
            all.push(phase_annotation(phase));
            all.extend(layer.map(|layer| count(LAYER, layer)));
            all.extend(waits_on.map(|block| count(WAITS_ON, block)));
        }
        What::Stream(stream) => {
            all.push(phase_annotation(stream.phase));
            all.extend(stream.layer.map(|layer| count(LAYER, layer)));
            all.extend([count(BYTES, stream.bytes), count(COPIES, stream.copies)]);
        }
    }
    all
}

fn count(name: u64, value: impl Into<u64>) -> DebugAnnotation {
    DebugAnnotation {
        name_iid: Some(name),
        uint_value: Some(value.into()),
        ..DebugAnnotation::default()
    }
}

fn phase_annotation(phase: Phase) -> DebugAnnotation {
    DebugAnnotation {
        name_iid: Some(PHASE),
        string_value_iid: Some(phase_iid(phase)),
        ..DebugAnnotation::default()
    }
}
