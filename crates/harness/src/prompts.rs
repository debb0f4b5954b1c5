//! The committed prompts as token ids.

use crate::HarnessError;
use crate::files::write_whole;
use crate::identity::{ids_sha256, sha256_hex};
use monolith_text::{ChatOptions, ChatTemplate, EncodePolicy, Error as TextError};
use monolith_text::{Message, Tokenizer};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The benchmark's prompts, as `data/prompts/bench.jsonl` holds them.
const BENCH_PROMPTS: &str = include_str!("../../../data/prompts/bench.jsonl");

/// UTF-8 bytes per id if there is no tokenizer.
const BYTES_PER_ID: usize = 4;

/// One line of `data/prompts/*.jsonl`; its other fields are for people.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Prompt {
    /// `bench-01` and so on.
    pub id: String,
    /// Whether `text` is a user's message in the chat template.
    pub chat: bool,
    /// The prompt.
    pub text: String,
}

/// A prompt set as token ids: the contents of `ids.json`, which `tools/reference.py` reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptIds {
    /// How the ids were made.
    pub rule: String,
    /// sha256 of the prompt set's file.
    pub prompt_set_sha256: String,
    /// The prompts' ids, in the set's order.
    pub ids: Vec<Vec<u32>>,
}

impl PromptIds {
    /// sha256 of the ids alone.
    pub fn ids_sha256(&self) -> String {
        ids_sha256(&self.ids)
    }

    /// Reads an `ids.json`.
    ///
    /// # Errors
    /// A file that is missing or of another kind.
    pub fn read(path: &Path) -> Result<PromptIds, HarnessError> {
        let text = std::fs::read(path).map_err(HarnessError::io(path))?;
        serde_json::from_slice(&text).map_err(|error| HarnessError::file(path, error))
    }

    /// The prompts one after another, repeated up to `length` ids.
    pub fn cycled(&self, length: usize) -> Vec<u32> {
        self.ids.iter().flatten().copied().cycle().take(length).collect()
    }
}

/// Reads a prompt set.
///
/// # Errors
/// A file is missing, or a line is not a prompt.
pub fn read_prompts(path: &Path) -> Result<Vec<Prompt>, HarnessError> {
    let text = std::fs::read_to_string(path).map_err(HarnessError::io(path))?;
    parsed(path, &text)
}

/// Parses a prompt set; `path` is for messages.
fn parsed(path: &Path, text: &str) -> Result<Vec<Prompt>, HarnessError> {
    let parsed = text.lines().enumerate().map(|(index, line)| {
        serde_json::from_str(line)
            .map_err(|error| HarnessError::file(path, format!("line {}: {error}", index + 1)))
    });
    parsed.collect()
}

/// Returns the prompt set's token ids for a model: encoded by the tokenizer in `model_dir` if there
/// is one, otherwise by a rule that needs none ([`folded`]).
///
/// # Errors
/// A prompt set or a tokenizer that cannot be read.
pub fn prompt_ids(
    prompts_path: &Path,
    model_dir: &Path,
    vocab: usize,
) -> Result<PromptIds, HarnessError> {
    let prompts = read_prompts(prompts_path)?;
    let bytes = std::fs::read(prompts_path).map_err(HarnessError::io(prompts_path))?;
    ids_of(&prompts, &bytes, model_dir, vocab)
}

/// Returns the benchmark's own prompts, which are embedded in this program, as token ids for a
/// model: the same as [`prompt_ids`] of `data/prompts/bench.jsonl`.
///
/// # Errors
/// A tokenizer that cannot be read.
pub fn bench_ids(model_dir: &Path, vocab: usize) -> Result<PromptIds, HarnessError> {
    let prompts = parsed(Path::new("data/prompts/bench.jsonl"), BENCH_PROMPTS)?;
    ids_of(&prompts, BENCH_PROMPTS.as_bytes(), model_dir, vocab)
}

