//! The X-ray's buffers: what a recording kernel leaves in them, and what it says.

use super::producer::Producers;
use crate::EngineError;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use monolith_abi::dump::{Anchor, BlockDump, Copied, NO_BLOCK, NO_LAYER, Stamp};
use monolith_abi::kernel::{
    XRAY_ANCHORS, XRAY_ARRIVALS, XRAY_BLOCK_BYTES, XRAY_CONSUMER, XRAY_LOADER, XRAY_NO_LAYER,
    XrayHeader,
};
use monolith_abi::{EventKind, Phase};
use std::sync::Arc;

/// Where a recording step writes: one step's buffers are read, those of all others overwrite each
/// other, so that every step of a loop has the same work.
#[derive(Debug)]
pub(super) struct Recording {
    chosen: CudaSlice<u8>,
    others: CudaSlice<u8>,
}

impl Recording {
    pub(super) fn new(stream: &Arc<CudaStream>, blocks: usize) -> Result<Recording, DriverError> {
        let bytes = blocks * XRAY_BLOCK_BYTES as usize;
        Ok(Recording { chosen: stream.alloc_zeros(bytes)?, others: stream.alloc_zeros(bytes)? })
    }

    /// The address for a step.
    pub(super) fn address(&self, stream: &Arc<CudaStream>, chosen: bool) -> u64 {
        let buffer = if chosen { &self.chosen } else { &self.others };
        buffer.device_ptr(stream).0
    }

    /// What the chosen step left, in the device's bytes.
    pub(super) fn bytes(&self, stream: &Arc<CudaStream>) -> Result<Vec<u8>, DriverError> {
        stream.clone_dtoh(&self.chosen)
    }
}

/// What every block left behind of the step with this epoch.
pub(super) fn blocks_from(
    bytes: &[u8],
    epoch: u32,
    producers: &Producers<'_>,
) -> Result<Vec<BlockDump>, EngineError> {
    let blocks = bytes.chunks_exact(XRAY_BLOCK_BYTES as usize).enumerate();
    blocks
        .map(|(block, bytes)| {
            block_from(bytes, epoch, producers)
                .map_err(|what| EngineError::Xray(format!("block {block}: {what}")))
        })
        .collect()
}

/// Step of the timer that all SMs share: what all its readings are multiples of.
pub(super) fn timer_step_ns(blocks: &[BlockDump]) -> u64 {
    let readings = blocks.iter().flat_map(|block| &block.anchors).map(|anchor| anchor.global_ns);
    let Some(first) = readings.clone().next() else { return 1 };
    readings.map(|ns| ns.abs_diff(first)).fold(0, gcd).max(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn block_from(bytes: &[u8], epoch: u32, producers: &Producers<'_>) -> Result<BlockDump, String> {
    let header = header_from(bytes);
    if header.epoch != epoch {
        return Err(format!("recorded step {}, not {epoch}", header.epoch));
    }
    if header.sm_begin != header.sm_end {
        return Err(format!("moved from SM {} to {}", header.sm_begin, header.sm_end));
    }
    let parts = Parts::of(bytes, &header);
    let consumer = words_from(parts.consumer, header.begin_clock)?;
    let loader = words_from(parts.loader, header.begin_clock)?;
    let arrivals = words_from(parts.arrivals, header.begin_clock)?;
    Ok(BlockDump {
        sm: u16::try_from(header.sm_begin).map_err(|_| format!("SM {}", header.sm_begin))?,
        copies: copies_from(&loader, &arrivals)?,
        consumer: consumer_from(&consumer, producers),
        loader: ended(loader.iter().map(|word| word.stamp(NO_BLOCK)).collect()),
        anchors: parts.anchors.chunks_exact(16).map(anchor_from).collect(),
        lost: parts.lost,
    })
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn header_from(bytes: &[u8]) -> XrayHeader {
    let offset = |name: &str| {
        XrayHeader::FIELDS.iter().find(|field| field.0 == name).map_or(0, |field| field.2)
    };
    let word = |name| u32_at(bytes, offset(name));
    XrayHeader {
        begin_clock: u64_at(bytes, offset("begin_clock")),
        sm_begin: word("sm_begin"),
        sm_end: word("sm_end"),
        consumer: word("consumer"),
        loader: word("loader"),
        arrivals: word("arrivals"),
        anchors: word("anchors"),
        epoch: word("epoch"),
        missed: word("missed"),
        ..XrayHeader::default()
    }
}

/// The filled parts of a block's buffers.
struct Parts<'a> {
    consumer: &'a [u8],
    loader: &'a [u8],
    arrivals: &'a [u8],
    anchors: &'a [u8],
    lost: u64,
}

impl Parts<'_> {
    fn of<'a>(bytes: &'a [u8], header: &XrayHeader) -> Parts<'a> {
        let mut rest = &bytes[size_of::<XrayHeader>()..];
        let mut lost = u64::from(header.missed);
        let mut part = |count: u32, room: u32, size: usize| {
            let (all, after) = rest.split_at(room as usize * size);
            rest = after;
            lost += u64::from(count.saturating_sub(room));
            &all[..count.min(room) as usize * size]
        };
        Parts {
            consumer: part(header.consumer, XRAY_CONSUMER, 8),
            loader: part(header.loader, XRAY_LOADER, 8),
            arrivals: part(header.arrivals, XRAY_ARRIVALS, 8),
            anchors: part(header.anchors, XRAY_ANCHORS, 16),
            lost,
        }
    }
}

