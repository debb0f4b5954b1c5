//! Writes the model of the harness's tests as a checkpoint: `fixture DIR`. The tests' reference is
//! made of it by:
//!
//! ```text
//! cargo run -p monolith-harness --example fixture -- target/fixture
//! cargo run -p monolith -- ids -m target/fixture -o target/fixture/ids.json
//! python3 tools/reference.py --model target/fixture --ids target/fixture/ids.json \
//!     --device cpu --rows-every 64 --long-rows 8 --out crates/harness/tests/data/fixture
//! ```

#[path = "../tests/common/fixture.rs"]
mod fixture;

use monolith_harness::LoadError;
use monolith_model::{Tensor, Weights};
use std::path::Path;

fn main() -> Result<(), LoadError> {
    let dir = std::env::args_os().nth(1).ok_or("the folder to write: see the source")?;
    write_fixture(Path::new(&dir))
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
