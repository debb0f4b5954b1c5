//! Decodes a recording kernel's buffers, from records to stamps. Pure: no GPU is needed.

use super::super::producer::Producers;
use crate::EngineError;
use monolith_abi::dump::{Anchor, BlockDump, Copied, NO_BLOCK, NO_LAYER, Stamp};
use monolith_abi::step::{LAYER_MATVECS, matvec_at};
use monolith_abi::xray::{
    XRAY_MOMENT_BITS, XRAY_NO_LAYER, XrayAnchor, XrayBlock, XrayCopy, XrayNote, XrayRound,
};
use monolith_abi::{EventKind, Moment, Phase};
use zerocopy::{FromBytes, IntoBytes};

/// Returns the dumps of all blocks of the step with this epoch; the words are their buffers.
pub(in super::super) fn blocks_from(
    words: &[u64],
    epoch: u32,
    producers: &Producers,
) -> Result<Vec<BlockDump>, EngineError> {
    let blocks = <[XrayBlock]>::ref_from_bytes(words.as_bytes()).map_err(|_| {
        EngineError::Xray(format!("{} bytes are not whole blocks", size_of_val(words)))
    })?;
    let dump = |(at, block): (usize, &XrayBlock)| {
        block_from(at, block, epoch, producers)
            .map_err(|what| EngineError::Xray(format!("block {at}: {what}")))
    };
    blocks.iter().enumerate().map(dump).collect()
}

/// Resolution of the timer that all SMs share: the greatest common divisor of its readings.
pub(in super::super) fn timer_step_ns(blocks: &[BlockDump]) -> u64 {
    let readings = blocks.iter().flat_map(|block| &block.anchors).map(|anchor| anchor.global_ns);
    let Some(first) = readings.clone().next() else { return 1 };
    readings.map(|ns| ns.abs_diff(first)).fold(0, gcd).max(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn block_from(
    at: usize,
    block: &XrayBlock,
    epoch: u32,
    producers: &Producers,
) -> Result<BlockDump, String> {
    let header = &block.header;
    if header.epoch != epoch {
        return Err(format!("recorded step {}, not {epoch}", header.epoch));
    }
    if header.sm_begin != header.sm_end {
        return Err(format!("moved from SM {} to {}", header.sm_begin, header.sm_end));
    }
    let mut lost = 0;
    let (notes, begin) = (filled(&block.notes, header.notes, &mut lost), header.begin_clock);
    let rounds = filled(&block.rounds, header.rounds, &mut lost);
    let copies = filled(&block.copies, header.copies, &mut lost);
    let arrivals = filled(&block.arrivals, header.arrivals, &mut lost);
    let anchors = filled(&block.anchors, header.anchors, &mut lost);
    let loader = loader_from(copies, begin)?;
    let (rounds, argmax) = rounds_from(rounds, begin, lost);
    let (consumer, entered) = consumer_from(&notes_from(notes, begin), &rounds, producers, lost)?;
    let begun = consumer.first().map_or(begin, |stamp| stamp.clock);
    Ok(BlockDump {
        sm: u16::try_from(header.sm_begin).map_err(|_| format!("SM {}", header.sm_begin))?,
        copies: copies_from(&loader, &clocks_from(arrivals, begin), lost)?,
        epilogue: epilogue_from(begun, &entered, &rounds, argmax, producers, at == 0),
        consumer,
        loader: ended(loader.into_iter().map(|(stamp, _)| stamp).collect()),
        anchors: anchors.iter().map(anchor_from).collect(),
        lost,
    })
}

/// The filled records of a part. More than fit were counted and lost.
fn filled<'a, Record>(all: &'a [Record], count: u32, lost: &mut u64) -> &'a [Record] {
    let count = count as usize;
    *lost += count.saturating_sub(all.len()) as u64;
    &all[..count.min(all.len())]
}

fn anchor_from(anchor: &XrayAnchor) -> Anchor {
    Anchor { clock: anchor.clock, global_ns: anchor.global_ns }
}

/// Extends 32-bit clocks to 64 bits, from the block's first clock. They are in order; one that is
/// not (two lanes read the clock) counts as equal to the previous one.
struct Clocks {
    at: u64,
    is_first: bool,
}

impl Clocks {
    fn from(begin: u64) -> Clocks {
        Clocks { at: begin, is_first: true }
    }

    fn next(&mut self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.at as u32).cast_signed();
        // The first clock may be older than the observer's first reading.
        let ahead = if std::mem::take(&mut self.is_first) { ahead } else { ahead.max(0) };
        self.at = self.at.saturating_add_signed(ahead.into());
        self.at
    }
}