fn anchor_from(bytes: &[u8]) -> Anchor {
    Anchor { clock: u64_at(bytes, 0), global_ns: u64_at(bytes, 8) }
}

/// A stamp as the device wrote it, with the whole clock.
#[derive(Clone, Copy, Debug)]
struct Word {
    clock: u64,
    kind: EventKind,
    phase: Phase,
    layer: u16,
    detail: u32,
}

impl Word {
    fn stamp(&self, producer: u16) -> Stamp {
        let Word { clock, kind, phase, layer, .. } = *self;
        Stamp { clock, kind, phase, layer, producer }
    }
}

/// Reads stamps; completes their clocks from the 64 bits that the block began with. The end of a
/// gather is a reading from the past, by another thread perhaps: where it lies before the stamp
/// before it, that one counts.
fn words_from(bytes: &[u8], begin: u64) -> Result<Vec<Word>, String> {
    let mut clock = begin;
    let mut words = Vec::with_capacity(bytes.len() / 8);
    for (at, bytes) in bytes.chunks_exact(8).enumerate() {
        let (low, tag) = (u32_at(bytes, 0), u32_at(bytes, 4));
        let ahead = low.wrapping_sub(clock as u32).cast_signed();
        // The first stamp may be older than the observer's first reading.
        clock = if at == 0 {
            clock.saturating_add_signed(ahead.into())
        } else {
            clock + u64::from(ahead.max(0).cast_unsigned())
        };
        words.push(word_from(clock, tag).ok_or_else(|| format!("stamp {at} says {tag:#010x}"))?);
    }
    Ok(words)
}

fn word_from(clock: u64, tag: u32) -> Option<Word> {
    let layer = tag >> 8 & 0xff;
    Some(Word {
        clock,
        kind: EventKind::from_id((tag & 0xf) as u8)?,
        phase: Phase::from_id((tag >> 4 & 0xf) as u8)?,
        layer: if layer == XRAY_NO_LAYER { NO_LAYER } else { layer as u16 },
        detail: tag >> 16,
    })
}

/// The consumers' stamps. What ended a wait on an exchange says which value came last: that names
/// the wait's producer.
fn consumer_from(words: &[Word], producers: &Producers<'_>) -> Vec<Stamp> {
    let producer = |at: usize| {
        let (wait, next) = (words[at], words.get(at + 1)?);
        let value = next.detail.checked_sub(1).filter(|_| wait.kind == EventKind::WaitExchange)?;
        let is_partial = wait.phase == Phase::Attention && next.phase == Phase::Attention;
        let block = match wait.phase {
            Phase::LmHead => value as usize,
            _ if is_partial => producers.of_partial(value as usize),
            _ => producers.of_value(wait.phase, 2 * value as usize),
        };
        u16::try_from(block).ok()
    };
    let stamp = |at: usize| words[at].stamp(producer(at).unwrap_or(NO_BLOCK));
    ended((0..words.len()).map(stamp).collect())
}

