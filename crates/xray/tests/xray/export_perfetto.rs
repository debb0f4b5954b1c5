//! The `.pftrace`, decoded again.

use crate::export_traces::{any_trace, realistic, sample};
use monolith_abi::{EventKind, Phase, Role};
use monolith_xray::export::perfetto;
use monolith_xray::export::proto::{
    self, CHILDREN_BY_RANK, COUNTER, DebugAnnotation, InternedData, NEVER_MERGE, SLICE_BEGIN,
    SLICE_END, STATE_CLEARED, TrackDescriptor, TrackEvent,
};
use monolith_xray::{Meta, Span, Trace};
use proptest::prelude::*;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};

fn decoded(trace: &Trace) -> proto::Trace {
    proto::Trace::decode(perfetto(trace).as_slice()).unwrap()
}

fn descriptors(file: &proto::Trace) -> BTreeMap<u64, TrackDescriptor> {
    let descriptors = file.packet.iter().filter_map(|packet| packet.track_descriptor.clone());
    let mut by_uuid = BTreeMap::new();
    for descriptor in descriptors {
        let uuid = descriptor.uuid.unwrap();
        assert!(by_uuid.insert(uuid, descriptor).is_none(), "uuid {uuid} twice");
    }
    by_uuid
}

/// A decoded slice, with its names looked up.
#[derive(Clone, Debug)]
struct Read {
    track: String,
    name: String,
    category: Option<String>,
    begin_ns: u64,
    end_ns: u64,
    depth: usize,
    notes: BTreeMap<String, String>,
    flows_out: Vec<u64>,
    flow_in: Option<u64>,
}

/// Looks names up among those that the sequence has declared.
struct Names(InternedData);

impl Names {
    fn find(list: &[proto::Interned], iid: u64) -> String {
        let found = list.iter().find(|name| name.iid == Some(iid));
        found.unwrap_or_else(|| panic!("{iid} has no name")).name.clone().unwrap()
    }

    fn notes(&self, notes: &[DebugAnnotation]) -> BTreeMap<String, String> {
        let note = |note: &DebugAnnotation| {
            let name = Names::find(&self.0.debug_annotation_names, note.name_iid.unwrap());
            let text = note
                .string_value_iid
                .map(|iid| Names::find(&self.0.debug_annotation_string_values, iid));
            (name, text.unwrap_or_else(|| note.uint_value.unwrap().to_string()))
        };
        notes.iter().map(note).collect()
    }

    fn begun(&self, event: &TrackEvent, track: String, begin_ns: u64, depth: usize) -> Read {
        let category = event.category_iids.first();
        Read {
            track,
            name: Names::find(&self.0.event_names, event.name_iid.unwrap()),
            category: category.map(|&iid| Names::find(&self.0.event_categories, iid)),
            begin_ns,
            end_ns: 0,
            depth,
            notes: self.notes(&event.debug_annotations),
            flows_out: Vec::new(),
            flow_in: None,
        }
    }
}

/// Reads all slices, and fails on what a viewer would reject.
fn slices(file: &proto::Trace) -> Vec<Read> {
    let tracks = descriptors(file);
    let mut names: HashMap<u32, Names> = HashMap::new();
    let mut last_ns: HashMap<u32, u64> = HashMap::new();
    let mut open: HashMap<u64, Vec<Read>> = HashMap::new();
    let mut done = Vec::new();
    for packet in &file.packet {
        let sequence = packet.trusted_packet_sequence_id.unwrap();
        if let Some(data) = packet.interned_data.clone() {
            assert_eq!(packet.sequence_flags, Some(STATE_CLEARED));
            assert!(names.insert(sequence, Names(data)).is_none());
        }
        let Some(event) = &packet.track_event else { continue };
        let at_ns = packet.timestamp.unwrap();
        let before = last_ns.insert(sequence, at_ns).unwrap_or(0);
        assert!(before <= at_ns, "sequence {sequence}: {at_ns} ns after {before} ns");
        let uuid = event.track_uuid.unwrap();
        let track = tracks[&uuid].name.clone().unwrap();
        let open = open.entry(uuid).or_default();
        if event.r#type == Some(SLICE_BEGIN) {
            open.push(names[&sequence].begun(event, track, at_ns, open.len()));
        } else if event.r#type == Some(SLICE_END) {
            let mut slice = open.pop().unwrap();
            slice.end_ns = at_ns;
            slice.flows_out = event.flow_ids.clone();
            slice.flow_in = event.terminating_flow_ids.first().copied();
            if let Some(around) = open.last() {
                assert!(around.begin_ns <= slice.begin_ns, "{slice:?} in {around:?}");
            }
            done.push(slice);
        }
    }
    assert!(open.values().all(Vec::is_empty), "slices left open");
    done
}