/// Extends a 32-bit clock to 64 bits, from a clock near it.
fn clock_near(near: u64, low: u32) -> u64 {
    near.saturating_add_signed(low.wrapping_sub(near as u32).cast_signed().into())
}

/// A note of thread 0 (or the watcher's word on a gather), and its clock.
#[derive(Clone, Copy, Debug)]
struct Note {
    clock: u64,
    word: u32,
}

impl Note {
    fn moment(self) -> Option<Moment> {
        Moment::from_id((self.word & ((1 << XRAY_MOMENT_BITS) - 1)) as u8)
    }

    fn which(self) -> u32 {
        self.word >> XRAY_MOMENT_BITS
    }
}

/// The notes are in order; when a unit was seen is not a note of that order.
fn notes_from(notes: &[XrayNote], begin: u64) -> Vec<Note> {
    let mut clocks = Clocks::from(begin);
    let note = |&XrayNote { clock, word }: &XrayNote| {
        let is_saw = Note { clock: 0, word }.moment() == Some(Moment::Saw);
        Note { clock: if is_saw { clock_near(clocks.at, clock) } else { clocks.next(clock) }, word }
    };
    notes.iter().map(note).collect()
}

/// The unit that a block waited for last, and when it was seen.
#[derive(Clone, Copy, Debug)]
struct Last {
    clock: u64,
    unit: usize,
}

impl Last {
    /// From 1 + the unit; 0 is none.
    fn of(clock: u64, coded: u32) -> Option<Last> {
        Some(Last { clock, unit: coded.checked_sub(1)? as usize })
    }
}

/// A round of the epilogue: from the last warp's sums to their publication.
#[derive(Clone, Copy, Debug)]
struct Round {
    begin: u64,
    end: u64,
    last: Option<Last>,
}

/// Returns the rounds and the argmax. If records were lost, that is the last of them.
fn rounds_from(rounds: &[XrayRound], begin: u64, lost: u64) -> (Vec<Round>, Option<Round>) {
    let mut clocks = Clocks::from(begin);
    let round = |&XrayRound { begin, end, seen, unit }: &XrayRound| {
        let begin = clocks.next(begin);
        let last = Last::of(clock_near(begin, seen), unit);
        Round { begin, end: clocks.next(end), last }
    };
    let mut rounds: Vec<Round> = rounds.iter().map(round).collect();
    let argmax = if lost == 0 { rounds.pop() } else { None };
    (rounds, argmax)
}

fn clocks_from(arrivals: &[u32], begin: u64) -> Vec<u64> {
    let mut clocks = Clocks::from(begin);
    arrivals.iter().map(|&low| clocks.next(low)).collect()
}

/// Decodes the loader's stamps, and the bytes of each issued copy.
fn loader_from(copies: &[XrayCopy], begin: u64) -> Result<Vec<(Stamp, u32)>, String> {
    let mut clocks = Clocks::from(begin);
    let mut stamps = Vec::with_capacity(2 * copies.len());
    for (at, &XrayCopy { looked, issued, tag, held }) in copies.iter().enumerate() {
        let known =
            EventKind::from_id((tag & 0xf) as u8).zip(Phase::from_id((tag >> 4 & 0xf) as u8));
        let known =
            known.filter(|(kind, _)| matches!(kind, EventKind::Work | EventKind::Unrecorded));
        let (kind, phase) = known.ok_or_else(|| format!("copy {at} says {tag:#010x}"))?;
        let layer = tag >> 8 & 0xff;
        let layer = if layer == XRAY_NO_LAYER { NO_LAYER } else { layer as u16 };
        let mut stamp =
            |low, kind| Stamp { clock: clocks.next(low), kind, phase, layer, producer: NO_BLOCK };
        if held != 0 {
            stamps.push((stamp(held, EventKind::WaitCopies), 0));
        }
        if looked != 0 {
            stamps.push((stamp(looked, EventKind::WaitRingEmpty), 0));
        }
        stamps.push((stamp(issued, kind), 16 * (tag >> 16)));
    }
    Ok(stamps)
}

/// A phase, and its layer if it has one.
type Place = (Phase, u16);

/// Turns the consumers' notes into stamps: where the consumers are, and what they wait for.
///
/// Thread 0's notes are of its warp. A gather lasts until any thread of the block has seen the unit
/// that was waited for last, and a round until the epilogue has the sums of all warps, so that a
/// block's stamps are of all of its consumers. What thread 0 does meanwhile for the next round does
/// not count.
struct Consumers<'a> {
    producers: &'a Producers,
    rounds: std::slice::Iter<'a, Round>,
    stamps: Vec<Stamp>,
    /// The current phase, or the next one during a gather.
    now: Place,
    /// Whether a round is running, whose sums the epilogue does not have yet.
    is_in_round: bool,
    /// Index of the stamp that ends the last gather, if its last unit is not known yet.
    gathered: Option<usize>,
    /// Index of the last matvec that was entered. They are in order, and every block takes part in
    /// the LM head.
    matvec: Option<u32>,
    /// The place of every round so far.
    entered: Vec<Place>,
}

