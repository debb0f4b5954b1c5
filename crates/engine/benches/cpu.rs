//! What the CPU engine makes, beside what the machine's memory gives.
//! `cargo bench -p monolith-engine`: the `item/s` column is tokens a second.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use monolith_engine::{CpuEngine, CpuOptions, Engine};
use monolith_model::{Checkpoint, synth};
use monolith_pack::{Pack, Source, pack_to_file};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Tokens cached when a step is timed.
const POSITION: usize = 16;
/// As many bytes as a step of Qwen3-0.6B in bf16 reads.
const READ_BYTES: usize = 1_192_099_840;

fn main() {
    divan::main();
}

/// Reading memory in order and nothing else: the roofline of the rows below.
#[divan::bench(args = [1, 2], sample_count = 20, sample_size = 1)]
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

/// Eight sums, so that adding never waits for adding.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 32];
    for chunk in words.as_chunks::<32>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// The shipped model.
#[divan::bench(args = [1, 2], sample_count = 200, sample_size = 1)]
fn tiny(bencher: Bencher, threads: usize) {
    static PACK: OnceLock<Arc<Pack>> = OnceLock::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/tiny");
    steps(bencher, PACK.get_or_init(|| pack_of(&folder, "tiny")), threads);
}

/// Qwen3-0.6B's shape, synthetic weights.
#[divan::bench(args = [1, 2], sample_count = 20, sample_size = 1)]
fn qwen3_0_6b(bencher: Bencher, threads: usize) {
    static PACK: OnceLock<Arc<Pack>> = OnceLock::new();
    let pack = PACK.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qwen3-0.6b");
        if !folder.exists() {
            let config = synth::shape("qwen3-0.6b").expect("a named shape");
            synth::write(&config, 0, &folder, &|_| Ok(())).expect("the disk has room");
        }
        pack_of(&folder, "qwen3-0.6b")
    });
    steps(bencher, pack, threads);
}

fn pack_of(folder: &Path, name: &str) -> Arc<Pack> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pack"));
    let checkpoint = Checkpoint::open(folder).expect("a whole model");
    let source = Source { model: name.into(), revision: None };
    pack_to_file(&checkpoint, source, &path, |_, _| Ok(())).expect("the disk has room");
    Arc::new(Pack::open(&path).expect("a fresh pack is whole"))
}

fn steps(bencher: Bencher, pack: &Arc<Pack>, threads: usize) {
    let options = CpuOptions { threads, context: Some(64), ..CpuOptions::default() };
    let mut engine = CpuEngine::load(pack.clone(), &options).expect("the options suit the model");
    for position in 0..POSITION {
        engine.step(1, position).expect("the step runs");
    }
    bencher
        .counter(ItemsCount::new(1usize))
        .counter(BytesCount::new(pack.header().bytes_at(POSITION)))
        .bench_local(|| engine.step(1, POSITION).expect("the step runs"));
}