fn track_of(span: &Span) -> String {
    let role = if span.role == Role::Consumer { "consumers" } else { "loader" };
    format!("blk {:03} {role}", span.block)
}

/// Every span is a slice, with its times and its notes; nothing else is on its track but layers.
fn check_spans(trace: &Trace, slices: &[Read]) {
    let mut found: Vec<&Read> =
        slices.iter().filter(|slice| !slice.track.contains("stream")).collect();
    found.retain(|slice| slice.category.is_some());
    found.sort_by_key(|slice| (slice.track.clone(), slice.begin_ns));
    assert_eq!(found.len(), trace.spans().len());
    for (slice, span) in found.iter().zip(trace.spans().iter()) {
        assert_eq!(slice.track, track_of(&span));
        assert_eq!((slice.begin_ns, slice.end_ns), (span.begin_ns, span.end_ns));
        assert_eq!(slice.notes["phase"], span.phase.name());
        assert_eq!(slice.notes["block"], span.block.to_string());
        assert_eq!(slice.notes["ns"], span.duration_ns().to_string());
        assert_eq!(slice.notes.get("layer").cloned(), span.layer.map(|layer| layer.to_string()));
        assert_eq!(slice.notes.get("waits_on").cloned(), span.waits_on.map(|on| on.to_string()));
        assert_eq!(slice.name.starts_with("wait:"), span.kind.is_wait());
        assert_eq!(slice.category.as_deref() == Some("wait"), span.kind.is_wait());
        assert_eq!(slice.depth, usize::from(span.layer.is_some()));
    }
}

/// Every stream is a slice, and no two of a track share time.
fn check_streams(trace: &Trace, slices: &[Read]) {
    let mut found: Vec<&Read> =
        slices.iter().filter(|slice| slice.track.contains("stream")).collect();
    found.retain(|slice| slice.category.is_some());
    let bytes = |slice: &&Read| slice.notes["bytes"].parse::<u64>().unwrap();
    assert_eq!(found.len(), trace.streams().len());
    assert_eq!(found.iter().map(bytes).sum::<u64>(), trace.streams().bytes.iter().sum::<u64>());
    found.sort_by_key(|slice| (slice.track.clone(), slice.begin_ns, slice.end_ns));
    for pair in found.windows(2) {
        assert!(pair[0].track != pair[1].track || pair[0].end_ns <= pair[1].begin_ns);
    }
}

/// Both ends of every flow, the tail's and the head's slice.
fn flows(slices: &[Read]) -> Vec<(&Read, &Read)> {
    let mut tails: BTreeMap<u64, &Read> = BTreeMap::new();
    for slice in slices {
        for &id in &slice.flows_out {
            assert!(tails.insert(id, slice).is_none(), "flow {id} has two tails");
        }
    }
    let heads = slices.iter().filter(|slice| slice.flow_in.is_some());
    let flows: Vec<_> = heads.map(|head| (tails[&head.flow_in.unwrap()], head)).collect();
    assert_eq!(flows.len(), tails.len(), "a flow has no head, or two");
    flows
}

fn check_flows(slices: &[Read]) {
    for (tail, head) in flows(slices) {
        assert!(tail.end_ns < head.end_ns, "{tail:?} -> {head:?}");
        assert_eq!(head.name, "wait:exchange");
        assert_eq!(head.notes["waits_on"], tail.notes["block"]);
        assert_eq!(head.notes["phase"], tail.notes["phase"]);
        assert_eq!(head.notes.get("layer"), tail.notes.get("layer"));
    }
}