impl Consumers<'_> {
    /// Adds the stamp of what the time after this note is spent on; `None` for an impossible note.
    fn add(&mut self, note: Note) -> Option<()> {
        let which = note.which();
        let layers = self.producers.layers();
        let layer = u16::try_from(which).ok().filter(|&layer| usize::from(layer) < layers);
        let moment = note.moment()?;
        let ends_round = matches!(moment, Moment::Attends | Moment::Entered | Moment::Ended);
        let round = if ends_round { self.end_round() } else { None };
        // The epilogue reads the clock itself; the note's clock is the watcher's, who is later.
        let clock = round.map_or(note.clock, |round| round.begin);
        let (kind, place) = match moment {
            Moment::None => return None,
            Moment::Saw => {
                self.saw(Last::of(note.clock, which));
                return Some(());
            }
            Moment::Began => (EventKind::Work, (Phase::Embed, NO_LAYER)),
            Moment::Attends => self.works_at((Phase::Attention, layer?)),
            Moment::Entered => self.enters(which)?,
            Moment::Asked => self.asks(which)?,
            Moment::AskedHeads => self.waits_for((Phase::Qkv, layer?), (Phase::Attention, layer?)),
            Moment::AskedPartials => {
                self.waits_for((Phase::Attention, layer?), (Phase::OProj, layer?))
            }
            Moment::Arrived => (EventKind::WaitBarrier, self.now),
            Moment::Starved => (EventKind::WaitRingFull, self.now),
            Moment::Gathered => {
                self.gathered = Some(self.stamps.len());
                (EventKind::Work, self.now)
            }
            Moment::Passed | Moment::Fed => (EventKind::Work, self.now),
            Moment::Ended => (EventKind::Unrecorded, self.now),
        };
        let (phase, layer) = place;
        self.stamps.push(Stamp { clock, kind, phase, layer, producer: NO_BLOCK });
        Some(())
    }

    fn works_at(&mut self, now: Place) -> (EventKind, Place) {
        self.now = now;
        (EventKind::Work, now)
    }

    /// Returns a wait for the output of `from`, after which the consumers are at `now`.
    fn waits_for(&mut self, from: Place, now: Place) -> (EventKind, Place) {
        self.now = now;
        self.gathered = None;
        (EventKind::WaitExchange, from)
    }

    /// A round of a matvec begins.
    fn enters(&mut self, index: u32) -> Option<(EventKind, Place)> {
        let (_, now) = matvec(index as usize, self.producers.layers())?;
        if self.matvec.is_some_and(|before| index < before) {
            return None;
        }
        self.matvec = Some(index);
        self.is_in_round = true;
        self.entered.push(now);
        Some(self.works_at(now))
    }

    /// The gather of the matvec that was entered begins; the step's first gathers nothing.
    fn asks(&mut self, index: u32) -> Option<(EventKind, Place)> {
        let (from, now) = matvec(index as usize, self.producers.layers())?;
        if self.matvec != Some(index) {
            return None;
        }
        Some(match from {
            Some(from) => self.waits_for(from, now),
            None => self.works_at(now),
        })
    }

    /// Ends the running round, if there is one, and returns it.
    fn end_round(&mut self) -> Option<Round> {
        if !std::mem::take(&mut self.is_in_round) {
            return None;
        }
        let round = *self.rounds.next()?;
        self.saw(round.last);
        Some(round)
    }

    /// The unit that the block waited for last. It ends the last gather if it is one of that
    /// gather's: if nobody had to wait there, it is of an earlier one.
    fn saw(&mut self, last: Option<Last>) {
        let Some(gathered) = self.gathered.take() else { return };
        let Some(last) = last else { return };
        let [.., wait, end] = &mut self.stamps[..=gathered] else { return };
        let is_of = self.producers.place_of_unit(last.unit) == (wait.phase, wait.layer);
        if wait.kind == EventKind::WaitExchange && is_of && last.clock > wait.clock {
            wait.producer = block_id(self.producers.of_unit(last.unit));
            end.clock = last.clock;
        }
    }
}

fn block_id(block: Option<usize>) -> u16 {
    block.and_then(|block| u16::try_from(block).ok()).unwrap_or(NO_BLOCK)
}

/// A clock that is before the one before it counts as equal to it.
fn in_order(mut stamps: Vec<Stamp>) -> Vec<Stamp> {
    let mut before = 0;
    for stamp in &mut stamps {
        stamp.clock = stamp.clock.max(before);
        before = stamp.clock;
    }
    stamps
}

