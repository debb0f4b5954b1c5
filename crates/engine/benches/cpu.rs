//! What the CPU engine makes in every format and at every SIMD level, beside what the machine's
//! memory gives. `cargo bench -p monolith-engine --bench cpu`: the `item/s` column is tokens a
//! second; `-- tiny` leaves out the rows that need gigabytes.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use monolith_engine::cpu::simd::Simd;
use monolith_engine::{CpuEngine, CpuOptions, Engine};
use monolith_model::{Checkpoint, synth};
use monolith_pack::{Formats, Pack, Recipe, Source};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Tokens cached when a step is timed.
const POSITION: usize = 16;
/// As many bytes as a step of Qwen3-0.6B in bf16 reads.
const READ_BYTES: usize = 1_192_099_840;

fn main() {
    divan::main();
}

/// One thread, and one for each core.
fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all > 1 { vec![1, all] } else { vec![1] }
}

/// Reading memory in order and nothing else: the roofline of the rows below.
#[divan::bench(args = threads(), sample_count = 20, sample_size = 1)]
fn read_bandwidth(bencher: Bencher, threads: usize) {
    let words: Vec<u64> = (0..READ_BYTES as u64 / 8).collect();
    bencher.counter(BytesCount::new(READ_BYTES)).bench_local(|| {
        std::thread::scope(|scope| {
            for part in words.chunks(words.len().div_ceil(threads)) {
                scope.spawn(move || black_box(sum(part)));
            }
        });
    });
}

/// 32 sums, so that adding never waits for adding.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 32];
    for chunk in words.as_chunks::<32>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// A way to run a model.
#[derive(Clone, Copy)]
struct Case {
    formats: Formats,
    simd: Simd,
    threads: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} x{}", self.formats.name(), self.simd.name(), self.threads)
    }
}

/// Every format at every SIMD level that this machine has.
fn cases() -> Vec<Case> {
    let levels = |formats| Simd::available().into_iter().map(move |simd| (formats, simd));
    let kinds: Vec<_> = Formats::NAMED.into_iter().flat_map(levels).collect();
    let case = |threads| kinds.iter().map(move |&(formats, simd)| Case { formats, simd, threads });
    threads().into_iter().flat_map(case).collect()
}

/// The shipped model: it fits into the caches, so that the arithmetic shows.
#[divan::bench(args = cases(), sample_count = 100, sample_size = 1)]
fn tiny(bencher: Bencher, case: &Case) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/tiny");
    steps(bencher, &pack_of("tiny", case.formats, || folder), case);
}

/// Qwen3-0.6B's shape, synthetic weights: they come from memory.
#[divan::bench(args = cases(), sample_count = 10, sample_size = 1)]
fn qwen3_0_6b(bencher: Bencher, case: &Case) {
    let synthetic = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qwen3-0.6b");
        if !folder.exists() {
            let config = synth::shape("qwen3-0.6b").expect("a named shape");
            synth::write(&config, 0, &folder, &|_| Ok(())).expect("the disk has room");
        }
        folder
    };
    steps(bencher, &pack_of("qwen3-0.6b", case.formats, synthetic), case);
}

/// The pack of a model in these formats, made once.
fn pack_of(name: &str, formats: Formats, folder: impl FnOnce() -> PathBuf) -> Arc<Pack> {
    static PACKS: Mutex<Option<HashMap<String, Arc<Pack>>>> = Mutex::new(None);
    let key = format!("{name}-{}", formats.name());
    let mut packs = PACKS.lock().expect("no benchmark panics");
    let packs = packs.get_or_insert_default();
    let pack = packs.entry(key).or_insert_with_key(|key| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{key}.pack"));
        let checkpoint = Checkpoint::open(&folder()).expect("a whole model");
        let source = Source { model: name.into(), revision: None };
        let recipe = Recipe::new(source, formats);
        recipe.write(&checkpoint, &path, |_, _| Ok(())).expect("the disk has room");
        Arc::new(Pack::open(&path).expect("a fresh pack is whole"))
    });
    pack.clone()
}

fn steps(bencher: Bencher, pack: &Arc<Pack>, case: &Case) {
    let Case { simd, threads, .. } = *case;
    let options = CpuOptions { threads, simd, context: Some(64), ..CpuOptions::default() };
    let mut engine = CpuEngine::load(pack.clone(), &options).expect("the options suit the model");
    for position in 0..POSITION {
        engine.step(1, position).expect("the step runs");
    }
    bencher
        .counter(ItemsCount::new(1usize))
        .counter(BytesCount::new(pack.header().bytes_at(POSITION)))
        .bench_local(|| engine.step(1, POSITION).expect("the step runs"));
}
