//! The controls: how far bf16 and f32 agree on the same weights, with nothing quantized. They put
//! the figures of a weight format into perspective, and change no threshold.

use super::checks::PromptScore;
use super::{Agreement, Measured};
use crate::HarnessError;
use crate::identity::{ids_sha256, sha256_hex};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the file that `tools/control.py` writes.
const SCHEMA_VERSION: u32 = 1;

/// transformers in bf16 against transformers in f32: the same weights, the same prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// sha256 of the file.
    pub sha256: String,
    /// The software that computed it, with versions.
    pub engine: String,
    /// Hash of the weights' values.
    pub tensors_sha256: String,
    /// Hash of the prompts' ids.
    pub prompt_ids_sha256: String,
    /// How many greedy tokens are the same. `forced`: f32 fed the tokens of bf16.
    pub agreement: Agreement,
    /// What that sums up.
    pub prompts: Vec<PromptScore>,
}

/// The comparison's own bf16 engine against transformers in f32, on the same prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnControl {
    /// How many greedy tokens are the same. `forced`: the engine fed the tokens of f32.
    pub agreement: Agreement,
    /// What that sums up.
    pub prompts: Vec<PromptScore>,
}

/// A control with the file that it was counted from.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlFile {
    /// The file.
    pub bytes: Vec<u8>,
    /// What the file says, counted.
    pub control: Control,
    /// The greedy tokens of f32, one list per prompt.
    pub f32: Vec<Vec<u32>>,
}

/// The weights and prompts that a control must match.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Hash of the reference's weights' values ([`crate::identity::tensors_sha256`]).
    pub tensors_sha256: &'a str,
    /// The prompts' ids.
    pub prompts: &'a [Vec<u32>],
    /// Greedy tokens per prompt.
    pub new: usize,
}

/// The fields of the file that are read. Greedy tokens are one list per prompt.
#[derive(Deserialize)]
struct File {
    schema_version: u32,
    engine: String,
    torch: String,
    transformers: String,
    attention: String,
    device: String,
    tensors_sha256: String,
    prompt_ids_sha256: String,
    /// By itself, in bf16.
    bf16: Vec<Vec<u32>>,
    /// By itself, in f32.
    f32: Vec<Vec<u32>>,
    /// In f32, fed the tokens of bf16.
    f32_fed: Vec<Vec<u32>>,
}

impl ControlFile {
    /// Reads the file that `tools/control.py` wrote, and counts.
    ///
    /// # Errors
    /// A file that is missing, too large, of another version, or of other weights, prompts or
    /// lengths.
    pub fn read(path: &Path, wanted: Wanted<'_>) -> Result<ControlFile, HarnessError> {
        let bytes = super::kept::bounded_file(path)?;
        let wrong = |what: String| HarnessError::file(path, what);
        let file: File =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        file.check(wanted).map_err(wrong)?;
        Ok(file.counted(bytes, wanted.new))
    }

    /// Reads a file from beside its record.
    ///
    /// # Errors
    /// Describes a file that is damaged or contradictory.
    pub(super) fn kept(bytes: Vec<u8>, new: usize) -> Result<ControlFile, String> {
        let file: File = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        file.check_lists(file.bf16.len(), new)?;
        Ok(file.counted(bytes, new))
    }
}

impl Control {
    /// Returns why to reject it.
    pub(super) fn contradictions(&self, measured: &Measured, prompts: usize) -> Vec<String> {
        let new = measured.options.new;
        let claims = [
            (self.prompt_ids_sha256 == measured.prompts.ids_sha256, "it is of other prompts"),
            (self.prompts.len() == prompts, "it is of another number of prompts"),
            // Older records do not hold the hash of the reference's weights.
            (
                measured.tensors_sha256.as_ref().is_none_or(|own| *own == self.tensors_sha256),
                "it is of other weights",
            ),
            (
                measured.control_sha256.as_ref().is_none_or(|own| *own == self.sha256),
                "it is another one than the measurement's",
            ),
            // One pass over a text and single steps may differ at a near tie of f32, so the
            // teacher-forced tokens need not match the prefix.
            (self.prompts.iter().all(|prompt| prompt.is_possible(new)), "its numbers cannot be"),
            (
                self.agreement == Agreement::of(&self.prompts, new),
                "it is not what its prompts sum to",
            ),
        ];
        named("control", &claims)
    }
}

impl OwnControl {
    /// Counts the agreement of these prompts, `new` tokens each.
    pub(super) fn of(prompts: Vec<PromptScore>, new: usize) -> OwnControl {
        OwnControl { agreement: Agreement::of(&prompts, new), prompts }
    }

    /// Returns why to reject it.
    pub(super) fn contradictions(&self, new: usize, prompts: usize) -> Vec<String> {
        let possible = |prompt: &PromptScore| prompt.is_possible(new);
        let claims = [
            (self.prompts.len() == prompts, "it is of another number of prompts"),
            (self.prompts.iter().all(possible), "its numbers cannot be"),
            (
                self.agreement == Agreement::of(&self.prompts, new),
                "it is not what its prompts sum to",
            ),
        ];
        named("own control", &claims)
    }
}