/// Returns the phase whose output a matvec gathers, and the matvec's own phase. The first one
/// gathers nothing.
fn matvec(index: usize, layers: usize) -> Option<(Option<Place>, Place)> {
    let (row, layer) = matvec_at(index, layers)?;
    let before = if row.is_from_the_layer_before() { layer.checked_sub(1) } else { Some(layer) };
    let from = before.and_then(|layer| Some((row.from, u16::try_from(layer).ok()?)));
    let now = if layer == layers { NO_LAYER } else { u16::try_from(layer).ok()? };
    Some((from, (row.phase, now)))
}

/// Decodes the consumers' stamps, and the place of every round. Unless the buffer was too small,
/// all notes must be there: a round of the epilogue's for every one that the consumers entered, and
/// the LM head. (A watcher that was a whole round of notes behind would have missed some.)
fn consumer_from(
    notes: &[Note],
    rounds: &[Round],
    producers: &Producers,
    lost: u64,
) -> Result<(Vec<Stamp>, Vec<Place>), String> {
    let mut consumers = Consumers {
        producers,
        rounds: rounds.iter(),
        stamps: Vec::with_capacity(notes.len()),
        now: (Phase::Qkv, 0),
        is_in_round: false,
        gathered: None,
        matvec: None,
        entered: Vec::with_capacity(rounds.len()),
    };
    for (at, &note) in notes.iter().enumerate() {
        consumers.add(note).ok_or_else(|| format!("note {at} says {:#010x}", note.word))?;
    }
    let Consumers { stamps, matvec, entered, .. } = consumers;
    let is_ended = stamps.last().is_some_and(|last| last.kind == EventKind::Unrecorded);
    let matvecs = (LAYER_MATVECS * producers.layers()) as u32;
    if lost == 0 && !(is_ended && matvec == Some(matvecs)) {
        let seen = matvec.unwrap_or(0);
        return Err(format!("its notes end after matvec {seen} of {matvecs}: some are missing"));
    }
    if lost == 0 && entered.len() != rounds.len() {
        let (of, found) = (rounds.len(), entered.len());
        return Err(format!("its notes are of {found} rounds of {of}: some are missing"));
    }
    Ok((in_order(ended(stamps)), entered))
}

/// Decodes the epilogue's stamps. It waits for the consumers' sums, except that the first block's
/// waits for the best logits of all blocks in the end.
fn epilogue_from(
    begun: u64,
    entered: &[Place],
    rounds: &[Round],
    argmax: Option<Round>,
    producers: &Producers,
    is_first_block: bool,
) -> Vec<Stamp> {
    let stamp = |clock, kind, (phase, layer): Place| Stamp {
        clock,
        kind,
        phase,
        layer,
        producer: NO_BLOCK,
    };
    let mut stamps = Vec::with_capacity(2 * rounds.len() + 3);
    let mut free = begun;
    for (&place, round) in entered.iter().zip(rounds) {
        stamps.push(stamp(free, EventKind::WaitBarrier, place));
        stamps.push(stamp(round.begin, EventKind::Work, place));
        free = round.end;
    }
    let head = (Phase::LmHead, NO_LAYER);
    let Some(argmax) = argmax else {
        stamps.push(stamp(free, EventKind::Unrecorded, head));
        return in_order(stamps);
    };
    // The best of the block's logits is part of its output.
    stamps.push(stamp(free, EventKind::Work, head));
    if is_first_block {
        let is_best = |last: &Last| producers.place_of_unit(last.unit) == head;
        let last = argmax.last.filter(is_best);
        let producer = last.map_or(NO_BLOCK, |last| block_id(producers.of_unit(last.unit)));
        stamps.push(Stamp { producer, ..stamp(argmax.begin, EventKind::WaitExchange, head) });
        let seen = last.map_or(argmax.begin, |last| last.clock.min(argmax.end));
        stamps.push(stamp(seen, EventKind::Work, (Phase::Argmax, NO_LAYER)));
        stamps.push(stamp(argmax.end, EventKind::Unrecorded, head));
    } else {
        stamps.push(stamp(argmax.begin, EventKind::Unrecorded, head));
    }
    in_order(stamps)
}

/// Adds an end to the stamps if the buffer had no room for it.
fn ended(mut stamps: Vec<Stamp>) -> Vec<Stamp> {
    if let Some(&last) = stamps.last().filter(|last| last.kind != EventKind::Unrecorded) {
        stamps.push(Stamp { kind: EventKind::Unrecorded, producer: NO_BLOCK, ..last });
    }
    stamps
}