/// The stamps with an end, where the buffer had no room for it.
fn ended(mut stamps: Vec<Stamp>) -> Vec<Stamp> {
    if let Some(&last) = stamps.last().filter(|last| last.kind != EventKind::Unrecorded) {
        stamps.push(Stamp { kind: EventKind::Unrecorded, producer: NO_BLOCK, ..last });
    }
    stamps
}

/// Issue and arrival of every copy: both sides go through the same stages in the same order.
fn copies_from(loader: &[Word], arrivals: &[Word]) -> Result<Vec<Copied>, String> {
    let issues = loader.iter().filter(|word| word.kind == EventKind::Work);
    let copy = |(at, (issue, arrival)): (usize, (&Word, &Word))| {
        if (issue.phase, issue.layer) != (arrival.phase, arrival.layer) {
            return Err(format!("copy {at} was issued as another than it arrived"));
        }
        Ok(Copied {
            issue_clock: issue.clock,
            // By another warp's clock reading: never before the issue.
            arrival_clock: arrival.clock.max(issue.clock),
            bytes: 16 * issue.detail,
            phase: issue.phase,
            layer: issue.layer,
        })
    };
    issues.zip(arrivals).enumerate().map(copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_kernels::variant::TABLE;
    use monolith_model::Config;

    const CONSUMER_AT: usize = size_of::<XrayHeader>();
    const LOADER_AT: usize = CONSUMER_AT + 8 * XRAY_CONSUMER as usize;
    const ARRIVALS_AT: usize = LOADER_AT + 8 * XRAY_LOADER as usize;
    const ANCHORS_AT: usize = ARRIVALS_AT + 8 * XRAY_ARRIVALS as usize;

    /// One block's buffers, written as the kernel writes them.
    struct Buffers(Vec<u8>);

    impl Buffers {
        fn put(&mut self, at: usize, bytes: &[u8]) {
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn header(&mut self, name: &str, value: &[u8]) {
            let field = XrayHeader::FIELDS.iter().find(|field| field.0 == name).unwrap();
            self.put(field.2, value);
        }

        fn stamp(
            &mut self,
            at: usize,
            clock: u64,
            kind: EventKind,
            place: (Phase, u32),
            detail: u32,
        ) {
            let tag = kind as u32 | (place.0 as u32) << 4 | place.1 << 8 | detail << 16;
            self.put(at, &(clock as u32).to_le_bytes());
            self.put(at + 4, &tag.to_le_bytes());
        }

        fn read(&self) -> Result<Vec<BlockDump>, EngineError> {
            let config = Config::qwen3_0_6b();
            blocks_from(&self.0, 7, &Producers::new(&config, &TABLE[0], 132, 20))
        }
    }

    /// A block that waited for qkv, whose clock's low half wraps meanwhile.
    fn small() -> Buffers {
        let begin: u64 = (9 << 32) - 100;
        let mut buffers = Buffers(vec![0; XRAY_BLOCK_BYTES as usize]);
        for (name, value) in [("consumer", 4_u32), ("loader", 3), ("arrivals", 1), ("anchors", 2)] {
            buffers.header(name, &value.to_le_bytes());
        }
        buffers.header("begin_clock", &begin.to_le_bytes());
        buffers.header("epoch", &7_u32.to_le_bytes());
        for name in ["sm_begin", "sm_end"] {
            buffers.header(name, &5_u32.to_le_bytes());
        }
        let qkv = (Phase::Qkv, 3);
        let none = (Phase::Embed, XRAY_NO_LAYER);
        buffers.stamp(CONSUMER_AT, begin - 30, EventKind::Work, none, 0);
        buffers.stamp(CONSUMER_AT + 8, begin + 50, EventKind::WaitExchange, qkv, 0);
        // Seen before the wait was stamped, by another thread.
        buffers.stamp(
            CONSUMER_AT + 16,
            begin + 40,
            EventKind::Work,
            (Phase::Attention, 3),
            1 + 1030,
        );
        buffers.stamp(CONSUMER_AT + 24, begin + 400, EventKind::Unrecorded, none, 0);
        buffers.stamp(LOADER_AT, begin + 10, EventKind::WaitRingEmpty, qkv, 0);
        buffers.stamp(LOADER_AT + 8, begin + 20, EventKind::Work, qkv, 1024);
        buffers.stamp(LOADER_AT + 16, begin + 30, EventKind::Unrecorded, none, 0);
        buffers.stamp(ARRIVALS_AT, begin + 300, EventKind::Work, qkv, 0);
        for (at, clock, ns) in [(0, begin, 640_u64), (16, begin + 200, 768)] {
            buffers.put(ANCHORS_AT + at, &clock.to_le_bytes());
            buffers.put(ANCHORS_AT + at + 8, &ns.to_le_bytes());
        }
        buffers
    }

    #[test]
    fn a_block_says_what_it_did() {
        let blocks = small().read().unwrap();
        let block = &blocks[0];
        let begin: u64 = (9 << 32) - 100;
        let clocks: Vec<_> = block.consumer.iter().map(|stamp| stamp.clock + 30 - begin).collect();
        assert_eq!(clocks, [0, 80, 80, 430]);
        let config = Config::qwen3_0_6b();
        let owner = crate::plan::Plan::new(&config, 132).owner(Phase::Qkv, 2 * 1030);
        assert_eq!(usize::from(block.consumer[1].producer), owner);
        assert_eq!(block.consumer[2].producer, NO_BLOCK);
        assert_eq!((block.consumer[0].layer, block.consumer[2].layer), (NO_LAYER, 3));
        let copy = block.copies[0];
        assert_eq!((copy.issue_clock, copy.arrival_clock), (begin + 20, begin + 300));
        assert_eq!((copy.bytes, copy.phase, copy.layer), (16_384, Phase::Qkv, 3));
        assert_eq!((block.sm, block.lost, block.anchors.len(), block.loader.len()), (5, 0, 2, 3));
        assert_eq!(timer_step_ns(&blocks), 128);
    }

    #[test]
    fn what_did_not_fit_is_counted() {
        let mut buffers = small();
        buffers.header("arrivals", &(XRAY_ARRIVALS + 5).to_le_bytes());
        buffers.header("consumer", &(XRAY_CONSUMER + 2).to_le_bytes());
        buffers.header("missed", &3_u32.to_le_bytes());
        let block = &buffers.read().unwrap()[0];
        assert_eq!(block.lost, 10);
        assert_eq!(block.consumer.last().unwrap().kind, EventKind::Unrecorded);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: &dyn Fn(&mut Buffers)| {
            let mut buffers = small();
            change(&mut buffers);
            buffers.read().unwrap_err().to_string()
        };
        let said = refused(&|buffers| buffers.header("epoch", &6_u32.to_le_bytes()));
        assert!(said.contains("block 0: recorded step 6, not 7"), "{said}");
        let said = refused(&|buffers| buffers.header("sm_end", &6_u32.to_le_bytes()));
        assert!(said.contains("moved from SM 5 to 6"), "{said}");
        let said = refused(&|buffers| buffers.put(CONSUMER_AT + 12, &[0x0f, 0, 0, 0]));
        assert!(said.contains("stamp 1 says 0x0000000f"), "{said}");
        let other = |buffers: &mut Buffers| {
            buffers.stamp(ARRIVALS_AT, 9 << 32, EventKind::Work, (Phase::Down, 3), 0);
        };
        let said = refused(&other);
        assert!(said.contains("copy 0 was issued as another than it arrived"), "{said}");
    }
}
