//! Rows for a spreadsheet or a data frame.

use super::sm_of;
use crate::Trace;
use monolith_abi::Role;

const HEADER: &str = "block,sm,role,kind,phase,layer,waits_on,begin_ns,end_ns,bytes\n";

/// Writes one row per span, then one row per copy (kind `copy`, from issue to arrival, with its
/// bytes). Without single copies, consecutive copies for one phase are one row of kind `stream`.
/// Unknown or inapplicable cells are empty.
pub fn csv(trace: &Trace) -> Vec<u8> {
    let mut text = HEADER.to_owned();
    for span in trace.spans().iter() {
        let time = (span.begin_ns, span.end_ns);
        let what = [span.role.name(), span.kind.name(), span.phase.name()];
        row(&mut text, trace, span.block, what, (span.layer, span.waits_on), time, None);
    }
    for copy in trace.copies().iter() {
        let time = (copy.issue_ns, copy.arrival_ns);
        let what = [Role::Loader.name(), "copy", copy.phase.name()];
        let bytes = Some(copy.bytes.into());
        row(&mut text, trace, copy.block, what, (copy.layer, None), time, bytes);
    }
    if trace.is_reduced() {
        for stream in trace.streams().iter() {
            let time = (stream.begin_ns, stream.end_ns);
            let what = [Role::Loader.name(), "stream", stream.phase.name()];
            let bytes = Some(stream.bytes);
            row(&mut text, trace, stream.block, what, (stream.layer, None), time, bytes);
        }
    }
    text.into_bytes()
}

/// Writes one row. All values are numbers and fixed words, so none can hold a comma or a quote.
fn row(
    text: &mut String,
    trace: &Trace,
    block: u16,
    what: [&str; 3],
    (layer, waits_on): (Option<u16>, Option<u16>),
    (begin_ns, end_ns): (u64, u64),
    bytes: Option<u64>,
) {
    let [sm, layer, waits_on] = [sm_of(trace, block), layer, waits_on].map(or_empty);
    let [what, bytes] = [what.join(","), or_empty(bytes)];
    *text += &format!("{block},{sm},{what},{layer},{waits_on},{begin_ns},{end_ns},{bytes}\n");
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
