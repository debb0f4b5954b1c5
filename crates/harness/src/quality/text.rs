//! The text as token ids.

use super::TextId;
use crate::HarnessError;
use crate::identity::{ids_sha256, sha256_hex};
use crate::prompts::folded;
use monolith_text::{EncodePolicy, Tokenizer};
use std::path::Path;

/// A text as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextIds {
    /// Identity of the text.
    pub id: TextId,
    /// The token ids in use.
    pub ids: Vec<u32>,
}

impl TextIds {
    /// Reads a text and encodes it with the tokenizer in `model_dir`, or without one by the rule
    /// for prompts ([`folded`]). Special tokens in the text are not recognised. Keeps the first
    /// `limit` ids.
    ///
    /// # Errors
    /// A file that is missing or is not UTF-8, or a tokenizer that cannot be read.
    pub fn read(
        path: &Path,
        model_dir: &Path,
        vocab: usize,
        limit: Option<usize>,
    ) -> Result<TextIds, HarnessError> {
        let bytes = std::fs::read(path).map_err(HarnessError::io(path))?;
        let sha256 = sha256_hex(&bytes);
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            HarnessError::file(path, format!("it is not UTF-8: see the byte at offset {at}"))
        })?;
        let (rule, mut ids) = if model_dir.join("tokenizer.json").is_file() {
            let ids = Tokenizer::load(model_dir)?.encode(&text, EncodePolicy::Literal)?;
            ("the model's tokenizer, special tokens not recognised", ids)
        } else {
            let rule =
                "no tokenizer: every 4 UTF-8 bytes by FNV-1a (64 bits) modulo the vocabulary";
            (rule, folded(&text, vocab))
        };
        let tokens_whole = ids.len();
        ids.truncate(limit.unwrap_or(tokens_whole));
        let name = path.file_name().map_or(String::new(), |name| name.display().to_string());
        let id = TextId {
            name,
            sha256,
            rule: rule.into(),
            tokens_whole,
            tokens: ids.len(),
            ids_sha256: ids_sha256(std::slice::from_ref(&ids)),
        };
        Ok(TextIds { id, ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_after_its_ids_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.txt");
        std::fs::write(&path, "abcdabcdabcdefgh<|endoftext|>").unwrap();
        let whole = TextIds::read(&path, dir.path(), 50, None).unwrap();
        assert_eq!((whole.ids.len(), whole.id.tokens_whole), (8, 8));
        let cut = TextIds::read(&path, dir.path(), 50, Some(3)).unwrap();
        assert_eq!((cut.id.tokens, cut.id.tokens_whole), (3, 8));
        assert_eq!(cut.ids, whole.ids[..3]);
        assert_eq!(cut.id.sha256, whole.id.sha256);
        assert_ne!(cut.id.ids_sha256, whole.id.ids_sha256);
        std::fs::write(&path, b"abc\xff").unwrap();
        let error = TextIds::read(&path, dir.path(), 50, None).unwrap_err().to_string();
        assert!(error.contains("text.txt") && error.contains("offset 3"), "{error}");
    }

    #[test]
    fn markup_in_a_text_is_text() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.txt");
        std::fs::write(&path, "a<|endoftext|>").unwrap();
        let read = TextIds::read(&path, &root.join("data/tiny"), 4096, None).unwrap();
        assert!(read.ids.len() > 2 && read.ids.iter().all(|&id| id < 4093), "{read:?}");
    }
}
