//! What is measured: a build of ours, or an engine of somebody else.

use crate::HarnessError;
use crate::identity::{build_hash, commit, weights_sha256};
use monolith_engine::EngineInfo;
use monolith_pack::Pack;
use serde::{Deserialize, Serialize};

/// Our name in the field `engine` of rows and records.
pub const OURS: &str = "monolith";

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A build of ours. Its speeds count only behind a gate.
    Ours(Ours),
    /// Another engine, which has no gate record of ours.
    Foreign {
        /// Its name: `llama.cpp`.
        name: String,
        /// Its version.
        version: String,
        /// Its configuration, in words.
        setup: String,
    },
}

impl Subject {
    /// Returns the subject that a row's fields describe. The rows of all engines have the same
    /// fields, and a foreign engine's row has its version in `build` and its configuration in
    /// `variant`. Nothing else tells by a name whether an engine is ours.
    pub fn of_fields(fields: Ours) -> Subject {
        if fields.engine == OURS {
            return Subject::Ours(fields);
        }
        let Ours { engine: name, build: version, variant: setup, .. } = fields;
        Subject::Foreign { name, version, setup }
    }

    /// The build of ours, if it is one.
    pub fn ours(&self) -> Option<&Ours> {
        match self {
            Subject::Ours(ours) => Some(ours),
            Subject::Foreign { .. } => None,
        }
    }
}

/// A build of ours with its weights, on one processor, in one run. Between a gate and a speed, or
/// a gate and a quality, every field must be equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ours {
    /// [`OURS`].
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

impl Ours {
    /// Returns the subject of this process with this engine and pack.
    ///
    /// # Errors
    /// An executable that cannot be read.
    pub fn of(info: &EngineInfo, pack: &Pack, run_id: &str) -> Result<Ours, HarnessError> {
        Ok(Ours {
            engine: OURS.into(),
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

impl Ours {
    /// Returns every difference from the other subject.
    pub fn differences(&self, other: &Ours) -> Vec<Difference> {
        let known = |value: &Option<String>| value.clone().unwrap_or("unknown".into());
        let of = |subject: &Ours| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_describe_ours_or_a_foreign_engine() {
        let fields = Ours {
            engine: OURS.into(),
            variant: "bf16-flag".into(),
            format: "bf16".into(),
            gpu: "a GPU".into(),
            blocks: 1,
            build: "b1".into(),
            kernels: None,
            cubin_sha256: None,
            nvrtc: None,
            commit: None,
            weights_sha256: String::new(),
            run_id: String::new(),
        };
        assert_eq!(Subject::of_fields(fields.clone()).ours(), Some(&fields));
        let peer = Subject::of_fields(Ours { engine: "peer".into(), ..fields });
        assert_eq!(peer.ours(), None);
        let [name, version, setup] = ["peer", "b1", "bf16-flag"].map(String::from);
        assert_eq!(peer, Subject::Foreign { name, version, setup });
    }
}
