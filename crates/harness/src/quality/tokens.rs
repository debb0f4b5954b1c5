//! The greedy tokens from which a record's agreements are counted. They are in a separate file
//! beside the record, named by its sha256.

use super::checks::{PromptScore, prefix};
use serde::{Deserialize, Serialize};

/// Version of the file's layout.
const SCHEMA_VERSION: u32 = 1;

/// The tokens after one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTokens {
    /// The reference by itself.
    pub reference: Vec<u32>,
    /// The candidate by itself.
    pub candidate: Vec<u32>,
    /// The candidate, fed the reference's tokens.
    pub candidate_fed: Vec<u32>,
    /// The reference, fed the control's f32 tokens, if there is a control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_fed: Option<Vec<u32>>,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    schema_version: u32,
    /// Hash of the prompts' ids.
    pub prompt_ids_sha256: String,
    /// One entry per prompt, in order.
    pub prompts: Vec<PromptTokens>,
}

impl Tokens {
    /// The file of these prompts.
    pub fn new(prompt_ids_sha256: String, prompts: Vec<PromptTokens>) -> Tokens {
        Tokens { schema_version: SCHEMA_VERSION, prompt_ids_sha256, prompts }
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data is JSON") + "\n"
    }

    /// Reads the file's text; `new` tokens follow each prompt.
    ///
    /// # Errors
    /// Describes a text that is damaged or contradictory.
    pub fn parse(bytes: &[u8], new: usize) -> Result<Tokens, String> {
        let tokens: Tokens = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if tokens.schema_version != SCHEMA_VERSION {
            let own = tokens.schema_version;
            return Err(format!("version {own}: {SCHEMA_VERSION} is read"));
        }
        match tokens.prompts.iter().position(|prompt| !prompt.is_consistent(new)) {
            Some(at) => Err(format!(
                "prompt {at}: not {new} tokens each, or an engine gives two tokens after one text"
            )),
            None => Ok(tokens),
        }
    }

    /// How many tokens agree: the candidate with the reference.
    pub fn scores(&self) -> Vec<PromptScore> {
        self.prompts.iter().map(PromptTokens::score).collect()
    }

    /// How many tokens agree: the reference with f32. `None` if a prompt lacks them.
    pub fn own_scores(&self, f32: &[Vec<u32>]) -> Option<Vec<PromptScore>> {
        if f32.len() != self.prompts.len() {
            return None;
        }
        self.prompts.iter().zip(f32).map(|(prompt, f32)| prompt.own_score(f32)).collect()
    }
}

impl PromptTokens {
    /// Checks that an engine gives the same token after the same text, by itself or teacher-forced:
    /// up to and including the first difference from the fed tokens.
    fn is_consistent(&self, new: usize) -> bool {
        let PromptTokens { reference, candidate, candidate_fed, reference_fed } = self;
        let lists = [Some(reference), Some(candidate), Some(candidate_fed), reference_fed.as_ref()];
        let first = prefix(reference, candidate);
        lists.into_iter().flatten().all(|list| list.len() == new)
            && candidate.iter().zip(candidate_fed).take(first + 1).all(|(own, fed)| own == fed)
    }

    fn score(&self) -> PromptScore {
        let PromptTokens { reference, candidate, candidate_fed, .. } = self;
        PromptScore::of([reference, candidate], [reference, candidate_fed])
    }

    fn own_score(&self, f32: &[u32]) -> Option<PromptScore> {
        let fed = self.reference_fed.as_ref()?;
        let first = prefix(&self.reference, f32);
        let same = self.reference.iter().zip(fed).take(first + 1).all(|(own, fed)| own == fed);
        same.then(|| PromptScore::of([&self.reference, f32], [f32, fed]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt() -> PromptTokens {
        PromptTokens {
            reference: vec![1, 2, 3, 4],
            candidate: vec![1, 2, 9, 4],
            candidate_fed: vec![1, 2, 9, 5],
            reference_fed: Some(vec![1, 7, 3, 4]),
        }
    }

    fn parsed(prompt: PromptTokens) -> Result<Tokens, String> {
        Tokens::parse(Tokens::new("ids".into(), vec![prompt]).to_json().as_bytes(), 4)
    }

    #[test]
    fn the_counts_are_those_of_the_tokens() {
        let tokens = parsed(prompt()).unwrap();
        assert_eq!(tokens.scores(), [PromptScore { greedy: 3, prefix: 2, forced: 2 }]);
        // Fed 8, 2, 3, 4 the reference gives the same first token as by itself, and 7 after 8.
        let own = tokens.own_scores(&[vec![8, 2, 3, 4]]).unwrap();
        assert_eq!(own, [PromptScore { greedy: 3, prefix: 0, forced: 2 }]);
        assert_eq!(tokens.own_scores(&[]), None);
        let other = PromptTokens { reference_fed: Some(vec![2, 7, 3, 4]), ..prompt() };
        assert_eq!(parsed(other).unwrap().own_scores(&[vec![8, 2, 3, 4]]), None, "1 and 2 first");
        let without = PromptTokens { reference_fed: None, ..prompt() };
        assert_eq!(parsed(without).unwrap().own_scores(&[vec![8, 2, 3, 4]]), None);
    }

    #[test]
    fn tokens_that_no_engine_gives_are_refused() {
        let refused = |prompt: PromptTokens| {
            let error = parsed(prompt).unwrap_err();
            assert!(error.starts_with("prompt 0: not 4 tokens each"), "{error}");
        };
        refused(PromptTokens { reference: vec![1, 2, 3], ..prompt() });
        refused(PromptTokens { candidate: vec![], ..prompt() });
        refused(PromptTokens { candidate_fed: vec![1, 2, 9, 5, 6], ..prompt() });
        refused(PromptTokens { reference_fed: Some(vec![1]), ..prompt() });
        refused(PromptTokens { candidate_fed: vec![1, 2, 3, 4], ..prompt() });
        let text = Tokens::new("ids".into(), vec![]).to_json().replace(":1", ":2");
        assert_eq!(Tokens::parse(text.as_bytes(), 4).unwrap_err(), "version 2: 1 is read");
        assert!(Tokens::parse(b"[", 4).is_err());
    }
}
