//! A simulated step of an H200: 132 blocks with clocks of their own, whose true times are known.

use crate::dumps::{barrier, copy, exchange, nothing, ring, ring_empty, work};
use monolith_abi::Phase;
use monolith_abi::dump::{Anchor, BlockDump, Copied, Dump, NO_BLOCK, NO_LAYER, Pace, Stamp};
use monolith_xray::{Analysis, dump_file, page, trace_from_dump};

const BLOCKS: u16 = 132;
const LAYERS: u16 = 28;
const STEP_NS: u64 = 64;
const GLOBAL_NS: u64 = 1_764_000_000_000_000_000;

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// A block's clock: starts anywhere, and is up to 0.1 % fast or slow.
#[derive(Clone, Copy)]
struct Clock {
    start: u64,
    ticks_per_ns: f64,
}

impl Clock {
    fn at(&self, ns: u64) -> u64 {
        self.start + (ns as f64 * self.ticks_per_ns).round() as u64
    }
}

/// One block, stamped in true nanoseconds.
#[derive(Default)]
struct Track {
    stamps: Vec<Stamp>,
    loader: Vec<Stamp>,
    copies: Vec<Copied>,
    now: u64,
    issued: u64,
}

impl Track {
    /// A phase: wait for the last producer, then work that ends when the part is published.
    fn phase(
        &mut self,
        (phase, layer): (Phase, u16),
        awaited: Option<(Phase, u16, Option<u16>, u64)>,
        work_ns: u64,
        random: &mut Random,
    ) {
        if let Some((from, of, producer, at)) = awaited {
            let late = producer.filter(|_| at > self.now);
            self.stamps.push(exchange(self.now, from, of, late.unwrap_or(NO_BLOCK)));
            self.now = self.now.max(at) + 600 + random.below(120);
        }
        if work_ns == 0 {
            return;
        }
        let parts = [work_ns / 4, 40 + random.below(80), work_ns / 2, 60 + random.below(150)];
        self.stamps.push(work(self.now, phase, layer));
        self.stamps.push(ring(self.now + parts[0], phase, layer));
        self.stamps.push(work(self.now + parts[0] + parts[1], phase, layer));
        let end = self.now + parts.iter().sum::<u64>();
        self.stamps.push(barrier(end - parts[3], phase, layer));
        self.stamps.push(work(end, phase, layer));
        self.now = end + 90 + random.below(40);
        self.copies(phase, layer, end, random);
    }

    /// Four copies ahead of the work that needs them.
    fn copies(&mut self, phase: Phase, layer: u16, end: u64, random: &mut Random) {
        for _ in 0..4 {
            let issue = (end.saturating_sub(4_000)).max(self.issued + 40);
            self.loader.push(ring_empty(self.issued + 20, phase, layer));
            self.loader.push(work(issue, phase, layer));
            self.copies.push(copy(issue, issue + 900 + random.below(700), phase, layer, 16_384));
            self.issued = issue;
        }
    }

    fn dump(mut self, block: u16, clock: Clock, random: &mut Random) -> BlockDump {
        self.stamps.push(nothing(self.now));
        self.loader.push(nothing(self.issued + 20));
        let end = self.now.max(self.issued + 2_000);
        let anchors = (0..300).map(|index| {
            let at = (index * end + random.below(end)) / 300;
            let read = GLOBAL_NS + at + random.below(4);
            Anchor { clock: clock.at(at), global_ns: read / STEP_NS * STEP_NS }
        });
        let anchors = anchors.collect();
        for stamp in self.stamps.iter_mut().chain(&mut self.loader) {
            stamp.clock = clock.at(stamp.clock);
        }
        for copy in &mut self.copies {
            copy.issue_clock = clock.at(copy.issue_clock);
            copy.arrival_clock = clock.at(copy.arrival_clock);
        }
        let (consumer, loader, copies) = (self.stamps, self.loader, self.copies);
        let sm = (block * 5) % BLOCKS;
        BlockDump { sm, consumer, loader, copies, anchors, ..BlockDump::default() }
    }
}

/// What a phase takes on one block.
fn work_ns(phase: Phase, block: u16, random: &mut Random) -> u64 {
    let all = match phase {
        Phase::Qkv => 1_700,
        Phase::Attention => 900,
        Phase::GateUp => 3_400,
        Phase::LmHead => 80_000,
        Phase::Argmax => 2_000,
        // 64 tiles for 132 blocks.
        Phase::OProj | Phase::Down if block >= 64 => return 0,
        Phase::OProj => 1_200,
        Phase::Down => 2_100,
        Phase::Embed => 700,
    };
    all + random.below(all / 5)
}

