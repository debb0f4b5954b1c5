//! What the host does at one position of a quality measurement. `cargo bench -p monolith-harness`.

use divan::{Bencher, black_box};
use monolith_harness::quality::{Logits, compare};

/// Qwen3's vocabulary.
const VOCAB: usize = 151_936;

fn main() {
    divan::main();
}

/// Logits as a model's: most far below the largest.
fn logits(seed: u64) -> (Vec<f32>, u32) {
    let mut state = seed;
    let mut values: Vec<f32> = (0..VOCAB)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 * 20.0 - 10.0
        })
        .collect();
    values[777] = 19.5;
    (values, 777)
}

/// Both perplexities and the divergence of one position.
#[divan::bench(args = [1, 2, 4, 8, 16], sample_count = 200, sample_size = 10)]
fn one_position(bencher: Bencher, threads: usize) {
    let ((a, greedy_a), (b, greedy_b)) = (logits(1), logits(2));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.expect("threads can be had");
    // From outside the pool, as a measurement does it.
    bencher.bench_local(|| {
        let reference = Logits { values: black_box(&a), greedy: greedy_a };
        let candidate = Logits { values: black_box(&b), greedy: greedy_b };
        pool.install(|| compare(reference, candidate, 123_456))
    });
}