/// `(name, mean x time)` of every counter.
fn counters(file: &proto::Trace) -> BTreeMap<String, f64> {
    let tracks = descriptors(file);
    let mut last: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
    let mut sums = BTreeMap::new();
    for packet in &file.packet {
        let Some(event) = packet.track_event.as_ref() else { continue };
        if event.r#type == Some(COUNTER) {
            let uuid = event.track_uuid.unwrap();
            assert!(tracks[&uuid].counter.is_some());
            let next = (packet.timestamp.unwrap(), event.double_counter_value.unwrap());
            let (at_ns, value) = last.insert(uuid, next).unwrap_or((0, 0.0));
            let sum = sums.entry(tracks[&uuid].name.clone().unwrap()).or_insert(0.0);
            *sum += value * (next.0 - at_ns) as f64;
        }
    }
    sums
}

proptest! {
    #[test]
    fn slices_nest_and_say_what_the_trace_says(trace in any_trace()) {
        let file = decoded(&trace);
        let slices = slices(&file);
        check_spans(&trace, &slices);
        check_streams(&trace, &slices);
        check_flows(&slices);
        prop_assert_eq!(perfetto(&trace), perfetto(&trace));
    }
}

#[test]
fn tracks_are_ordered_described_and_under_their_sm() {
    let file = decoded(&sample());
    let tracks = descriptors(&file);
    let mut ranks = BTreeSet::new();
    for track in tracks.values() {
        assert!(track.description.as_ref().is_some_and(|text| text.len() > 10), "{track:?}");
        assert_eq!(track.sibling_merge_behavior, Some(NEVER_MERGE));
        assert!(ranks.insert((track.parent_uuid, track.sibling_order_rank.unwrap())));
        if let Some(parent) = track.parent_uuid {
            assert_eq!(tracks[&parent].child_ordering, Some(CHILDREN_BY_RANK));
        }
    }
    let process = tracks.values().find(|track| track.process.is_some()).unwrap();
    assert_eq!(process.name.as_deref(), Some("monolith bf16-flag / position 128"));
    let mut lines: Vec<_> = tracks.values().filter(|track| track.parent_uuid.is_some()).collect();
    let place = |track: &TrackDescriptor| (track.parent_uuid, track.sibling_order_rank);
    lines.sort_by_key(|track| place(track));
    let names: Vec<_> = lines.iter().map(|track| track.name.clone().unwrap()).collect();
    let expected = [
        "blocks waiting",
        "weight stream",
        "SM 000",
        "SM 001",
        "blk 001 consumers",
        "blk 001 weight stream",
        "blk 000 consumers",
        "blk 000 loader",
        "blk 000 weight stream",
        "blk 000 weight stream 2",
    ];
    assert_eq!(names, expected);
}

#[test]
fn what_is_not_known_is_left_out() {
    let known = sample();
    let meta = Meta { sms: Vec::new(), pace: None, build: None, ..known.meta().clone() };
    let trace = Trace::new(meta, known.spans().clone(), known.copies().clone()).unwrap();
    let file = decoded(&trace);
    let names: Vec<_> = descriptors(&file).into_values().map(|track| track.name.unwrap()).collect();
    assert!(names.contains(&"block 001".to_owned()), "{names:?}");
    assert!(slices(&file).iter().all(|slice| !slice.notes.contains_key("sm")));
    let attributes = file.packet.iter().find_map(|packet| packet.trace_attributes.clone());
    assert_eq!(attributes.unwrap().attribute.len(), 4);
}

#[test]
fn layers_are_around_their_spans() {
    let slices = slices(&decoded(&sample()));
    let mut layers: Vec<_> = slices.iter().filter(|slice| slice.category.is_none()).collect();
    layers.retain(|slice| slice.track == "blk 000 consumers");
    let layers: Vec<_> =
        layers.iter().map(|slice| (slice.name.as_str(), slice.begin_ns, slice.end_ns)).collect();
    assert_eq!(layers, [("L00", 1000, 9900), ("L01", 9900, 12_000)]);
}

