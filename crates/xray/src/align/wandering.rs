//! Tests that simulate clocks whose rate changes as they run, as an H200's do under load: their
//! times are recovered within the stated error bound.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const BASE_NS: u64 = 1_764_000_000_000_000_000;
const TOKEN_NS: f64 = 400e3;
const CLOCKS: Clocks = Clocks { clock_hz: 1_980_000_000, step_ns: 32 };

/// Pseudo-random numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as f64 / (1_u64 << 31) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// A stretch of a clock: its reading at the begin, and a rate that changes evenly.
#[derive(Clone, Copy)]
struct Stretch {
    begin_ns: f64,
    ticks: f64,
    rate: f64,
    slope: f64,
}

impl Stretch {
    fn ticks_at(&self, ns: f64) -> f64 {
        let since = ns - self.begin_ns;
        self.ticks + self.rate * since + self.slope * since * since / 2.0
    }
}

/// A simulated clock with a known offset, drift and rate; `read` is exact to a tick.
struct TrueClock {
    start: u64,
    stretches: Vec<Stretch>,
}

impl TrueClock {
    /// Rates of 1,700 to 1,980 MHz that last 1 to 12 us, after steps and in ramps.
    fn new(random: &mut Random, shape: u64) -> TrueClock {
        let (mut common, drift) = (Random(shape), random.between(0.999, 1.001));
        let mut stretches = Vec::new();
        let (mut ns, mut ticks, mut rate) = (-10e3, 0.0, 1.85);
        while ns < TOKEN_NS + 20e3 {
            let length = common.between(1e3, 12e3);
            let to = common.between(1.70, 1.98) * drift * random.between(0.997, 1.003);
            let ramp = common.unit() < 0.5;
            let (from, slope) = if ramp { (rate, (to - rate) / length) } else { (to, 0.0) };
            let stretch = Stretch { begin_ns: ns, ticks, rate: from, slope };
            ticks = stretch.ticks_at(ns + length);
            (ns, rate) = (ns + length, to);
            stretches.push(stretch);
        }
        TrueClock { start: (random.unit() * 2f64.powi(62)) as u64, stretches }
    }

    fn read(&self, ns: f64) -> u64 {
        let next = self.stretches.partition_point(|stretch| stretch.begin_ns <= ns);
        self.start + self.stretches[next - 1].ticks_at(ns) as u64
    }
}

/// How the simulated shared clock advances.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// By its step.
    Even,
    /// Its readings are multiples of 32 ns, but it advances by 64 and 96 ns in turn.
    Uneven,
}

impl Timer {
    fn reading(self, ns: f64) -> u64 {
        let ns = BASE_NS + (ns + 1e4) as u64;
        match self {
            Timer::Even => ns / 32 * 32,
            // It is 48 ns late on average, but a timer that advances by 32 ns only 16. The
            // difference is the same for all blocks and cannot be measured, so it is removed here.
            Timer::Uneven => {
                let ns = ns + 32;
                ns / 160 * 160 + if ns % 160 < 64 { 0 } else { 64 }
            }
        }
    }
}

/// What is simulated: the clocks, the blocks on each, and how the clocks are read.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    clocks: usize,
    blocks: usize,
    timer: Timer,
    jitter_ns: f64,
}

/// A simulated step whose true times are known.
struct Step {
    clocks: Vec<TrueClock>,
    anchors: Vec<Vec<Anchor>>,
    /// True times, the same for all blocks.
    moments: Vec<f64>,
    maps: Maps,
}

