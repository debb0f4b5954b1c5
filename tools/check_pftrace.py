"""Checks .pftrace files with Perfetto's own protobufs (PyPI: perfetto).

    python3 tools/check_pftrace.py FILE...

It checks what a viewer relies on: every event is on a track described before it; every track's
slices begin and end in pairs and in order of time; times of a sequence never go back; a sequence
declares every name that it uses; every flow leads from one end of work to one later end of a wait.

A Chrome trace beside it (NAME.chrome-trace.json beside NAME.pftrace) must have the same slices on
the same tracks with the same times, and the same flows.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent


class Broken(Exception):
    """A fault of a file."""


def check(condition, *what):
    if not condition:
        raise Broken(" ".join(str(word) for word in what))


class Reader:
    """Reads packets in the file's order, as a viewer does."""

    def __init__(self):
        self.tracks = {}
        self.names = {}
        self.last_ns = {}
        self.open = {}
        self.tails = {}
        self.heads = {}
        self.attributes = {}
        self.counts = Counter()
        self.slices = Counter()

    def packet(self, packet):
        check(not len(UnknownFieldSet(packet)), "a packet has fields that Perfetto does not know")
        sequence = packet.trusted_packet_sequence_id
        check(sequence > 0, "a packet is of no sequence")
        if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            check(sequence not in self.names, "sequence", sequence, "begins twice")
            self.names[sequence] = interned(packet.interned_data)
        for attribute in packet.trace_attributes.attribute:
            value = attribute.string_value or attribute.long_value
            self.attributes[attribute.key] = value
        if packet.HasField("track_descriptor"):
            self.descriptor(packet.track_descriptor)
        if packet.HasField("track_event"):
            self.event(sequence, packet)

    def descriptor(self, track):
        check(track.uuid not in self.tracks, "track", track.uuid, "is described twice")
        check(track.name and track.description, "track", track.uuid, "lacks a name or a text")
        if track.parent_uuid:
            check(track.parent_uuid in self.tracks, track.name, "is under a track not described")
        self.tracks[track.uuid] = track

    def event(self, sequence, packet):
        event, at_ns = packet.track_event, packet.timestamp
        check(event.track_uuid in self.tracks, "an event is on track", event.track_uuid)
        check(sequence in self.names, "sequence", sequence, "does not begin with its names")
        before_ns = self.last_ns.get(sequence, 0)
        check(at_ns >= before_ns, "sequence", sequence, "goes back from", before_ns, "to", at_ns)
        self.last_ns[sequence] = at_ns
        self.counts[TrackEvent.Type.Name(event.type)] += 1
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            self.begin(sequence, event, at_ns)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            self.end(event, at_ns)
        else:
            check(event.type == TrackEvent.TYPE_COUNTER, "an event is of type", event.type)
            counter = self.tracks[event.track_uuid].HasField("counter")
            check(counter and event.HasField("double_counter_value"), "a counter without value")

    def begin(self, sequence, event, at_ns):
        names, categories, notes, texts = self.names[sequence]
        check(event.name_iid in names, "event name", event.name_iid, "was not declared")
        for iid in event.category_iids:
            check(iid in categories, "category", iid, "was not declared")
        for note in event.debug_annotations:
            check(note.name_iid in notes, "annotation", note.name_iid, "was not declared")
            if note.HasField("string_value_iid"):
                check(note.string_value_iid in texts, "a text was not declared")
        self.open.setdefault(event.track_uuid, []).append((names[event.name_iid], at_ns))

    def end(self, event, at_ns):
        track = self.tracks[event.track_uuid].name
        check(self.open.get(event.track_uuid), track, "ends at", at_ns, "what did not begin")
        name, begun_ns = self.open[event.track_uuid].pop()
        self.slices[(track, name, begun_ns, at_ns)] += 1
        for flow in event.flow_ids:
            check(flow not in self.tails, "flow", flow, "begins twice")
            self.tails[flow] = (name, at_ns)
        for flow in event.terminating_flow_ids:
            check(flow not in self.heads, "flow", flow, "ends twice")
            self.heads[flow] = (name, at_ns)

    def finish(self):
        for uuid, slices in self.open.items():
            check(not slices, self.tracks[uuid].name, "leaves open", slices)
        check(self.counts["TYPE_SLICE_BEGIN"] > 0, "there are no slices")
        check(self.tails.keys() == self.heads.keys(), "a flow lacks an end")
        for flow, (name, at_ns) in self.heads.items():
            check(name == "wait:exchange", "flow", flow, "ends in", name)
            check(self.tails[flow][1] < at_ns, "flow", flow, "leads back in time")
        check("dev.monolith.variant" in self.attributes, "the file does not name the variant")


def interned(data):
    """Ids of names, categories, annotations, and texts of annotations."""
    return (
        {entry.iid: entry.name for entry in data.event_names},
        {entry.iid: entry.name for entry in data.event_categories},
        {entry.iid: entry.name for entry in data.debug_annotation_names},
        {entry.iid: entry.str for entry in data.debug_annotation_string_values},
    )


class Chrome:
    """Reads the events of a Chrome trace in the file's order."""

    def __init__(self, events):
        self.threads = {}
        self.open = {}
        self.slices = Counter()
        self.tails = {}
        self.heads = {}
        for event in events:
            self.event(event)
        check(not any(self.open.values()), "the Chrome trace leaves slices open")

    def event(self, event):
        kind, thread = event["ph"], event["tid"]
        if kind == "M":
            if event["name"] == "thread_name":
                self.threads[thread] = event["args"]["name"]
            return
        at_ns = round(event["ts"] * 1000)
        track, name = self.threads[thread], event["name"]
        if kind == "B":
            self.open.setdefault(thread, []).append((name, at_ns))
        elif kind == "i":
            self.slices[(track, name, at_ns, at_ns)] += 1
        elif kind == "E":
            check(self.open.get(thread), track, "ends at", at_ns, "what did not begin")
            begun, begun_ns = self.open[thread].pop()
            check(begun == name, track, "ends", name, "in", begun)
            self.slices[(track, name, begun_ns, at_ns)] += 1
        else:
            check(kind in "sf", "an event is of kind", kind)
            ends = self.tails if kind == "s" else self.heads
            # A flow is written a nanosecond before the end of its slice.
            ends[event["id"]] = (self.open[thread][-1][0], at_ns + 1)


def compare(reader, path):
    with open(path, encoding="utf-8") as file:
        chrome = Chrome(json.load(file)["traceEvents"])
    ours = chrome.slices - reader.slices
    check(chrome.slices == reader.slices, "the Chrome trace has other slices:", list(ours)[:3])
    check(chrome.tails == reader.tails, "the Chrome trace's flows begin elsewhere")
    check(chrome.heads == reader.heads, "the Chrome trace's flows end elsewhere")


def check_file(path):
    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    reader = Reader()
    for packet in trace.packet:
        reader.packet(packet)
    reader.finish()
    chrome = Path(path).with_suffix(".chrome-trace.json")
    same = ""
    if chrome.exists():
        compare(reader, chrome)
        same = ", the same in the Chrome trace"
    slices = reader.counts["TYPE_SLICE_BEGIN"]
    return f"{slices} slices on {len(reader.tracks)} tracks, {len(reader.heads)} flows{same}"


def main(paths):
    if not paths:
        sys.exit(__doc__)
    for path in paths:
        try:
            print(f"{path}: {check_file(path)}")
        except Exception as error:
            sys.exit(f"{path}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
