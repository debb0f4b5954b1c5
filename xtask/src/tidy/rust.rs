//! Limits on Rust functions and lines, and where `unsafe` may stand.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Finding;

const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 100;
/// Where `unsafe` may stand, memory maps aside.
const UNSAFE_PATHS: [&str; 3] = ["crates/engine/", "crates/kernels/src/nvrtc.rs", "crates/probes/"];
/// How far above `unsafe` its reason may end: a statement may begin a few lines before it.
const STATEMENT_LINES_MAX: usize = 3;

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut found = long_lines(path, text);
    match (syn::parse_file(text), text.parse::<TokenStream>()) {
        (Ok(file), Ok(tokens)) => {
            let mut functions = Functions { path, found: &mut found };
            functions.visit_file(&file);
            let lines: Vec<&str> = text.lines().collect();
            Unsafe { path, lines: &lines, found: &mut found }.read(tokens);
        }
        (Err(error), _) => {
            let what = format!("does not parse ({error}): mend it");
            found.push(Finding::new(path, error.span().start().line, what));
        }
        (_, Err(error)) => found.push(Finding::new(path, 0, format!("does not lex: {error}"))),
    }
    found
}

fn long_lines(path: &str, text: &str) -> Vec<Finding> {
    // A table's row and a link in a comment cannot be broken.
    let breaks = |line: &str| {
        let line = line.trim_start();
        !(line.starts_with("//") && (line.ends_with('|') || line.contains("://")))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| line.chars().count() > LINE_CHARS_MAX && breaks(line))
        .map(|(index, line)| {
            let chars = line.chars().count();
            let what = format!("{chars} columns, over {LINE_CHARS_MAX}: break the line");
            Finding::new(path, index + 1, what)
        })
        .collect()
}

/// Visits the functions, closures' bodies counted with them.
struct Functions<'a> {
    path: &'a str,
    found: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = body.brace_token.span.close().end().line + 1 - first;
        if lines > FUNCTION_LINES_MAX {
            let what = format!(
                "`{}` has {lines} lines, over {FUNCTION_LINES_MAX}: split it",
                signature.ident
            );
            self.found.push(Finding::new(self.path, first, what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Reads tokens, so that `unsafe` inside a macro counts and one in a comment does not.
struct Unsafe<'a> {
    path: &'a str,
    lines: &'a [&'a str],
    found: &'a mut Vec<Finding>,
}

impl Unsafe<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => {
                    self.judge(word.span(), tokens.peek());
                }
                _ => {}
            }
        }
    }

    fn judge(&mut self, at: Span, next: Option<&TokenTree>) {
        let line = at.start().line;
        let block = match next {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => Some(group),
            _ => None,
        };
        let maps = block.is_some_and(|block| holds_word(block.stream(), "Mmap"));
        if !UNSAFE_PATHS.iter().any(|path| self.path.starts_with(path)) && !maps {
            let what = "`unsafe` belongs in crates/engine, in crates/probes, at NVRTC or at a \
                        memory map: do without, or move it";
            self.found.push(Finding::new(self.path, line, what));
        }
        let implements = matches!(next, Some(TokenTree::Ident(word)) if word == "impl");
        if (block.is_some() || implements) && !self.has_reason(line) {
            let what = "`unsafe` without its reason: say why it holds in a `// SAFETY:` line above";
            self.found.push(Finding::new(self.path, line, what));
        }
    }

    /// Whether the nearest comment above, at most a statement away, says `SAFETY:`.
    fn has_reason(&self, line: usize) -> bool {
        let above = self.lines[..line - 1].iter().rev().map(|line| line.trim());
        let is_comment = |line: &&str| line.starts_with("//");
        let code = above.clone().take_while(|line| !is_comment(line)).count();
        let mut comment = above.skip(code).take_while(is_comment);
        code <= STATEMENT_LINES_MAX && comment.any(|line| line.contains("SAFETY:"))
    }
}

fn holds_word(tokens: TokenStream, sought: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == sought,
        TokenTree::Group(group) => holds_word(group.stream(), sought),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_function_over_the_limit_is_named() {
        let body = |lines: usize| format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines));
        assert_eq!(found("a.rs", &body(FUNCTION_LINES_MAX - 2)), [""; 0]);
        let over = body(FUNCTION_LINES_MAX - 1);
        assert_eq!(found("a.rs", &over), ["a.rs:1: `long` has 71 lines, over 70: split it"]);
        for inside in ["impl S", "trait T", "mod m"] {
            let nested = format!("{inside} {{\n/// Documentation counts nothing.\n{over}}}\n");
            assert_eq!(found("a.rs", &nested), ["a.rs:3: `long` has 71 lines, over 70: split it"]);
        }
        let text = format!("fn short() {{}}\nconst S: &str = \"{}\";\n", "}\n{\n".repeat(80));
        assert_eq!(found("a.rs", &text), [""; 0]);
    }

    #[test]
    fn a_line_over_the_limit_is_named() {
        let line = |chars: usize| format!("fn a() {{}}\n//{}\n", "é".repeat(chars - 2));
        assert_eq!(found("a.rs", &line(LINE_CHARS_MAX)), [""; 0]);
        let long = found("a.rs", &line(LINE_CHARS_MAX + 1));
        assert_eq!(long, ["a.rs:2: 101 columns, over 100: break the line"]);
        let row = format!("//! | {} |\n", "e".repeat(LINE_CHARS_MAX));
        assert_eq!(found("a.rs", &row), [""; 0]);
    }

    #[test]
    fn what_does_not_parse_is_named() {
        assert!(found("a.rs", "fn a() {}\nfn (")[0].starts_with("a.rs:2: does not parse"));
    }

    #[test]
    fn unsafe_belongs_in_the_engine() {
        let text = "fn a() {\n    // SAFETY: it holds.\n    unsafe { b() }\n}\n";
        assert_eq!(found("crates/engine/src/a.rs", text), [""; 0]);
        assert!(
            found("crates/pack/src/a.rs", text)[0]
                .starts_with("crates/pack/src/a.rs:3: `unsafe` b")
        );
        assert_eq!(found("crates/kernels/src/nvrtc.rs", text), [""; 0]);
        assert_eq!(found("crates/kernels/src/cubin.rs", text).len(), 1);
        let map = text.replace("b()", "Mmap::map(&file)");
        assert_eq!(found("crates/pack/src/a.rs", &map), [""; 0]);
        let hidden = "macro_rules! m { () => { unsafe fn a() {} }; }\n";
        assert_eq!(found("crates/pack/src/a.rs", hidden).len(), 1);
        let mentioned = "// unsafe\nconst S: &str = \"unsafe { }\";\n";
        assert_eq!(found("crates/pack/src/a.rs", mentioned), [""; 0]);
    }

    #[test]
    fn unsafe_says_why_it_holds() {
        let path = "crates/engine/src/a.rs";
        let near = "fn a() {\n    // SAFETY: it holds\n    // for this reason.\n    let x =\n\
                    \x20       unsafe { b() };\n}\n";
        assert_eq!(found(path, near), [""; 0]);
        for bare in [
            near.replace("SAFETY:", "NOTE:"),
            near.replace("let x", "c();\n    c();\n    c();\n    let x"),
            "unsafe impl Send for A {}\n".into(),
        ] {
            assert_eq!(found(path, &bare).len(), 1, "{bare}");
        }
        let called = "type F = unsafe extern \"C\" fn(u32);\n";
        assert_eq!(found(path, called), [""; 0]);
    }
}
