//! Tokens a second of the CUDA engine at Qwen3-0.6B's shape, synthetic weights: five decodes of
//! 256 steps at each position, timed between events. For looking, not for records: it knows of no
//! gate. `cargo bench -p monolith-engine --bench cuda [-- POSITION...]`

use monolith_engine::{CudaEngine, CudaOptions, Engine};
use monolith_model::{Checkpoint, synth};
use monolith_pack::{Pack, Source, pack_to_file};
use std::path::Path;
use std::sync::Arc;

const STEPS: usize = 256;

fn main() {
    let dir = std::env::temp_dir().join("monolith-bench");
    let pack = match pack_of(&dir) {
        Ok(pack) => Arc::new(pack),
        Err(error) => return eprintln!("no pack: {error}"),
    };
    let mut engine = match CudaEngine::load(pack.clone(), &CudaOptions::default()) {
        Ok(engine) => engine,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let asked: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let positions = if asked.is_empty() { vec![16, 128, 512, 1024, 2048] } else { asked };
    eprintln!("{:?}", engine.info());
    let prompt: Vec<u32> = (0..2048u32).map(|at| (at * 7919 + 13) % 151_000).collect();
    for position in positions {
        engine.prefill(&prompt[..position]).expect("the prompt fits");
        let mut rates: Vec<f64> = (0..6)
            .map(|_| {
                let decoded = engine.decode(1, position, STEPS).expect("the decode runs");
                STEPS as f64 / decoded.seconds
            })
            .collect();
        rates.remove(0);
        rates.sort_by(f64::total_cmp);
        let bytes = pack.header().bytes_at(position + STEPS / 2) as f64;
        let (low, mid, high) = (rates[0], rates[2], rates[4]);
        let gb_s = bytes * mid / 1e9;
        eprintln!("position {position:4}: {mid:7.1} tok/s ({low:.1} to {high:.1}), {gb_s:.0} GB/s");
    }
}

fn pack_of(dir: &Path) -> Result<Pack, Box<dyn std::error::Error>> {
    let (folder, path) = (dir.join("qwen3-0.6b"), dir.join("qwen3-0.6b.pack"));
    if !path.exists() {
        std::fs::create_dir_all(dir)?;
        if !folder.exists() {
            let config = synth::shape("qwen3-0.6b").ok_or("no such shape")?;
            synth::write(&config, 0, &folder, &|_| Ok(()))?;
        }
        let source = Source { model: "synth qwen3-0.6b".into(), revision: None };
        pack_to_file(&Checkpoint::open(&folder)?, source, &path, |_, _| Ok(()))?;
    }
    Ok(Pack::open(&path)?)
}
