use crate::Tokenizer;

/// Turns ids into text as they arrive.
///
/// A token of a byte-level tokenizer may end inside a character. The decoder holds such bytes
/// back until the character is complete; it never holds back more than three. The pieces, joined,
/// equal the batch decode of the same ids. Bytes that cannot become a character are replaced by
/// U+FFFD as in [`String::from_utf8_lossy`].
#[derive(Debug)]
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    pending: Vec<u8>,
}

impl<'t> StreamDecoder<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, pending: Vec::new() }
    }

    /// Takes the next id. Returns the text that it completes, if any.
    ///
    /// An id outside the vocabulary stands for no text, as in `transformers`: models have more
    /// output rows than their tokenizers have tokens. [`Tokenizer::token`] is `None` for such ids.
    pub fn push(&mut self, id: u32) -> Option<String> {
        if self.skip_special && self.tokenizer.is_special(id) {
            return None;
        }
        if !self.tokenizer.push_bytes(id, &mut self.pending) {
            return None;
        }
        let (text, rest) = split_whole_characters(&self.pending);
        self.pending.drain(..self.pending.len() - rest);
        (!text.is_empty()).then_some(text)
    }

    /// Ends the stream. Returns U+FFFD if it stopped inside a character.
    #[must_use]
    pub fn finish(self) -> Option<String> {
        (!self.pending.is_empty()).then(|| char::REPLACEMENT_CHARACTER.to_string())
    }
}

/// The complete characters of `bytes`, and the number of bytes of an incomplete one at the end.
fn split_whole_characters(bytes: &[u8]) -> (String, usize) {
    let mut text = String::new();
    let mut rest = bytes;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, 0);
            }
            Err(error) => error,
        };
        let (valid, after) = rest.split_at(error.valid_up_to());
        text.push_str(&String::from_utf8_lossy(valid));
        let Some(bad) = error.error_len() else { return (text, after.len()) };
        text.push(char::REPLACEMENT_CHARACTER);
        rest = &after[bad..];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The decoded pieces, joined, equal the lossy decode of all bytes at once.
        #[test]
        fn any_cut_of_any_bytes_equals_the_lossy_whole(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..40)
        ) {
            let (mut pending, mut joined) = (Vec::new(), String::new());
            for chunk in &chunks {
                pending.extend_from_slice(chunk);
                let (text, rest) = split_whole_characters(&pending);
                joined.push_str(&text);
                pending.drain(..pending.len() - rest);
                prop_assert!(pending.len() <= 3);
            }
            if !pending.is_empty() {
                joined.push(char::REPLACEMENT_CHARACTER);
            }
            let whole = chunks.concat();
            prop_assert_eq!(joined, String::from_utf8_lossy(&whole));
        }
    }
}
