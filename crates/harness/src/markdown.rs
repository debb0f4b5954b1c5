//! Escapes text of records for Markdown. A record may come from anybody, so its text must not
//! become markup, another table cell, or a terminal's control sequence.

/// Longest text of a cell, in characters.
const CHARS_MAX: usize = 2000;

/// Text for a table's cell, a heading or a list.
pub(crate) fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(CHARS_MAX) {
        match c {
            _ if is_hidden(c) => out.extend(c.escape_unicode()),
            '\\' | '|' | '`' | '*' | '[' | ']' | '<' | '>' | '&' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    if text.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

/// Text between backticks.
pub(crate) fn code(text: &str) -> String {
    let escape = |c: char| {
        if is_hidden(c) { c.escape_unicode().to_string() } else { c.to_string() }
    };
    let text: String = text.chars().map(escape).collect();
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // A space at both ends separates the text's own backticks; Markdown removes both spaces.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Matches characters that are invisible, or that change how others are shown.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in ["bf16-flag", "NVIDIA H200", "tg256 @ d16", "a_b", "Intel(R) Xeon(R)", "é"] {
            assert_eq!(cell(name), name);
        }
        assert_eq!(code("monolith gate -m 'a b'"), "`monolith gate -m 'a b'`");
    }

    #[test]
    fn no_text_leaves_its_cell() {
        assert_eq!(cell("a|b"), r"a\|b");
        assert_eq!(cell(r"a\|b"), r"a\\\|b");
        assert_eq!(cell("a\nb\r"), r"a\u{a}b\u{d}");
        assert_eq!(cell("\u{1b}[31m"), r"\u{1b}\[31m");
        assert_eq!(cell("![x](y)<b>`c`"), r"!\[x\](y)\<b\>\`c\`");
        assert_eq!(cell("a\u{202e}b"), r"a\u{202e}b");
        assert_eq!(cell(&"x".repeat(10_000)).chars().count(), CHARS_MAX + 1);
    }

    #[test]
    fn no_text_leaves_its_backticks() {
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("``a"), "``` ``a ```");
        assert_eq!(code("a\n## b"), r"`a\u{a}## b`");
    }
}