fn ids_of(
    prompts: &[Prompt],
    bytes: &[u8],
    model_dir: &Path,
    vocab: usize,
) -> Result<PromptIds, HarnessError> {
    let (rule, ids) = if model_dir.join("tokenizer.json").is_file() {
        encoded(prompts, model_dir)?
    } else {
        let rule = "no tokenizer: every 4 UTF-8 bytes by FNV-1a (64 bits) modulo the vocabulary";
        (rule.into(), prompts.iter().map(|prompt| folded(&prompt.text, vocab)).collect())
    };
    Ok(PromptIds { rule, prompt_set_sha256: sha256_hex(bytes), ids })
}

/// [`prompt_ids`], written to a file.
///
/// # Errors
/// Those of [`prompt_ids`], and a file that cannot be written.
pub fn write_ids(
    prompts_path: &Path,
    model_dir: &Path,
    vocab: usize,
    out: &Path,
) -> Result<PromptIds, HarnessError> {
    let ids = prompt_ids(prompts_path, model_dir, vocab)?;
    let text = serde_json::to_string(&ids).expect("plain data is JSON") + "\n";
    write_whole(out, &text)?;
    Ok(ids)
}

fn encoded(prompts: &[Prompt], dir: &Path) -> Result<(String, Vec<Vec<u32>>), HarnessError> {
    let tokenizer = Tokenizer::load(dir)?;
    let template = match ChatTemplate::load(dir) {
        Ok(template) => Some(template),
        Err(TextError::NoTemplate { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let options = ChatOptions {
        add_generation_prompt: true,
        enable_thinking: Some(false),
        ..ChatOptions::default()
    };
    let ids = prompts.iter().map(|prompt| match &template {
        Some(template) if prompt.chat => {
            let text = template.render(&[Message::new("user", &*prompt.text)], &options)?;
            tokenizer.encode(&text, EncodePolicy::Rendered)
        }
        _ => tokenizer.encode(&prompt.text, EncodePolicy::Prompt),
    });
    let chat = if template.is_some() { "thinking off" } else { "fed as they are" };
    Ok((format!("the model's tokenizer; chat prompts: {chat}"), ids.collect::<Result<_, _>>()?))
}

/// Ids for a model that has no tokenizer: each four bytes of the text, hashed into the
/// vocabulary, so that a prompt is about as long as it would be in tokens.
pub fn folded(text: &str, vocab: usize) -> Vec<u32> {
    let fnv = |chunk: &[u8]| {
        chunk.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    text.as_bytes().chunks(BYTES_PER_ID).map(|chunk| (fnv(chunk) % vocab as u64) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn a_model_without_a_tokenizer_has_ids_too() {
        let dir = root().join("data/golden/odd");
        let ids = prompt_ids(&root().join("data/prompts/bench.jsonl"), &dir, 131).unwrap();
        assert_eq!(ids.ids.len(), 20);
        assert!(ids.ids.iter().all(|ids| ids.len() > 20 && ids.iter().all(|&id| id < 131)));
        assert_eq!(folded("", 131), [0; 0]);
        assert_eq!(folded("abcdabcd", 131)[0], folded("abcdabcd", 131)[1]);
    }

    #[test]
    fn a_tokenizer_is_used_where_there_is_one() {
        let dir = root().join("data/tiny");
        let ids = prompt_ids(&root().join("data/prompts/bench.jsonl"), &dir, 4096).unwrap();
        assert!(ids.rule.starts_with("the model's tokenizer"));
        let tokenizer = Tokenizer::load(&dir).unwrap();
        let first = tokenizer.decode(&ids.ids[0], false);
        assert!(first.starts_with("The ferry stopped running"), "{first}");
        assert_eq!(bench_ids(&dir, 4096).unwrap(), ids, "the program holds the same prompts");
    }

    #[test]
    fn a_written_file_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("ids.json");
        let prompts = root().join("data/prompts/bench.jsonl");
        let written = write_ids(&prompts, dir.path(), 50, &out).unwrap();
        assert_eq!(PromptIds::read(&out).unwrap(), written);
        assert_eq!(written.cycled(5000).len(), 5000);
    }
}
