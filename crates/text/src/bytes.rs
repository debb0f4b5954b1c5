//! Byte-level BPE writes each byte as one printable character. This module decodes them.

use std::sync::LazyLock;

/// Byte of each character of GPT-2's alphabet, indexed by code point.
///
/// Printable Latin-1 bytes stand for themselves. The other 68 bytes are numbered from U+0100 up, in
/// byte order, so every code point is below 256 + 68.
static BYTE_OF_CHAR: LazyLock<[Option<u8>; 324]> = LazyLock::new(|| {
    let mut table = [None; 324];
    let mut next = 256;
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable {
            usize::from(byte)
        } else {
            next += 1;
            next - 1
        };
        table[code] = Some(byte);
    }
    table
});

/// Appends the bytes that a vocabulary entry stands for.
///
/// An entry that has a character outside the alphabet stands for its own UTF-8 bytes.
pub(crate) fn push_token_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match BYTE_OF_CHAR.get(c as usize).copied().flatten() {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(token: &str) -> Vec<u8> {
        let mut out = Vec::new();
        push_token_bytes(token, &mut out);
        out
    }

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen: Vec<u8> = BYTE_OF_CHAR.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_characters() {
        assert_eq!(bytes("Ġthe"), b" the");
        assert_eq!(bytes("Ċ"), b"\n");
        assert_eq!(bytes("Ã©"), "é".as_bytes());
        assert_eq!(bytes("ł"), [0xA0]);
        assert_eq!(bytes("Ń"), [0xAD]);
    }

    #[test]
    fn a_token_outside_the_alphabet_is_its_own_text() {
        assert_eq!(bytes("Ġ\u{1F600}"), "Ġ\u{1F600}".as_bytes());
        assert_eq!(bytes("a b"), b"a b");
    }
}