impl Step {
    fn new(plan: Plan) -> Step {
        let mut random = Random(plan.seed);
        let clocks: Vec<TrueClock> =
            (0..plan.clocks).map(|_| TrueClock::new(&mut random, !plan.seed)).collect();
        let anchors: Vec<Vec<Anchor>> = (0..plan.clocks * plan.blocks)
            .map(|block| anchors(&mut random, &clocks[block / plan.blocks], plan))
            .collect();
        let moment = |_| random.between(0.0, TOKEN_NS);
        let moments: Vec<f64> = (0..200).map(moment).collect();
        let blocks: Vec<Option<Block<'_>>> = (0..anchors.len())
            .map(|block| {
                let clock = &clocks[block / plan.blocks];
                let readings = moments.iter().map(|&ns| clock.read(ns)).collect();
                Some(Block { anchors: &anchors[block], readings })
            })
            .collect();
        let maps = Maps::fit(CLOCKS, &blocks, BASE_NS + 10_000).unwrap();
        Step { clocks, anchors, moments, maps }
    }

    /// The moments as a block's map gives them.
    fn mapped_ns(&self, block: usize) -> Vec<f64> {
        let clock = &self.clocks[block * self.clocks.len() / self.anchors.len()];
        let map = self.maps.maps[block].as_ref().unwrap();
        self.moments.iter().map(|&ns| map.at(clock.read(ns)).unwrap() as f64).collect()
    }
}

/// Irregular moments, 3 to 12 us apart, from the token's begin to its end.
fn anchors(random: &mut Random, clock: &TrueClock, plan: Plan) -> Vec<Anchor> {
    let mut anchors: Vec<Anchor> = Vec::new();
    let mut ns = random.between(-300.0, -20.0);
    loop {
        let jitter_ns = random.between(-plan.jitter_ns, plan.jitter_ns);
        let global_ns = plan.timer.reading(ns + jitter_ns);
        anchors.push(Anchor { clock: clock.read(ns), global_ns });
        if ns > TOKEN_NS {
            return anchors;
        }
        ns = (ns + random.between(3e3, 12e3)).min(TOKEN_NS + random.between(20.0, 300.0));
    }
}

/// As on an H200: GPCs of 16 or 18 SMs, each with its own clock.
fn plan() -> impl Strategy<Value = Plan> {
    let timer = prop::sample::select(vec![Timer::Even, Timer::Uneven]);
    (any::<u64>(), 16..=18_usize, timer, 0.0..4.0_f64).prop_map(
        |(seed, blocks, timer, jitter_ns)| Plan { seed, clocks: 3, blocks, timer, jitter_ns },
    )
}

/// Rounding of a clock to a tick and of a time to a nanosecond.
const ROUNDING_NS: f64 = 1.2;

/// The largest error of all mapped times.
fn worst_ns(step: &Step) -> f64 {
    let blocks = 0..step.anchors.len();
    let off = |(mapped, &ns): (f64, &f64)| (mapped - ns).abs();
    let worst =
        |block| step.mapped_ns(block).into_iter().zip(&step.moments).map(off).fold(0.0, f64::max);
    blocks.map(worst).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn every_reading_is_within_the_bound(plan in plan()) {
        let step = Step::new(plan);
        let error_ns = step.maps.error_ns;
        let worst_ns = worst_ns(&step);
        prop_assert!(worst_ns <= error_ns + ROUNDING_NS, "{worst_ns} > {error_ns}");
    }

    #[test]
    fn clocks_of_one_block_each_have_a_larger_bound_that_still_holds(
        plan in plan(),
        clocks in 4..20_usize,
    ) {
        let step = Step::new(Plan { clocks, blocks: 1, ..plan });
        let (worst_ns, error_ns) = (worst_ns(&step), step.maps.error_ns);
        prop_assert!(worst_ns <= error_ns + ROUNDING_NS, "{worst_ns} > {error_ns}");
        prop_assert!(error_ns < 1_000.0, "{error_ns} {:?}", step.maps.method);
    }

    #[test]
    fn the_order_of_times_is_the_same_on_all_blocks(plan in plan()) {
        let step = Step::new(plan);
        let mut order: Vec<usize> = (0..step.moments.len()).collect();
        order.sort_by(|&a, &b| step.moments[a].total_cmp(&step.moments[b]));
        let (one, other) = (step.mapped_ns(0), step.mapped_ns(plan.blocks));
        prop_assert!(order.is_sorted_by_key(|&at| one[at] as i64));
        prop_assert!(order.is_sorted_by_key(|&at| other[at] as i64));
        let (error_ns, same) = (step.maps.error_ns, step.mapped_ns(1));
        for at in order {
            prop_assert!((one[at] - other[at]).abs() <= 2.0 * (error_ns + ROUNDING_NS));
            // Blocks of one clock agree to the nanosecond.
            prop_assert_eq!(one[at], same[at]);
        }
    }
}

