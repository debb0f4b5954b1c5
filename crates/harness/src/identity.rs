//! Hashes that identify what was measured: the build, the weights, the prompts, the run.

use crate::HarnessError;
use monolith_engine::EngineInfo;
use monolith_files::hex;
use monolith_model::Tensor;
use monolith_pack::{Header, Pack};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// The subject of a gate or of a speed: the two must be equal in every field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `monolith`.
    pub engine: String,
    /// Row of the variant table.
    pub variant: String,
    /// Name of the weight formats: one, or the layers' and the head's.
    pub format: String,
    /// The processor's name, as it reports it.
    pub gpu: String,
    /// Blocks (threads) that take part in a step.
    pub blocks: usize,
    /// sha256 of the running executable, the kernels' sources included.
    pub build: String,
    /// sha256 of the kernels' sources and compile options, by which the cache names a kernel. It
    /// does not depend on the compiler. `None` on a CPU.
    pub kernels: Option<String>,
    /// sha256 of the machine code that was loaded onto the GPU (the cubin). `None` on a CPU, and in
    /// records before version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin_sha256: Option<String>,
    /// Version of the NVRTC that compiled the machine code, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvrtc: Option<String>,
    /// Git commit of the build ([`name_commit`]). `None` in records before version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// sha256 of the pack's sections ([`weights_sha256`]).
    pub weights_sha256: String,
    /// One boot of one GPU ([`run_id`]).
    pub run_id: String,
}

impl Subject {
    /// Returns the subject of this process with this engine and pack.
    ///
    /// # Errors
    /// An executable that cannot be read.
    pub fn of(info: &EngineInfo, pack: &Pack, run_id: &str) -> Result<Subject, HarnessError> {
        Ok(Subject {
            engine: "monolith".into(),
            variant: info.variant.clone(),
            format: pack.header().formats.name().into(),
            gpu: info.device.clone(),
            blocks: info.blocks,
            build: build_hash()?,
            kernels: info.kernels.clone(),
            cubin_sha256: info.cubin_sha256.clone(),
            nvrtc: info.nvrtc.clone(),
            commit: Some(commit().into()),
            weights_sha256: weights_sha256(pack.header()),
            run_id: run_id.into(),
        })
    }
}

/// A difference between two subjects: the field's name, and both values.
pub type Difference = (&'static str, String, String);

impl Subject {
    /// Returns every difference from the other subject.
    pub fn differences(&self, other: &Subject) -> Vec<Difference> {
        let known = |value: &Option<String>| value.clone().unwrap_or("unknown".into());
        let of = |subject: &Subject| {
            [
                ("engine", subject.engine.clone()),
                ("variant", subject.variant.clone()),
                ("format", subject.format.clone()),
                ("GPU", subject.gpu.clone()),
                ("build", subject.build.clone()),
                ("commit", known(&subject.commit)),
                ("weights", subject.weights_sha256.clone()),
                ("run", subject.run_id.clone()),
                ("set of kernels", known(&subject.kernels)),
                ("machine code", known(&subject.cubin_sha256)),
                ("NVRTC", known(&subject.nvrtc)),
                ("number of blocks", subject.blocks.to_string()),
            ]
        };
        let pairs = of(self).into_iter().zip(of(other));
        pairs.filter(|(own, other)| own != other).map(|((n, a), (_, b))| (n, a, b)).collect()
    }

    /// Returns whether the subject is a GPU's but does not name the machine code.
    pub fn lacks_machine_code(&self) -> bool {
        self.kernels.is_some() && self.cubin_sha256.is_none()
    }
}

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