/// Pairs the issue and arrival of every copy: both sides go through the same stages in the same
/// order. If records were lost, one side may have more. A stage that was handed over unfilled is no
/// copy.
fn copies_from(
    loader: &[(Stamp, u32)],
    arrivals: &[u64],
    lost: u64,
) -> Result<Vec<Copied>, String> {
    let issues: Vec<_> = loader.iter().filter(|(stamp, _)| stamp.kind == EventKind::Work).collect();
    if issues.len() != arrivals.len() && lost == 0 {
        return Err(format!("{} copies were issued, and {} arrived", issues.len(), arrivals.len()));
    }
    let copy = |((issue, bytes), &arrival): (&(Stamp, u32), &u64)| Copied {
        issue_clock: issue.clock,
        // Another warp reads the arrival's clock; the arrival is never before the issue.
        arrival_clock: arrival.max(issue.clock),
        bytes: *bytes,
        phase: issue.phase,
        layer: issue.layer,
    };
    let copies = issues.into_iter().zip(arrivals).map(copy);
    Ok(copies.filter(|copy| copy.bytes > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::step;
    use super::*;
    use crate::plan::Plan;
    use monolith_abi::step::{output_of, owner_of_piece};
    use monolith_abi::xray::{XRAY_COPIES, XRAY_NOTES, XrayHeader, copy_tag};
    use monolith_model::Config;

    /// One block's buffers, filled as the kernel fills them.
    struct Buffers(Vec<u64>);

    /// A note: when, what, which.
    type Noted = (u64, Moment, u32);
    /// A round: when the sums were there, when they were published, when the last unit was seen,
    /// and 1 + that.
    type Summed = (u64, u64, u64, u32);

    impl Buffers {
        fn new() -> Buffers {
            Buffers(vec![0; size_of::<XrayBlock>() / 8])
        }

        fn block(&mut self) -> &mut XrayBlock {
            XrayBlock::mut_from_bytes(self.0.as_mut_bytes()).unwrap()
        }

        /// The consumers' notes, from the first on.
        fn notes(&mut self, notes: &[Noted]) {
            self.block().header.notes = notes.len() as u32;
            for (to, &(clock, moment, which)) in self.block().notes.iter_mut().zip(notes) {
                let word = moment as u32 | which << XRAY_MOMENT_BITS;
                *to = XrayNote { clock: clock as u32, word };
            }
        }

        /// The epilogue's rounds and its argmax.
        fn rounds(&mut self, rounds: &[Summed]) {
            self.block().header.rounds = rounds.len() as u32;
            for (to, &(begin, end, seen, unit)) in self.block().rounds.iter_mut().zip(rounds) {
                let [begin, end, seen] = [begin, end, seen].map(|clock| clock as u32);
                *to = XrayRound { begin, end, seen, unit };
            }
        }

        fn read(&self) -> Result<Vec<BlockDump>, EngineError> {
            blocks_from(&self.0, 7, &Producers::new(step(), 132))
        }
    }

    const BEGIN: u64 = (9 << 32) - 100;
    /// Index of Qwen3-0.6B's last matvec: four of each of 28 layers come before it.
    const MATVECS: u32 = 4 * 28;

    /// The rest of a step, from a matvec on: a round of each, then the argmax. All at one clock.
    fn rest(from: u32, clock: u64) -> (Vec<Noted>, Vec<Summed>) {
        let entered = (from..=MATVECS).map(|matvec| (clock, Moment::Entered, matvec));
        let notes = entered.chain([(clock, Moment::Ended, 0)]).collect();
        (notes, (from..=MATVECS + 1).map(|_| (clock, clock, 0, 0)).collect())
    }

    /// A block that waited for qkv, whose clock's low half wraps meanwhile.
    fn small() -> Buffers {
        let mut buffers = Buffers::new();
        buffers.block().header = XrayHeader {
            begin_clock: BEGIN,
            sm_begin: 5,
            sm_end: 5,
            copies: 3,
            arrivals: 2,
            anchors: 2,
            epoch: 7,
            ..XrayHeader::default()
        };
        let mut notes = vec![
            (BEGIN - 30, Moment::Began, 0),
            (BEGIN + 50, Moment::AskedHeads, 3),
            // Read before the one before it.
            (BEGIN + 40, Moment::Gathered, 0),
            (BEGIN + 180, Moment::Saw, 1 + unit(Phase::Qkv, 3, 2060, 0)),
            (BEGIN + 190, Moment::Passed, 0),
        ];
        let (others, rounds) = rest(0, BEGIN + 400);
        notes.extend(others);
        buffers.notes(&notes);
        buffers.rounds(&rounds);
        let tag = |kind, phase, layer: u32, bytes: usize| {
            copy_tag(kind as usize, phase as usize, layer as usize, bytes / 16) as u32
        };
        let clock = |after: u64| (BEGIN + after) as u32;
        let block = buffers.block();
        block.copies[0] = XrayCopy {
            held: clock(5),
            looked: clock(10),
            issued: clock(20),
            tag: tag(EventKind::Work, Phase::Qkv, 3, 16_384),
        };
        // Handed over unfilled.
        block.copies[1] = XrayCopy {
            issued: clock(25),
            tag: tag(EventKind::Work, Phase::Qkv, 3, 0),
            ..XrayCopy::default()
        };
        block.copies[2] = XrayCopy {
            issued: clock(30),
            tag: tag(EventKind::Unrecorded, Phase::LmHead, XRAY_NO_LAYER, 0),
            ..XrayCopy::default()
        };
        block.arrivals[0] = clock(300);
        block.arrivals[1] = clock(300);
        block.anchors[0] = XrayAnchor { clock: BEGIN, global_ns: 640 };
        block.anchors[1] = XrayAnchor { clock: BEGIN + 200, global_ns: 768 };
        buffers
    }

    fn owner(phase: Phase, value: usize) -> u16 {
        Plan::of(step(), 132).owner(phase, value) as u16
    }

    /// The unit of a value's partial sum.
    fn unit(phase: Phase, layer: usize, value: usize, sum: usize) -> u32 {
        let (step, slot) = (step(), output_of(phase).unwrap().slot.unwrap());
        let within = slot.begin.of(&step) + slot.place(&step, value / 2, sum);
        (layer * step.sizes.layer_units + within) as u32
    }

    #[test]
    fn a_block_says_what_it_did() {
        let blocks = small().read().unwrap();
        let block = &blocks[0];
        let clocks: Vec<_> = block.consumer.iter().map(|stamp| stamp.clock + 30 - BEGIN).collect();
        assert_eq!(clocks[..5], [0, 80, 210, 220, 430]);
        assert_eq!(clocks.len(), 4 + 1 + MATVECS as usize + 1);
        assert_eq!(block.consumer[1].producer, owner(Phase::Qkv, 2060));
        assert_eq!(block.consumer[2].producer, NO_BLOCK);
        assert_eq!((block.consumer[0].layer, block.consumer[2].layer), (NO_LAYER, 3));
        assert_eq!(block.copies.len(), 1, "an unfilled stage is no copy");
        let copy = block.copies[0];
        assert_eq!((copy.issue_clock, copy.arrival_clock), (BEGIN + 20, BEGIN + 300));
        assert_eq!((copy.bytes, copy.phase, copy.layer), (16_384, Phase::Qkv, 3));
        assert_eq!((block.sm, block.lost, block.anchors.len()), (5, 0, 2));
        let loader: Vec<_> =
            block.loader.iter().map(|stamp| (stamp.clock - BEGIN, stamp.kind)).collect();
        let held = [(5, EventKind::WaitCopies), (10, EventKind::WaitRingEmpty)];
        let issued = [(20, EventKind::Work), (25, EventKind::Work), (30, EventKind::Unrecorded)];
        assert_eq!(loader, [&held[..], &issued].concat());
        assert_eq!(timer_step_ns(&blocks), 128);
    }

    /// What a stamp says: when, what, of which phase and layer, and on whom.
    type Said = (u64, EventKind, Phase, u16, u16);

    fn said(stamps: &[Stamp]) -> Vec<Said> {
        let said = |stamp: &Stamp| {
            (stamp.clock - BEGIN, stamp.kind, stamp.phase, stamp.layer, stamp.producer)
        };
        stamps.iter().map(said).collect()
    }

    fn at(after: u64) -> u64 {
        BEGIN + after
    }

    /// Of the partial results of head 1 and rank 1, a unit.
    fn partial() -> u32 {
        let sizes = step().sizes;
        (sizes.partials_base + (sizes.splits + 1) * sizes.partial_line + 4) as u32
    }

    /// The owner of an item of the O projection: items go KV head by KV head, rank by rank.
    fn item_owner(item: usize) -> u16 {
        let items = step().sizes.ranks * step().dims.kv_heads;
        owner_of_piece(item, 132, items) as u16
    }

    /// Every moment, as a block comes to them in a long text's first layer.
    fn first_layer() -> Vec<Noted> {
        use Phase::Qkv;
        vec![
            (at(0), Moment::Began, 0),
            (at(10), Moment::Entered, 0),
            (at(20), Moment::Starved, 0),
            (at(30), Moment::Fed, 0),
            (at(40), Moment::Asked, 0),
            (at(50), Moment::Gathered, 0),
            // The other warps' sums come later.
            (at(60), Moment::Attends, 0),
            (at(120), Moment::AskedHeads, 0),
            (at(150), Moment::Gathered, 0),
            (at(155), Moment::Arrived, 0),
            // Seen by another warp, before the barrier.
            (at(160), Moment::Saw, 1 + unit(Qkv, 0, 10, 0)),
            (at(170), Moment::Passed, 0),
            (at(180), Moment::Entered, 1),
            (at(190), Moment::AskedPartials, 0),
            (at(230), Moment::Gathered, 0),
            (at(235), Moment::Arrived, 0),
            (at(220), Moment::Saw, 1 + partial()),
            (at(240), Moment::Passed, 0),
            // The next phase's weights, while other warps still gather.
            (at(250), Moment::Entered, 2),
            (at(260), Moment::Asked, 2),
            (at(270), Moment::Gathered, 0),
            (at(280), Moment::Entered, 3),
            (at(290), Moment::Asked, 3),
            (at(390), Moment::Gathered, 0),
        ]
    }

    /// Its rounds.
    fn first_rounds() -> Vec<Summed> {
        use Phase::OProj;
        let partial = partial();
        vec![
            (at(70), at(80), 0, 0),
            // The unit is that of a gather that is over.
            (at(248), at(258), at(220), 1 + partial),
            (at(310), at(320), at(300), 1 + unit(OProj, 0, 8, 3)),
            // Nobody had to wait: the unit is of the phase before.
            (at(400), at(410), at(300), 1 + unit(OProj, 0, 8, 3)),
        ]
    }

    /// What each moment makes of the time from there, and which block a wait is on.
    fn first_stamps() -> Vec<Said> {
        use EventKind::{WaitBarrier, WaitExchange as Exchange, WaitRingFull, Work};
        use Phase::{Attention, Down, Embed, GateUp, OProj, Qkv};
        let none = NO_BLOCK;
        // Eight KV heads further on than that of rank 0; and the fourth KV head's sum.
        let (partials, sums) = (item_owner(step().dims.kv_heads), item_owner(3));
        vec![
            (0, Work, Embed, NO_LAYER, none),
            (10, Work, Qkv, 0, none),
            (20, WaitRingFull, Qkv, 0, none),
            (30, Work, Qkv, 0, none),
            (40, Work, Qkv, 0, none),
            (50, Work, Qkv, 0, none),
            (70, Work, Attention, 0, none),
            (120, Exchange, Qkv, 0, owner(Qkv, 10)),
            (160, Work, Attention, 0, none),
            (160, WaitBarrier, Attention, 0, none),
            (170, Work, Attention, 0, none),
            (180, Work, OProj, 0, none),
            (190, Exchange, Attention, 0, partials),
            (220, Work, OProj, 0, none),
            (235, WaitBarrier, OProj, 0, none),
            (240, Work, OProj, 0, none),
            (248, Work, GateUp, 0, none),
            (260, Exchange, OProj, 0, sums),
            (300, Work, GateUp, 0, none),
            (310, Work, Down, 0, none),
            (310, Exchange, GateUp, 0, none),
            (390, Work, Down, 0, none),
        ]
    }

    #[test]
    fn every_moment_has_its_meaning() {
        use EventKind::{WaitBarrier, WaitExchange as Exchange, Work};
        use Phase::{Down, GateUp, OProj, Qkv};
        let (sizes, none) = (step().sizes, NO_BLOCK);
        let (more, mut last) = rest(4, at(500));
        last.pop();
        let best = 1 + (sizes.final_base + sizes.final_units + 2 * 77) as u32;
        last.push((at(510), at(590), at(570), best));
        let notes = [first_layer(), more].concat();
        let mut buffers = small();
        buffers.notes(&notes);
        buffers.rounds(&[first_rounds(), last].concat());
        let block = &buffers.read().unwrap()[0];
        let wanted = first_stamps();
        assert_eq!(said(&block.consumer[..wanted.len()]), wanted);
        let used: std::collections::HashSet<_> = notes.iter().map(|note| note.1 as u32).collect();
        assert_eq!(used.len(), Moment::ALL.len() - 1, "all but the one that is none");
        let wanted = [
            (0, WaitBarrier, Qkv, 0, none),
            (70, Work, Qkv, 0, none),
            (80, WaitBarrier, OProj, 0, none),
            (248, Work, OProj, 0, none),
            (258, WaitBarrier, GateUp, 0, none),
            (310, Work, GateUp, 0, none),
            (320, WaitBarrier, Down, 0, none),
            (400, Work, Down, 0, none),
        ];
        assert_eq!(said(&block.epilogue[..wanted.len()]), wanted);
        let head = Phase::LmHead;
        let wanted = [
            (500, Work, head, NO_LAYER, none),
            (500, Work, head, NO_LAYER, none),
            (510, Exchange, head, NO_LAYER, 77),
            (570, Work, Phase::Argmax, NO_LAYER, none),
            (590, EventKind::Unrecorded, head, NO_LAYER, none),
        ];
        assert_eq!(said(&block.epilogue[block.epilogue.len() - 5..]), wanted);
    }

    #[test]
    fn only_the_first_block_waits_for_the_best_logit() {
        let mut buffers = small();
        buffers.0.extend_from_within(..);
        let blocks = buffers.read().unwrap();
        let ends = blocks.iter().map(|block| block.epilogue.len()).collect::<Vec<_>>();
        let rounds = MATVECS as usize + 1;
        assert_eq!(ends, [2 * rounds + 1 + 3, 2 * rounds + 1 + 1]);
    }

    #[test]
    fn a_matvec_says_what_it_gathers_and_of_which_layer() {
        assert_eq!(matvec(0, 28), Some((None, (Phase::Qkv, 0))));
        assert_eq!(matvec(7, 28), Some((Some((Phase::GateUp, 1)), (Phase::Down, 1))));
        assert_eq!(matvec(108, 28), Some((Some((Phase::Down, 26)), (Phase::Qkv, 27))));
        let head = (Phase::LmHead, NO_LAYER);
        assert_eq!(matvec(112, 28), Some((Some((Phase::Down, 27)), head)));
        assert_eq!(matvec(113, 28), None);
    }

    #[test]
    fn a_unit_says_whose_output_it_is() {
        let producers = Producers::new(step(), 132);
        for phase in [Phase::Qkv, Phase::OProj, Phase::GateUp, Phase::Down] {
            for layer in [0, 5, Config::qwen3_0_6b().layers - 1] {
                let unit = unit(phase, layer, 16, 0) as usize;
                assert_eq!(producers.place_of_unit(unit), (phase, layer as u16));
            }
        }
    }

    #[test]
    fn what_did_not_fit_is_counted() {
        let mut buffers = small();
        buffers.block().header.arrivals = XRAY_COPIES as u32 + 5;
        let note = |at: u32| (BEGIN + u64::from(at), Moment::Passed, 0);
        buffers.notes(&(0..XRAY_NOTES as u32).map(note).collect::<Vec<_>>());
        buffers.block().header.notes = XRAY_NOTES as u32 + 2;
        let block = &buffers.read().unwrap()[0];
        assert_eq!((block.lost, block.copies.len()), (7, 1));
        for stamps in [&block.consumer, &block.epilogue] {
            assert_eq!(stamps.last().unwrap().kind, EventKind::Unrecorded);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: &dyn Fn(&mut XrayBlock)| {
            let mut buffers = small();
            change(buffers.block());
            buffers.read().unwrap_err().to_string()
        };
        let said = refused(&|block| block.header.epoch = 6);
        assert!(said.contains("block 0: recorded step 6, not 7"), "{said}");
        let said = refused(&|block| block.header.sm_end = 6);
        assert!(said.contains("moved from SM 5 to 6"), "{said}");
        let said = refused(&|block| block.copies[2].tag = 0x0f);
        assert!(said.contains("copy 2 says 0x0000000f"), "{said}");
        let word = |moment, which: u32| moment as u32 | which << XRAY_MOMENT_BITS;
        // A moment that there is not, a place without a note, layers and products beyond the last,
        // and a gather of a product that was not entered.
        let words = [
            0x0e,
            0x00,
            word(Moment::AskedHeads, 28),
            word(Moment::Attends, 28),
            word(Moment::Entered, 113),
            word(Moment::Asked, 0),
        ];
        for word in words {
            let said = refused(&|block| block.notes[1] = XrayNote { clock: 0, word });
            assert!(said.contains(&format!("note 1 says {word:#010x}")), "{said}");
        }
        // Notes that end before the step does, or of which one is missing.
        let said = refused(&|block| block.header.notes = 8);
        assert!(said.contains("its notes end after matvec 2 of 112: some are missing"), "{said}");
        let passed = XrayNote { clock: 0, word: word(Moment::Passed, 0) };
        let said = refused(&|block| block.notes[9] = passed);
        assert!(said.contains("its notes are of 112 rounds of 113: some are missing"), "{said}");
        let back = XrayNote { clock: 0, word: word(Moment::Entered, 2) };
        let said = refused(&|block| block.notes[9] = back);
        assert!(said.contains("note 9 says"), "{said}");
        let said = refused(&|block| block.header.arrivals = 0);
        assert!(said.contains("2 copies were issued, and 0 arrived"), "{said}");
    }
}