/// Fits the anchors of a step again, after a change to those of some blocks.
fn refit(step: &Step, change: impl Fn(usize, &mut Vec<Anchor>)) -> Maps {
    let mut anchors = step.anchors.clone();
    anchors.iter_mut().enumerate().for_each(|(block, anchors)| change(block, anchors));
    let blocks: Vec<Option<Block<'_>>> = anchors
        .iter()
        .map(|own| Some(Block { anchors: own, readings: own.iter().map(|at| at.clock).collect() }))
        .collect();
    Maps::fit(CLOCKS, &blocks, BASE_NS + 10_000).unwrap()
}

const PLAN: Plan = Plan { seed: 5, clocks: 2, blocks: 16, timer: Timer::Even, jitter_ns: 2.0 };

/// The bound is largest in the longest gap between a clock's anchors, which is random here.
#[test]
fn the_bound_is_small() {
    for timer in [Timer::Even, Timer::Uneven] {
        let steps = (0..100).map(|seed| Step::new(Plan { seed, timer, ..PLAN }));
        let errors: Vec<(f64, f64)> = steps.map(|step| errors_ns(&step.maps)).collect();
        let small = |error: &(f64, f64)| error.0 < 200.0 && error.1 < 100.0;
        assert!(errors.iter().all(small), "{timer:?}: {errors:.0?}");
    }
}

/// The largest and the median error bound.
fn errors_ns(maps: &Maps) -> (f64, f64) {
    let Method::Tunnels { typical_ns, .. } = maps.method else { panic!("{:?}", maps.method) };
    (maps.error_ns, typical_ns)
}

#[test]
fn blocks_that_share_a_clock_are_found() {
    for seed in 0..20 {
        for clocks in 1..6 {
            let step = Step::new(Plan { seed, clocks, ..PLAN });
            let found = step.maps.method;
            assert!(matches!(found, Method::Tunnels { clocks: n, .. } if n == clocks), "{found:?}");
        }
    }
}

#[test]
fn a_block_of_two_anchors_has_the_bound_that_the_rates_of_other_clocks_give() {
    let step = Step::new(PLAN);
    let ends = |anchors: &mut Vec<Anchor>| drop(anchors.drain(1..anchors.len() - 1));
    // Block 0 gets a clock of its own, so only the rates of the others are known between its
    // anchors.
    let maps = refit(&step, |block, anchors| {
        if block == 0 {
            ends(anchors);
            anchors.iter_mut().for_each(|anchor| anchor.clock += 1 << 40);
        }
    });
    let Some(Map::Tunnel(tunnel)) = &maps.maps[0] else { panic!("{:?}", maps.method) };
    let middle = step.clocks[0].read(TOKEN_NS / 2.0) + (1 << 40);
    assert!(tunnel.error_ns(middle) > 1_000.0, "{}", tunnel.error_ns(middle));
    assert!((tunnel.at(middle).unwrap() as f64 - TOKEN_NS / 2.0).abs() < tunnel.error_ns(middle));
}

#[test]
fn clocks_that_tick_evenly_keep_their_lines() {
    let step = Step::new(PLAN);
    let maps = refit(&step, |_, anchors| {
        for anchor in anchors {
            anchor.clock = 7 + (anchor.global_ns - BASE_NS + 16) * 2;
        }
    });
    assert!(matches!(maps.method, Method::Lines { .. }), "{:?}", maps.method);
    assert!(maps.error_ns < 20.0, "{}", maps.error_ns);
}
