//! Hashes that identify what was measured: the build, the weights, the prompts, the run.

use crate::HarnessError;
use monolith_files::hex;
use monolith_model::Tensor;
use monolith_pack::{Header, Pack};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

static COMMIT: OnceLock<&str> = OnceLock::new();

/// Sets the git commit that this program was built from: once, before any measurement.
pub fn name_commit(commit: &'static str) {
    // A second call sets the same value.
    let _ = COMMIT.set(commit);
}

/// Returns the git commit that this program was built from, or `unknown` if [`name_commit`] was not
/// called.
pub fn commit() -> &'static str {
    COMMIT.get().copied().unwrap_or("unknown")
}

/// sha256 of the running executable. The kernels' sources are part of it.
///
/// # Errors
/// An executable that cannot be found or read.
pub fn build_hash() -> Result<String, HarnessError> {
    let path = std::env::current_exe().map_err(HarnessError::io(Path::new("/proc/self/exe")))?;
    file_sha256(&path)
}

/// Returns the sha256 of the pack's contents, independent of the model's name: of the
/// configuration's hash, then a line `name format sha256` for each section.
pub fn weights_sha256(header: &Header) -> String {
    let lines = header
        .sections
        .iter()
        .map(|entry| format!("{} {} {}\n", entry.name, entry.format, entry.sha256));
    sha256_hex((header.config_sha256.clone() + "\n" + &lines.collect::<String>()).as_bytes())
}

/// Returns one hash of the weights' values: of a line `name sha256` for each tensor, in order of
/// name. `tools/reference.py` computes the same from the checkpoint (for formats other than bf16,
/// from the checkpoint that `monolith unpack` writes).
pub fn tensors_sha256(pack: &Pack) -> String {
    let mut lines: Vec<String> = Tensor::all(pack.config())
        .into_par_iter()
        .map(|tensor| format!("{} {}\n", tensor.name(), sha256_hex(&pack.value_bytes(tensor))))
        .collect();
    lines.sort();
    sha256_hex(lines.concat().as_bytes())
}

/// sha256 of the prompts' ids as compact JSON.
pub fn ids_sha256(ids: &[Vec<u32>]) -> String {
    sha256_hex(serde_json::to_string(ids).expect("numbers are JSON").as_bytes())
}

/// Returns a name for one boot of one processor that does not reveal the machine.
///
/// `device` is the GPU's UUID, or the CPU's name.
pub fn run_id(device: &str) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    short(&format!("monolith run\n{}\n{device}", boot.trim()))
}

/// 16 hexadecimal digits of a text's sha256.
pub(crate) fn short(text: &str) -> String {
    sha256_hex(text.as_bytes())[..16].to_owned()
}

/// sha256 in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// sha256 of a file.
///
/// # Errors
/// A file that cannot be read.
pub fn file_sha256(path: &Path) -> Result<String, HarnessError> {
    let mut file = std::fs::File::open(path).map_err(HarnessError::io(path))?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(HarnessError::io(path))? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_one_boot_of_one_device() {
        assert_eq!(run_id("GPU-1"), run_id("GPU-1"));
        assert_ne!(run_id("GPU-1"), run_id("GPU-2"));
        assert_eq!(run_id("GPU-1").len(), 16);
    }

    #[test]
    fn the_build_is_this_file() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(build_hash().unwrap(), sha256_hex(&own));
    }

    #[test]
    fn ids_hash_as_python_does() {
        // sha256 of "[[1,2],[3]]"
        assert_eq!(ids_sha256(&[vec![1, 2], vec![3]]), sha256_hex(b"[[1,2],[3]]"));
    }
}
