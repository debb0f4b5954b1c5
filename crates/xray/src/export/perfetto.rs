//! Perfetto's own format (`.pftrace`): TrackEvent protobuf.
//!
//! There is one process. Under it are two counters and a group for each SM (for each block, if the
//! SMs are not known). Under a group are the tracks of its blocks. The events of each track are a
//! separate sequence, in order of time, whose id is the track's uuid.

mod names;

use super::counters::{Curve, blocks_waiting, stream_rate};
use super::flows::Arrows;
use super::proto::{self, TracePacket, TrackDescriptor, TrackEvent};
use super::tracks::{Edge, Slice, Track, What, tracks};
use super::{process_name, sm_of};
use crate::{Trace, page};
use names::{annotations, category, interned, name_iid};
use prost::Message;
use std::collections::BTreeMap;

const PROCESS: u64 = 1;
const BLOCKS_WAITING: u64 = 2;
const STREAM_RATE: u64 = 3;
/// The first uuid of groups, and after them of tracks: small numbers make a small file.
const FIRST_GROUP: u64 = 4;

/// The sequence of all packets that are not events.
const COMMON_SEQUENCE: u32 = PROCESS as u32;
/// Rank of the first group: counters come before it.
const FIRST_GROUP_RANK: i32 = 2;

/// The trace as a `.pftrace` file. Flows lead from the end of the last work in the producer's
/// phase to the wait that it released. With more than 4,096 of them, each hand-off (one phase of
/// one layer) keeps an equal share: its longest waits.
pub fn perfetto(trace: &Trace) -> Vec<u8> {
    let tracks = tracks(trace);
    let groups = groups(trace, &tracks);
    let arrows = Arrows::of(trace);
    let mut file = File::default();
    file.attributes(trace);
    file.process(trace);
    for group in groups.values() {
        file.descriptor(group.descriptor());
    }
    let first_track = FIRST_GROUP + groups.len() as u64;
    for (index, track) in tracks.iter().enumerate() {
        let group = &groups[&group_key(trace, track.block)];
        file.descriptor(track_descriptor(track, index, first_track, group));
    }
    file.counters(trace);
    for (index, track) in tracks.iter().enumerate() {
        let uuid = first_track + index as u64;
        file.slices(trace, track, uuid, &arrows);
    }
    file.bytes
}

/// The file written so far.
#[derive(Default)]
struct File {
    bytes: Vec<u8>,
}

impl File {
    fn packet(&mut self, packet: &TracePacket) {
        // Field 1 of a `Trace`, a message. Packets are written one by one, so that the file is
        // never in memory twice.
        self.bytes.push(1 << 3 | 2);
        self.bytes.extend(packet.encode_length_delimited_to_vec());
    }

    /// Writes the first packet, which also opens the common sequence.
    fn attributes(&mut self, trace: &Trace) {
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(COMMON_SEQUENCE),
            sequence_flags: Some(proto::STATE_CLEARED),
            trace_attributes: Some(proto::TraceAttributes { attribute: attributes(trace) }),
            ..TracePacket::default()
        });
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) {
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(COMMON_SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
    }

    fn process(&mut self, trace: &Trace) {
        let meta = trace.meta();
        let name = process_name(trace);
        self.descriptor(TrackDescriptor {
            uuid: Some(PROCESS),
            name: Some(name.clone()),
            process: Some(proto::ProcessDescriptor { pid: Some(1), process_name: Some(name) }),
            description: Some(format!(
                "One token of {} on {}: {} {}s, {} ns. Times are true to within {} ns ({}).",
                meta.model,
                meta.device,
                meta.blocks,
                meta.unit(),
                meta.token_ns,
                meta.clock_error_ns,
                meta.alignment
            )),
            ..track(proto::CHILDREN_BY_RANK, 0)
        });
    }

    fn counters(&mut self, trace: &Trace) {
        let waiting = blocks_waiting(trace);
        let what = "Mean number of blocks whose consumers wait";
        self.counter(trace, BLOCKS_WAITING, ("blocks waiting", "blocks", what), &waiting);
        if let Some(rate) = stream_rate(trace) {
            let what = "Rate at which weights arrived";
            self.counter(trace, STREAM_RATE, ("weight stream", "GB/s", what), &rate);
        }
    }

    fn counter(
        &mut self,
        trace: &Trace,
        uuid: u64,
        (name, unit, what): (&str, &str, &str),
        curve: &Curve,
    ) {
        let window_us = curve.window_ns as f64 / 1e3;
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(PROCESS),
            counter: Some(proto::CounterDescriptor { unit_name: Some(unit.to_owned()) }),
            description: Some(format!("{what}, in windows of {window_us} us.")),
            ..track(0, (uuid - BLOCKS_WAITING) as i32)
        });
        self.sequence(uuid, proto::InternedData::default());
        let begins = (0..).step_by(curve.window_ns as usize);
        let end = (trace.meta().token_ns, 0.0);
        for (at_ns, value) in begins.zip(curve.values.iter().copied()).chain([end]) {
            self.event(at_ns, uuid, counter_event(value));
        }
    }

    /// Opens the sequence of a track.
    fn sequence(&mut self, uuid: u64, names: proto::InternedData) {
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(uuid as u32),
            interned_data: Some(names),
            sequence_flags: Some(proto::STATE_CLEARED),
            ..TracePacket::default()
        });
    }

    fn event(&mut self, at_ns: u64, uuid: u64, event: TrackEvent) {
        self.packet(&TracePacket {
            timestamp: Some(at_ns),
            trusted_packet_sequence_id: Some(uuid as u32),
            track_event: Some(TrackEvent { track_uuid: Some(uuid), ..event }),
            sequence_flags: Some(proto::NEEDS_STATE),
            ..TracePacket::default()
        });
    }

    fn slices(&mut self, trace: &Trace, track: &Track, uuid: u64, arrows: &Arrows) {
        self.sequence(uuid, interned(track));
        let sm = sm_of(trace, track.block);
        for edge in track.edges() {
            let (at_ns, event) = match edge {
                Edge::Begin(slice) => (slice.begin_ns, begin_event(slice, track.block, sm)),
                Edge::End(slice) => (slice.end_ns, end_event(slice, arrows)),
            };
            self.event(at_ns, uuid, event);
        }
    }
}

