//! The control: how far two computations of the same weights agree, with nothing quantized. It
//! settles which comparison of greedy tokens the gate can be: one that bf16 itself does not pass
//! against f32 says nothing of a weight format.

use super::checks::{prefix, same};
use super::{AGREEMENT_MIN, Agreement, AgreementRule, Measured, PromptScore};
use crate::HarnessError;
use crate::identity::{ids_sha256, sha256_hex};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the file that `tools/control.py` writes.
const SCHEMA_VERSION: u32 = 1;

/// transformers in f32 against transformers in bf16: the same weights, the same prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// sha256 of the file.
    pub sha256: String,
    /// What computed it, with versions.
    pub engine: String,
    /// Hash of the weights' values.
    pub tensors_sha256: String,
    /// Hash of the prompts' ids.
    pub prompt_ids_sha256: String,
    /// How many greedy tokens are the same.
    pub agreement: Agreement,
    /// What that sums up.
    pub prompts: Vec<PromptScore>,
}

/// What a control must be of.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Hash of the reference's weights' values ([`crate::identity::tensors_sha256`]).
    pub tensors_sha256: &'a str,
    /// The prompts' ids.
    pub prompts: &'a [Vec<u32>],
    /// Greedy tokens a prompt.
    pub new: usize,
}

/// The file, as far as it is read. Greedy tokens, a list a prompt.
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

impl Control {
    /// Reads what `tools/control.py` wrote, and counts.
    ///
    /// # Errors
    /// A file that is missing, of another version, or of other weights, prompts or lengths.
    pub fn read(path: &Path, wanted: Wanted<'_>) -> Result<Control, HarnessError> {
        let text = std::fs::read(path).map_err(HarnessError::io(path))?;
        let wrong = |what: String| HarnessError::file(path, what);
        let file: File = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        file.check(wanted).map_err(wrong)?;
        let prompts = file.scores();
        Ok(Control {
            sha256: sha256_hex(&text),
            engine: format!(
                "{} {}, torch {}, bf16 and f32, {} attention, {}",
                file.engine, file.transformers, file.torch, file.attention, file.device
            ),
            agreement: Agreement::of(&prompts, wanted.new),
            prompts,
            tensors_sha256: file.tensors_sha256,
            prompt_ids_sha256: file.prompt_ids_sha256,
        })
    }

    /// The strictest comparison that bf16 itself passes against f32.
    pub fn rule(&self) -> AgreementRule {
        if self.agreement.greedy >= AGREEMENT_MIN {
            AgreementRule::Greedy
        } else {
            AgreementRule::Forced
        }
    }

    /// Why it is not to be believed.
    pub(super) fn failures(&self, measured: &Measured, prompts: usize) -> Vec<String> {
        let new = measured.options.new;
        // At a near tie of f32, too, one pass over a text and its steps may differ: what is fed
        // need not keep to the prefix.
        let possible = |&PromptScore { greedy, prefix, forced }: &PromptScore| {
            let most = if prefix == new { new } else { new.saturating_sub(1) };
            (prefix..=most).contains(&greedy) && forced <= new
        };
        let claims = [
            (self.prompt_ids_sha256 == measured.prompts.ids_sha256, "it is of other prompts"),
            (self.prompts.len() == prompts, "it is of another number of prompts"),
            // (Older records do not hold the reference's.)
            (
                measured.tensors_sha256.as_ref().is_none_or(|own| *own == self.tensors_sha256),
                "it is of other weights",
            ),
            (
                self.agreement == Agreement::of(&self.prompts, new),
                "it is not what its prompts sum to",
            ),
            (self.prompts.iter().all(possible), "its numbers cannot be"),
            (
                self.agreement.greedy.max(self.agreement.forced) >= AGREEMENT_MIN,
                "bf16 and f32 do not agree far enough for any comparison",
            ),
        ];
        let broken = claims.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, what)| format!("control: {what}")).collect()
    }
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
        let (prompts, new) = (wanted.prompts.len(), wanted.new);
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

    fn scores(&self) -> Vec<PromptScore> {
        let lists = self.bf16.iter().zip(&self.f32).zip(&self.f32_fed);
        let score = |((bf16, own), fed): ((&Vec<u32>, &Vec<u32>), &Vec<u32>)| PromptScore {
            greedy: same(bf16, own),
            prefix: prefix(bf16, own),
            forced: same(bf16, fed),
        };
        lists.map(score).collect()
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

    fn read(text: &str) -> Result<Control, HarnessError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.json");
        std::fs::write(&path, text).unwrap();
        let prompts = prompts();
        Control::read(&path, Wanted { tensors_sha256: "ab", prompts: &prompts, new: 4 })
    }

    #[test]
    fn it_counts_and_settles_the_rule() {
        let control = read(&text("", "")).unwrap();
        let Agreement { greedy, prefix, forced, whole, .. } = control.agreement;
        assert_eq!((greedy, prefix, forced, whole), (7.0 / 8.0, 6.0 / 8.0, 7.0 / 8.0, 1));
        assert_eq!(control.rule(), AgreementRule::Forced);
        let better = read(&text("[[1, 2, 9, 4], [5, 6, 7, 8]]", "[[1, 2, 3, 4], [5, 6, 7, 8]]"));
        assert_eq!(better.unwrap().rule(), AgreementRule::Greedy);
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
