//! Makes text from files and models safe to show.

use std::borrow::Cow;

/// Returns `text` with its control characters escaped (`\u{1b}`), except newlines and tabs.
///
/// Control characters could change a terminal's title, its colours or earlier output. This escapes
/// the C0 and C1 controls and DEL, and the characters that change the direction of a text or
/// separate its lines, which can disguise a line.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// Like [`printable`], for a text that must stay on one line: newlines and tabs are escaped too.
#[must_use]
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let hostile = |c: char| is_hostile(c) && !keeps(c);
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hostile(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

fn is_hostile(c: char) -> bool {
    let changes_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || changes_direction || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out() {
        let hostile = "a\u{1b}]0;title\u{7}\u{9b}31m\r\u{7f}\0b";
        assert_eq!(printable(hostile), "a\\u{1b}]0;title\\u{7}\\u{9b}31m\\r\\u{7f}\\u{0}b");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{200f}"), "a\\u{202e}b\\u{2066}c\\u{200f}");
        assert_eq!(printable("a\u{2028}b"), "a\\u{2028}b");
    }

    #[test]
    fn every_other_character_is_left_alone() {
        let text = "tab\tline\nÉ 漢字 👩\u{200d}👩 e\u{301} \u{a0} <|im_end|> |\\";
        assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn no_control_character_passes() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = c.to_string();
            assert!(!printable(&text).contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            assert!(!printable_line(&text).contains(char::is_control));
        }
    }
}
