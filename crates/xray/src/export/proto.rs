//! The part of Perfetto's schema that an export uses: field numbers as in perfetto's
//! `protos/perfetto/trace`. Enumerations are plain integers here, with their values as constants.

use prost::Message;

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// The packets.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One packet, with some of these fields.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Packets of one sequence share interned data and are in order of time.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// An event.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Names that the sequence's events use from here on.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// [`STATE_CLEARED`] or [`NEEDS_STATE`].
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
    /// Facts about the whole trace.
    #[prost(message, optional, tag = "126")]
    pub trace_attributes: Option<TraceAttributes>,
}

/// `sequence_flags`: the sequence starts anew here.
pub const STATE_CLEARED: u32 = 1;
/// `sequence_flags`: the packet needs the names that its sequence declared at the start.
pub const NEEDS_STATE: u32 = 2;

/// A track: a row of slices, or a counter.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Unique in the file.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Name, which the viewer shows beside the track.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The process that the track stands for.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The track it is under.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Present if it is a counter.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// [`CHILDREN_BY_RANK`].
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Place among the tracks of one parent.
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
    /// Help text.
    #[prost(string, optional, tag = "14")]
    pub description: Option<String>,
    /// [`NEVER_MERGE`].
    #[prost(int32, optional, tag = "15")]
    pub sibling_merge_behavior: Option<i32>,
}

/// `child_ordering`: by `sibling_order_rank`.
pub const CHILDREN_BY_RANK: i32 = 3;
/// `sibling_merge_behavior`: siblings of one name stay apart.
pub const NEVER_MERGE: i32 = 2;

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Its id.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// A counter's description.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// Unit, as text.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// Begin or end of a slice, or a counter's value.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Categories, by id.
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    /// Annotations.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// [`SLICE_BEGIN`], [`SLICE_END`] or [`COUNTER`].
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Name, by id.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// The track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// The counter's value.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
    /// Flows that begin here.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Flows that end here.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// `type`: a slice begins.
pub const SLICE_BEGIN: i32 = 1;
/// `type`: the innermost open slice of the track ends.
pub const SLICE_END: i32 = 2;
/// `type`: a counter has this value from here on.
pub const COUNTER: i32 = 4;

/// A named value of an event.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// Name, by id.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    /// The value, if it is a count.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// The value, by id, if it is text.
    #[prost(uint64, optional, tag = "17")]
    pub string_value_iid: Option<u64>,
}

/// The names for all events of a sequence.
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    /// Categories.
    #[prost(message, repeated, tag = "1")]
    pub event_categories: Vec<Interned>,
    /// Names of events.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Interned>,
    /// Names of annotations.
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<Interned>,
    /// Text values of annotations.
    #[prost(message, repeated, tag = "29")]
    pub debug_annotation_string_values: Vec<Interned>,
}

/// A text and the id that stands for it (Perfetto's `EventCategory`, `EventName`,
/// `DebugAnnotationName` and `InternedString` all have this layout).
#[derive(Clone, PartialEq, Message)]
pub struct Interned {
    /// The id, not 0.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    /// The text.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// Facts about the whole trace.
#[derive(Clone, PartialEq, Message)]
pub struct TraceAttributes {
    /// Key and value each.
    #[prost(message, repeated, tag = "1")]
    pub attribute: Vec<Attribute>,
}

/// One fact.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Its name.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// Its value, if it is a whole number.
    #[prost(int64, optional, tag = "2")]
    pub long_value: Option<i64>,
    /// Its value, if it is text.
    #[prost(string, optional, tag = "3")]
    pub string_value: Option<String>,
}
