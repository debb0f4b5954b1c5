//! Merges consecutive copies of the same phase's weights into streams, which are few enough to
//! draw.

use crate::{Copies, Stream, Streams, TraceError};

/// Merges copies of one block that follow one another in order of issue and bring weights of the
/// same phase of the same layer.
pub(crate) fn streams_from_copies(copies: &Copies) -> Result<Streams, TraceError> {
    let mut streams = Streams::default();
    let mut open: Option<Stream> = None;
    for copy in copies.iter() {
        let next = Stream {
            block: copy.block,
            phase: copy.phase,
            layer: copy.layer,
            copies: 1,
            bytes: u64::from(copy.bytes),
            begin_ns: copy.issue_ns,
            end_ns: copy.arrival_ns,
        };
        open = match open {
            Some(before) if same_weights(&before, &next) => Some(merged(before, &next)?),
            Some(before) => {
                streams.push(before);
                Some(next)
            }
            None => Some(next),
        };
    }
    if let Some(last) = open {
        streams.push(last);
    }
    Ok(streams)
}

fn same_weights(a: &Stream, b: &Stream) -> bool {
    (a.block, a.phase, a.layer) == (b.block, b.phase, b.layer)
}

fn merged(before: Stream, next: &Stream) -> Result<Stream, TraceError> {
    let copies = before.copies.checked_add(next.copies).ok_or(TraceError::TooManyCopies)?;
    Ok(Stream {
        copies,
        bytes: before.bytes + next.bytes,
        end_ns: before.end_ns.max(next.end_ns),
        ..before
    })
}