/// The step, with the true time of every consumer stamp.
pub fn h200() -> (Dump, Vec<Vec<u64>>) {
    let mut random = Random(7);
    let mut tracks: Vec<Track> = (0..BLOCKS).map(|_| Track::default()).collect();
    let layers = (0..LAYERS).flat_map(|layer| Phase::LAYER.map(|phase| (phase, layer)));
    let steps = layers.chain([(Phase::LmHead, NO_LAYER), (Phase::Argmax, NO_LAYER)]);
    let mut awaited = None;
    for (phase, layer) in steps {
        let mut last: (u64, Option<u16>) = (0, None);
        for (track, block) in tracks.iter_mut().zip(0..BLOCKS) {
            if phase == Phase::Argmax && block > 0 {
                continue;
            }
            let length = work_ns(phase, block, &mut random);
            // A block does not wait on itself.
            let from = awaited.map(|(from, of, producer, at)| {
                (from, of, Option::filter(producer, |&on: &u16| on != block), at)
            });
            track.phase((phase, layer), from, length, &mut random);
            if length > 0 && track.now > last.0 {
                last = (track.now, Some(block));
            }
        }
        awaited = Some((phase, layer, last.1, last.0));
    }
    let mut truth = Vec::new();
    let mut blocks = Vec::new();
    for (track, block) in tracks.into_iter().zip(0..BLOCKS) {
        let mut times: Vec<u64> = track.stamps.iter().map(|stamp| stamp.clock).collect();
        times.push(track.now);
        truth.push(times);
        let rate = 1.0 + (random.below(2_001) as f64 - 1_000.0) * 1e-6;
        let clock = Clock { start: random.below(1 << 31) << 31, ticks_per_ns: 1.98 * rate };
        blocks.push(track.dump(block, clock, &mut random));
    }
    let dump = Dump {
        engine: "cuda".into(),
        variant: "bf16-flag".into(),
        device: "NVIDIA H200".into(),
        model: "Qwen/Qwen3-0.6B".into(),
        build: "9f3c0a".into(),
        layers: LAYERS,
        position: 128,
        clock_hz: 1_980_000_000,
        global_step_ns: STEP_NS,
        phase_bytes: vec![(Phase::Qkv, 234_881_024), (Phase::LmHead, 311_164_928)],
        pace: Some(Pace { headline_ns: 655_000.0, instrumented_ns: 667_000.0 }),
        blocks,
    };
    (dump, truth)
}

#[test]
fn the_clocks_of_132_blocks_are_aligned() {
    let (dump, truth) = h200();
    let trace = trace_from_dump(&dump).unwrap();
    let error_ns = trace.meta().clock_error_ns;
    assert!(error_ns < 10, "{error_ns}");
    let alignment = &trace.meta().alignment;
    assert!(alignment.ends_with("steps of 64 ns, both clocks read within 2.0 ns)"), "{alignment}");
    // Reads take up to 3 ns, which shifts all blocks alike. Time 0 may be late by one bound, and
    // each time by another.
    let mut ends = vec![0; usize::from(BLOCKS)];
    let mut shifts = Vec::new();
    for span in trace.spans().iter().filter(|span| span.role == monolith_abi::Role::Consumer) {
        let times = &truth[usize::from(span.block)];
        let at = times.partition_point(|&time| time + 2 * error_ns + 4 < span.begin_ns);
        shifts.push(span.begin_ns as i64 - times[at] as i64);
        ends[usize::from(span.block)] = span.end_ns;
    }
    let (least, most) = (shifts.iter().min().unwrap(), shifts.iter().max().unwrap());
    assert!(most - least <= 2 * error_ns as i64, "{least} to {most}, bound {error_ns}");
    for (times, end) in truth.iter().zip(ends) {
        assert!(times[times.len() - 1].abs_diff(end) <= 2 * error_ns + 4);
    }
}

#[test]
fn the_files_of_a_step_are_small() {
    let (dump, _) = h200();
    let trace = trace_from_dump(&dump).unwrap();
    let (file, page) = (dump_file::write(&dump), page::write(&trace));
    let analysis = Analysis::of(&trace);
    println!(
        "{} spans, {} copies, {} streams; dump {} bytes; page {} bytes gzipped\n{analysis}",
        trace.spans().len(),
        trace.copies().len(),
        trace.streams().len(),
        file.len(),
        page.len(),
    );
    assert!(page.len() < 1_500_000, "{}", page.len());
    assert_eq!(analysis.path.totals.sum_ns(), analysis.token_ns);
    assert!(analysis.path.jumps > 100, "{}", analysis.path.jumps);
    assert!(analysis.to_string().lines().all(|line| line.chars().count() <= 100));
}