#[test]
fn waits_have_their_names() {
    let slices = slices(&decoded(&sample()));
    let names: BTreeSet<_> = slices.iter().map(|slice| slice.name.as_str()).collect();
    for name in ["wait:exchange", "wait:weights", "wait:stage", "wait:barrier"] {
        assert!(names.contains(name), "{names:?}");
    }
}

#[test]
fn a_flow_leads_from_the_last_work_before_the_waits_end() {
    let slices = slices(&decoded(&sample()));
    let mut flows = flows(&slices);
    flows.sort_by_key(|(tail, _)| tail.end_ns);
    let ends: Vec<_> = flows.iter().map(|(tail, head)| (tail.end_ns, head.end_ns)).collect();
    assert_eq!(ends, [(5500, 6000), (9000, 9400)]);
}

/// Lengths of the waits that an arrow can lead to, by hand-off, the longest first.
fn waits_with_producers(trace: &Trace) -> BTreeMap<(Phase, Option<u16>), Vec<u64>> {
    let mut first_work: HashMap<(u16, Phase, Option<u16>), u64> = HashMap::new();
    for span in trace.spans().iter() {
        if span.kind == EventKind::Work && span.role == Role::Consumer {
            first_work.entry((span.block, span.phase, span.layer)).or_insert(span.end_ns);
        }
    }
    let mut waits: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for span in trace.spans().iter() {
        let Some(on) = span.waits_on else { continue };
        let work = first_work.get(&(on, span.phase, span.layer));
        if work.is_some_and(|&end_ns| end_ns < span.end_ns) {
            waits.entry((span.phase, span.layer)).or_default().push(span.duration_ns());
        }
    }
    waits.values_mut().for_each(|waits| waits.sort_by_key(|&ns| std::cmp::Reverse(ns)));
    waits
}

#[test]
fn too_many_flows_are_cut_to_the_longest_waits_of_each_hand_off() {
    let trace = realistic();
    let mut expected = waits_with_producers(&trace);
    let share = 4096 / expected.len();
    expected.values_mut().for_each(|waits| waits.truncate(share));
    let slices = slices(&decoded(&trace));
    let mut kept: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (_, head) in flows(&slices) {
        let phase = Phase::from_name(&head.notes["phase"]).unwrap();
        let layer = head.notes.get("layer").map(|layer| layer.parse().unwrap());
        kept.entry((phase, layer)).or_default().push(head.end_ns - head.begin_ns);
    }
    kept.values_mut().for_each(|waits| waits.sort_by_key(|&ns| std::cmp::Reverse(ns)));
    assert_eq!(kept, expected);
}

#[test]
fn counters_add_up_to_the_trace() {
    let trace = sample();
    let counters = counters(&decoded(&trace));
    let waits = trace.spans().iter().filter(|span| span.kind.is_wait());
    let waits = waits.filter(|span| span.role == Role::Consumer).map(|span| span.duration_ns());
    assert_eq!(counters["blocks waiting"].round() as u64, waits.sum::<u64>());
    assert_eq!(counters["weight stream"].round() as u64, 5 * 16_384);
}

#[test]
fn the_run_is_named() {
    let file = decoded(&sample());
    let attributes = file.packet.iter().find_map(|packet| packet.trace_attributes.clone());
    let attributes: BTreeMap<String, String> = attributes
        .unwrap()
        .attribute
        .into_iter()
        .map(|one| {
            let number = one.long_value.map(|value| value.to_string());
            (one.key.unwrap(), one.string_value.or(number).unwrap())
        })
        .collect();
    let expected = [
        ("dev.monolith.build", "0123abcd"),
        ("dev.monolith.gpu", "a \"quoted\" GPU"),
        ("dev.monolith.headline_tok_s", "1520.2"),
        ("dev.monolith.overhead_pct", "2.00"),
        ("dev.monolith.position", "128"),
        ("dev.monolith.schema", "monolith-trace/2"),
        ("dev.monolith.variant", "bf16-flag"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(attributes, BTreeMap::from(expected));
}