fn begin_event(slice: &Slice, block: u16, sm: Option<u16>) -> TrackEvent {
    TrackEvent {
        r#type: Some(proto::SLICE_BEGIN),
        name_iid: Some(name_iid(&slice.what)),
        category_iids: category(&slice.what).into_iter().collect(),
        debug_annotations: annotations(slice, block, sm),
        ..TrackEvent::default()
    }
}

/// Flows lead from the end of the work to the end of the wait. A wait mostly begins before the work
/// that releases it ends, and an arrow's tail must come first.
fn end_event(slice: &Slice, arrows: &Arrows) -> TrackEvent {
    let mut event = TrackEvent { r#type: Some(proto::SLICE_END), ..TrackEvent::default() };
    if let What::Span(row, _) = slice.what {
        event.flow_ids = arrows.tails(row).to_vec();
        event.terminating_flow_ids = arrows.head(row).into_iter().collect();
    }
    event
}

fn counter_event(value: f64) -> TrackEvent {
    TrackEvent {
        r#type: Some(proto::COUNTER),
        double_counter_value: Some(value),
        ..TrackEvent::default()
    }
}

/// The fields that all tracks have.
fn track(child_ordering: i32, rank: i32) -> TrackDescriptor {
    TrackDescriptor {
        child_ordering: (child_ordering != 0).then_some(child_ordering),
        sibling_order_rank: Some(rank),
        sibling_merge_behavior: Some(proto::NEVER_MERGE),
        ..TrackDescriptor::default()
    }
}

fn track_descriptor(of: &Track, index: usize, first_track: u64, group: &Group) -> TrackDescriptor {
    TrackDescriptor {
        uuid: Some(first_track + index as u64),
        name: Some(of.name()),
        parent_uuid: Some(group.uuid),
        description: Some(of.description()),
        ..track(0, index as i32)
    }
}

/// A group of tracks in the viewer: those of one SM's blocks.
struct Group {
    uuid: u64,
    key: GroupKey,
}

/// What a group is for. The order is that of the viewer: SMs, then blocks whose SM is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GroupKey {
    Sm(u16),
    Block(u16),
}

fn group_key(trace: &Trace, block: u16) -> GroupKey {
    sm_of(trace, block).map_or(GroupKey::Block(block), GroupKey::Sm)
}

fn groups(trace: &Trace, tracks: &[Track]) -> BTreeMap<GroupKey, Group> {
    let mut groups: BTreeMap<GroupKey, Group> = BTreeMap::new();
    for track in tracks {
        let key = group_key(trace, track.block);
        groups.entry(key).or_insert(Group { uuid: 0, key });
    }
    for (group, uuid) in groups.values_mut().zip(FIRST_GROUP..) {
        group.uuid = uuid;
    }
    groups
}

impl Group {
    fn descriptor(&self) -> TrackDescriptor {
        let (name, description) = match self.key {
            GroupKey::Sm(sm) => (format!("SM {sm:03}"), format!("The blocks on SM {sm}.")),
            GroupKey::Block(block) => {
                (format!("block {block:03}"), format!("The tracks of block {block}."))
            }
        };
        TrackDescriptor {
            uuid: Some(self.uuid),
            name: Some(name),
            parent_uuid: Some(PROCESS),
            description: Some(description),
            ..track(proto::CHILDREN_BY_RANK, FIRST_GROUP_RANK + (self.uuid - FIRST_GROUP) as i32)
        }
    }
}

/// Facts about the recorded step, with the prefix `dev.monolith`.
fn attributes(trace: &Trace) -> Vec<proto::Attribute> {
    let meta = trace.meta();
    let text = |key: &str, text: String| attribute(key, None, Some(text));
    let mut attributes = vec![
        text("variant", meta.variant.clone()),
        text("gpu", meta.device.clone()),
        attribute("position", Some(meta.position.into()), None),
        text("schema", page::SCHEMA.to_owned()),
    ];
    attributes.extend(meta.build.as_ref().map(|build| text("build", build.clone())));
    if let Some(pace) = meta.pace {
        attributes.push(text("headline_tok_s", format!("{:.1}", pace.headline_tok_s)));
        attributes.push(text("overhead_pct", format!("{:.2}", pace.overhead_pct)));
    }
    attributes
}

fn attribute(key: &str, long_value: Option<i64>, string_value: Option<String>) -> proto::Attribute {
    proto::Attribute { key: Some(format!("dev.monolith.{key}")), long_value, string_value }
}
