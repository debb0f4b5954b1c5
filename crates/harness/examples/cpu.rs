//! The harness on the CPU engine, without the command line:
//!
//! ```text
//! cpu ids MODEL ids.json
//! cpu gate MODEL REFERENCE RESULTS
//! cpu bench MODEL ids.json RESULTS
//! cpu report RESULTS
//! cpu fixture MODEL
//! ```
//!
//! `fixture` writes the model of the tests. Their reference is made by:
//!
//! ```text
//! cargo run -p monolith-harness --example cpu -- fixture target/fixture
//! cargo run -p monolith-harness --example cpu -- ids target/fixture target/fixture/ids.json
//! python3 tools/reference.py --model target/fixture --ids target/fixture/ids.json \
//!     --device cpu --rows-every 64 --long-rows 8 --out crates/harness/tests/data/fixture
//! ```

#[path = "../tests/common/fixture.rs"]
mod fixture;

use monolith_engine::{CpuEngine, CpuOptions, Engine};
use monolith_harness::bench::{Bench, BenchOptions, Output, rendered};
use monolith_harness::environment::{Probe, Target};
use monolith_harness::gate::{self, GateOptions};
use monolith_harness::prompts::{PromptIds, write_ids};
use monolith_harness::record::RunFolder;
use monolith_harness::reference::Reference;
use monolith_harness::{LoadError, bench, report};
use monolith_model::{Checkpoint, Config, Tensor, Weights};
use monolith_pack::{Pack, Source, pack_to_bytes};
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), LoadError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["ids", model, out] => {
            let vocab = Config::read(&Path::new(model).join("config.json"))?.vocab;
            let prompts = Path::new("data/prompts/bench.jsonl");
            write_ids(prompts, Path::new(model), vocab, Path::new(out))?;
        }
        ["gate", model, reference, results] => {
            run_gate(Path::new(model), Path::new(reference), Path::new(results))?;
        }
        ["bench", model, ids, results] => {
            run_bench(Path::new(model), Path::new(ids), Path::new(results))?;
        }
        ["fixture", dir] => write_fixture(Path::new(dir))?,
        ["report", results] => print(&report::render(Path::new(results))?),
        _ => return Err("ids, gate, bench or report: see the source".into()),
    }
    Ok(())
}

fn print(text: &str) {
    use std::io::Write;
    // A closed pipe is no failure of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn load(pack: Arc<Pack>, context: usize) -> Result<Box<dyn Engine>, LoadError> {
    let options = CpuOptions { context: Some(context), ..CpuOptions::default() };
    Ok(Box::new(CpuEngine::load(pack, &options)?))
}

fn pack(model: &Path) -> Result<Arc<Pack>, LoadError> {
    let name = model.file_name().map_or("model".into(), |name| name.to_string_lossy());
    let source = Source { model: name.into(), revision: None };
    let bytes = pack_to_bytes(&Checkpoint::open(model)?, source);
    Ok(Arc::new(Pack::from_bytes(bytes, "in memory")?))
}

fn command() -> String {
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    format!("cargo run --release --package monolith-harness --example cpu -- {words}")
}

fn run_gate(model: &Path, reference: &Path, results: &Path) -> Result<(), LoadError> {
    let pack = pack(model)?;
    let environment = Probe::new(Target::Cpu).environment(&monolith_engine::cpu::device_name());
    let folder = RunFolder::open(results, &environment)?;
    let said = Reference::open(reference)?;
    let mut progress = |what: &str| print(&format!("{what}\n"));
    let run_id = folder.environment()?.run_id;
    let options = GateOptions::default();
    let record = gate::run(&pack, &load, &said, &run_id, &options, &mut progress)?;
    folder.add_gate(&record, reference)?;
    folder.add_command(&command(), &[])?;
    print(&(serde_json::to_string_pretty(&record)? + "\n"));
    if record.passed { Ok(()) } else { Err(record.failures.join("; ").into()) }
}

fn run_bench(model: &Path, ids: &Path, results: &Path) -> Result<(), LoadError> {
    let (pack, prompts) = (pack(model)?, PromptIds::read(ids)?);
    let probe = Probe::new(Target::Cpu);
    let environment = probe.environment(&monolith_engine::cpu::device_name());
    let folder = RunFolder::open(results, &environment)?;
    let mut engine = load(pack.clone(), pack.config().max_positions.min(4096))?;
    let mut subject = Bench {
        engine: &mut *engine,
        pack: &pack,
        prompts: &prompts,
        folder: &folder.path,
        environment: &environment,
        probe: &probe,
    };
    let mut progress = |what: &str| print(&format!("{what}\n"));
    let (rows, left_out) = bench::run(&mut subject, &BenchOptions::default(), &mut progress)?;
    folder.add_rows(&rows)?;
    folder.add_command(&command(), &[])?;
    print(&rendered(&rows, Output::Md));
    print(&left_out.iter().map(|line| format!("left out: {line}\n")).collect::<String>());
    Ok(())
}

/// The tests' model as a checkpoint.
fn write_fixture(dir: &Path) -> Result<(), LoadError> {
    let (weights, mut header, mut payload) =
        (fixture::weights(), serde_json::Map::new(), Vec::new());
    for tensor in Tensor::all(weights.config()) {
        let (rows, cols) = tensor.shape(weights.config());
        let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
        let begin = payload.len();
        payload.extend_from_slice(weights.view(tensor).bytes());
        let entry = serde_json::json!({
            "dtype": "BF16", "shape": shape, "data_offsets": [begin, payload.len()],
        });
        header.insert(tensor.name(), entry);
    }
    header.insert("__metadata__".into(), serde_json::json!({ "format": "pt" }));
    let header = serde_json::to_string(&header)?;
    let length = (header.len() as u64).to_le_bytes();
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("config.json"), weights.config().to_json())?;
    let file = [&length[..], header.as_bytes(), &payload].concat();
    std::fs::write(dir.join("model.safetensors"), file)?;
    Ok(())
}