/// Collects the messages of the claims that do not hold.
fn named(of: &str, claims: &[(bool, &str)]) -> Vec<String> {
    let broken = claims.iter().filter(|(holds, _)| !holds);
    broken.map(|(_, what)| format!("{of}: {what}")).collect()
}

impl File {
    fn check(&self, wanted: Wanted<'_>) -> Result<(), String> {
        if self.schema_version != SCHEMA_VERSION {
            return Err(format!("version {}: {SCHEMA_VERSION} is read", self.schema_version));
        }
        if self.tensors_sha256 != wanted.tensors_sha256 {
            return Err(
                "it is of other weights than the reference's: run tools/control.py on the \
                        same checkpoint in bf16"
                    .into(),
            );
        }
        if self.prompt_ids_sha256 != ids_sha256(wanted.prompts) {
            return Err("it is of other prompts: run tools/control.py on what `monolith ids` \
                        writes for the same --prompts"
                .into());
        }
        self.check_lists(wanted.prompts.len(), wanted.new)
    }

    fn check_lists(&self, prompts: usize, new: usize) -> Result<(), String> {
        for (name, lists) in [("bf16", &self.bf16), ("f32", &self.f32), ("f32_fed", &self.f32_fed)]
        {
            if lists.len() != prompts || lists.iter().any(|tokens| tokens.len() != new) {
                return Err(format!(
                    "{name} is not {prompts} lists of {new} tokens: run tools/control.py with \
                     --new {new}"
                ));
            }
        }
        Ok(())
    }

    fn counted(self, bytes: Vec<u8>, new: usize) -> ControlFile {
        let lists = self.bf16.iter().zip(&self.f32).zip(&self.f32_fed);
        let prompts: Vec<PromptScore> =
            lists.map(|((bf16, own), fed)| PromptScore::of([bf16, own], [bf16, fed])).collect();
        let control = Control {
            sha256: sha256_hex(&bytes),
            engine: format!(
                "{} {}, torch {}, bf16 and f32, {} attention, {}",
                self.engine, self.transformers, self.torch, self.attention, self.device
            ),
            agreement: Agreement::of(&prompts, new),
            prompts,
            tensors_sha256: self.tensors_sha256,
            prompt_ids_sha256: self.prompt_ids_sha256,
        };
        ControlFile { bytes, control, f32: self.f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts() -> Vec<Vec<u32>> {
        vec![vec![1, 2], vec![3]]
    }

    fn text(change: &str, to: &str) -> String {
        let text = format!(
            r#"{{"schema_version": 1, "engine": "transformers", "torch": "2", "transformers": "5",
            "attention": "eager", "device": "cpu", "tensors_sha256": "ab",
            "prompt_ids_sha256": "{}", "bf16": [[1, 2, 3, 4], [5, 6, 7, 8]],
            "f32": [[1, 2, 9, 4], [5, 6, 7, 8]], "f32_fed": [[1, 2, 9, 4], [5, 6, 7, 8]]}}"#,
            ids_sha256(&prompts())
        );
        assert!(change.is_empty() || text.contains(change), "{change}");
        text.replace(change, to)
    }

    fn read(text: &str) -> Result<ControlFile, HarnessError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.json");
        std::fs::write(&path, text).unwrap();
        let prompts = prompts();
        ControlFile::read(&path, Wanted { tensors_sha256: "ab", prompts: &prompts, new: 4 })
    }

    #[test]
    fn it_counts() {
        let file = read(&text("", "")).unwrap();
        let Agreement { greedy, prefix, forced, whole, .. } = file.control.agreement;
        assert_eq!((greedy, prefix, forced, whole), (7.0 / 8.0, 6.0 / 8.0, 7.0 / 8.0, 1));
        assert_eq!(file.f32, [[1, 2, 9, 4], [5, 6, 7, 8]]);
        assert_eq!(file.control.sha256, sha256_hex(text("", "").as_bytes()));
        assert_eq!(ControlFile::kept(file.bytes.clone(), 4), Ok(file));
    }

    #[test]
    fn another_file_is_refused() {
        for (change, to, said) in [
            ("\"schema_version\": 1", "\"schema_version\": 2", "version 2: 1 is read"),
            ("\"ab\"", "\"cd\"", "other weights than the reference's: run tools/control.py"),
            ("[[1, 2, 3, 4], ", "[", "bf16 is not 2 lists of 4 tokens"),
            ("\"f32_fed\": [[1, ", "\"f32_fed\": [[", "f32_fed is not 2 lists of 4 tokens"),
            ("\"prompt_ids_sha256\": \"", "\"prompt_ids_sha256\": \"0", "other prompts"),
            ("\"torch\"", "\"tonic\"", "missing field `torch`"),
        ] {
            let error = read(&text(change, to)).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("control.json"), "{error}");
        }
    }
}
