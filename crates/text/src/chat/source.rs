//! Checks and rewrites a template's source before the template engine sees it.
//!
//! The engine's parser recurses once for every nested operator and block, and so do its code
//! generator and destructors: a source that nests too deep ends the process. So this module first
//! measures the nesting, without recursion. It also rewrites features of Jinja2 that the engine
//! lacks, without a change of line numbers:
//!
//! - `{% generation %}` (a block of `transformers`) becomes `{% with %}`, which has its scope;
//! - `a % b` becomes `__percent(a, b)`, which formats strings, too, and `a ~ b` becomes
//!   `__concat(a, b)`, which writes lists and floats as Python does;
//! - `{% for c in a %}` becomes `{% for c in __items(a) %}`, so that a loop over a string's
//!   characters knows its length;
//! - escapes of Python's strings become those that the engine has.

use std::borrow::Cow;
use std::fmt;

/// Name of the function that stands for the operator `%`.
pub(crate) const PERCENT: &str = "__percent";
/// Name of the function that stands for the operator `~`.
pub(crate) const CONCAT: &str = "__concat";

/// Name of the function that returns the items of a loop.
pub(crate) const ITEMS: &str = "__items";

/// Blocks inside each other; every `elif` counts, as the engine nests it.
const BLOCK_DEPTH_MAX: usize = 100;
/// Brackets inside each other. The engine's own limit is a little lower.
const BRACKET_DEPTH_MAX: usize = 100;
/// Tokens of an expression that can each stand inside the next.
const EXPRESSION_HEIGHT_MAX: usize = 1000;

/// The fault of a source, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub line: usize,
    pub reason: String,
}

/// A source that is safe for the engine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub text: String,
    /// The template's own text: the text outside tags and the strings inside them, each ended by a
    /// zero byte.
    pub literals: String,
}

/// Checks a template's source and rewrites features that the engine lacks.
pub(crate) fn prepare(source: &str) -> Result<Source, Problem> {
    let mut scanner = Scanner {
        source,
        at: 0,
        out: String::with_capacity(source.len() + source.len() / 8),
        literals: String::new(),
        blocks: Vec::new(),
        depth: 0,
    };
    scanner.run().map_err(|(at, reason)| Problem { line: line_of(source, at), reason })?;
    Ok(Source { text: scanner.out, literals: scanner.literals })
}

fn line_of(source: &str, at: usize) -> usize {
    1 + source.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
}

type Fault = (usize, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    Number,
    Text,
    Open,
    Close,
    Operator,
}

#[derive(Clone, Copy, Debug)]
struct Token<'s> {
    kind: Kind,
    text: &'s str,
    start: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

struct Scanner<'s> {
    source: &'s str,
    at: usize,
    out: String,
    literals: String,
    /// Of every open block, how deep the engine nests it.
    blocks: Vec<usize>,
    /// Their sum.
    depth: usize,
}

impl<'s> Scanner<'s> {
    fn run(&mut self) -> Result<(), Fault> {
        while let Some(found) = self.source[self.at..].find('{') {
            let start = self.at + found;
            let Some(sort) = self.source.as_bytes().get(start + 1) else { break };
            match sort {
                b'{' | b'%' => {
                    self.data(start);
                    self.tag(start, *sort == b'%')?;
                }
                b'#' => {
                    self.data(start);
                    let end = self.source[start..].find("#}").map(|length| start + length + 2);
                    self.copy(end.unwrap_or(self.source.len()));
                }
                _ => self.data(start + 1),
            }
        }
        self.data(self.source.len());
        Ok(())
    }

    /// Copies the source up to there.
    fn copy(&mut self, end: usize) {
        self.out.push_str(&self.source[self.at..end]);
        self.at = end;
    }

    /// Copies the text outside tags.
    fn data(&mut self, end: usize) {
        if end > self.at {
            self.literals.push_str(&self.source[self.at..end]);
            self.literals.push('\0');
        }
        self.copy(end);
    }

    /// A tag from its opening to its end; in a `raw` block the block's text, too.
    fn tag(&mut self, start: usize, block: bool) -> Result<(), Fault> {
        let mut at = start + 2;
        if matches!(self.source.as_bytes().get(at), Some(b'-' | b'+')) {
            at += 1;
        }
        let (tokens, end) = self.tokens(at, block);
        let first = tokens.first().filter(|token| token.kind == Kind::Name);
        if let (true, Some(keyword)) = (block, first) {
            if keyword.text == "raw" && tokens.len() == 1 {
                let end = self.end_of_raw(end);
                self.literals.push_str(&self.source[self.at..end]);
                self.literals.push('\0');
                self.copy(end);
                return Ok(());
            }
            self.nest(keyword, &tokens)?;
        }
        let mut edits = Edits::default();
        for token in tokens.iter().filter(|token| token.kind == Kind::Text) {
            push_unescaped(token.text, &mut self.literals);
            edits.of_text(token)?;
        }
        edits.of_tag(&tokens, block)?;
        if block && first.is_some_and(|keyword| keyword.text == "for") {
            edits.of_loop(&tokens);
        }
        edits.apply(self.source, &mut self.at, &mut self.out);
        self.copy(end);
        Ok(())
    }

    /// Follows the nesting of blocks.
    fn nest(&mut self, keyword: &Token<'_>, tokens: &[Token<'_>]) -> Result<(), Fault> {
        let opens = match keyword.text {
            "for" | "if" | "with" | "generation" | "macro" | "call" | "filter" | "autoescape"
            | "block" => true,
            // Without a value it is a block.
            "set" => !tokens.iter().any(|token| token.text == "="),
            "elif" => {
                if let Some(own) = self.blocks.last_mut() {
                    *own += 1;
                    self.depth += 1;
                }
                false
            }
            name => {
                if name.starts_with("end") {
                    self.depth -= self.blocks.pop().unwrap_or(0);
                }
                false
            }
        };
        if opens {
            self.blocks.push(1);
            self.depth += 1;
        }
        if self.depth > BLOCK_DEPTH_MAX {
            let reason = format!("more than {BLOCK_DEPTH_MAX} blocks inside each other");
            return Err((keyword.start, reason));
        }
        Ok(())
    }

    /// The tokens of a tag whose content begins at `at`, and where the tag ends.
    fn tokens(&self, mut at: usize, block: bool) -> (Vec<Token<'s>>, usize) {
        let (mut tokens, mut depth) = (Vec::new(), 0_usize);
        let ends = if block { ["%}", "-%}", "+%}"] } else { ["}}", "-}}", "+}}"] };
        loop {
            let rest = &self.source[at..];
            let Some(c) = rest.chars().next() else { return (tokens, at) };
            if c.is_whitespace() {
                at += c.len_utf8();
                continue;
            }
            if depth == 0
                && let Some(end) = ends.iter().find(|end| rest.starts_with(**end))
            {
                return (tokens, at + end.len());
            }
            let (kind, length) = token(rest, c);
            match kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            tokens.push(Token { kind, text: &rest[..length], start: at });
            at += length;
        }
    }

    /// Where the tag that ends a `raw` block ends.
    fn end_of_raw(&self, mut at: usize) -> usize {
        while let Some(found) = self.source[at..].find("{%") {
            let begin = at + found + 2;
            let inner = self.source[begin..].trim_start_matches(['-', '+']).trim_start();
            if let Some(rest) = inner.strip_prefix("endraw") {
                let rest = rest.trim_start().trim_start_matches(['-', '+']);
                if rest.starts_with("%}") {
                    return self.source.len() - rest.len() + 2;
                }
            }
            at = begin;
        }
        self.source.len()
    }
}

/// Kind and length of the token at the begin of `rest`, which begins with `c`.
fn token(rest: &str, c: char) -> (Kind, usize) {
    let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    match c {
        '\'' | '"' => (Kind::Text, length_of_text(rest, c)),
        '0'..='9' => (Kind::Number, length_of_number(rest)),
        '(' | '[' | '{' => (Kind::Open, 1),
        ')' | ']' | '}' => (Kind::Close, 1),
        c if c == '_' || c.is_alphabetic() => {
            (Kind::Name, run(|c| c == '_' || c.is_alphanumeric()))
        }
        _ => {
            let two = ["//", "**", "==", "!=", "<=", ">="];
            let double = two.iter().any(|two| rest.starts_with(two));
            (Kind::Operator, if double { 2 } else { c.len_utf8() })
        }
    }
}

fn length_of_text(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

fn length_of_number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            at += 1;
        }
        at
    };
    let mut at = digits(0);
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at = digits(at + 1);
    }
    let exponent = matches!(bytes[at - 1], b'e' | b'E') && !rest.starts_with("0x");
    if exponent && matches!(bytes.get(at), Some(b'+' | b'-')) {
        at = digits(at + 1);
    }
    at
}

/// Appends what a string literal stands for, its simple escapes resolved.
fn push_unescaped(literal: &str, out: &mut String) {
    let quote = &literal[..1];
    let inner = &literal[1..];
    let mut chars = inner.strip_suffix(quote).unwrap_or(inner).chars();
    while let Some(c) = chars.next() {
        match (c == '\\').then(|| chars.next()).flatten() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some(other) => out.push(other),
            None => out.push(c),
        }
    }
    out.push('\0');
}

/// The role of a token for the operators `%` and `~`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Part of an operand: names, literals, and what binds tighter than a product.
    Operand,
    /// `*`, `/`, `//` or `%`.
    Product,
    /// Binds no tighter than `~`, or ends an expression.
    Boundary,
}

/// An expression between two brackets.
#[derive(Default)]
struct Level {
    /// Where the product that is being read begins.
    product: Option<usize>,
    /// Where the first operand of a concatenation begins.
    concat: Option<usize>,
    percent_open: bool,
    concat_open: bool,
    /// Where the last operand ends.
    end: usize,
    /// Whether the last token ends an operand, so that a sign is an operator.
    complete: bool,
    /// Tokens since the last comma.
    tokens: usize,
    /// The tallest bracket since the last comma.
    child: usize,
    /// The tallest part before the last comma.
    tallest: usize,
}

impl Level {
    fn height(&self) -> usize {
        self.tallest.max(self.tokens + self.child)
    }
}

/// A piece of the source and its replacement; `order` sorts insertions at one place.
struct Edit {
    start: usize,
    order: u8,
    end: usize,
    text: Cow<'static, str>,
}

#[derive(Default)]
struct Edits(Vec<Edit>);

impl Edits {
    fn replace(&mut self, token: &Token<'_>, text: impl Into<Cow<'static, str>>) {
        let text = text.into();
        self.0.push(Edit { start: token.start, order: 4, end: token.end(), text });
    }

    fn insert(&mut self, at: usize, order: u8, text: &'static str) {
        self.0.push(Edit { start: at, order, end: at, text: text.into() });
    }

    /// A string literal whose escapes the engine does not know.
    fn of_text(&mut self, token: &Token<'_>) -> Result<(), Fault> {
        let mut out = String::with_capacity(token.text.len());
        let mut rest = token.text;
        while let Some(at) = rest.find('\\') {
            let (before, escape) = rest.split_at(at);
            out.push_str(before);
            let (text, length) = match escape.chars().nth(1) {
                Some('a') => ("\\x07".into(), 2),
                Some('v') => ("\\x0b".into(), 2),
                Some('/') => ("\\\\/".into(), 2),
                Some('U') => match escape.get(2..10).map(|code| u32::from_str_radix(code, 16)) {
                    Some(Ok(code)) => match char::from_u32(code) {
                        Some(c) if c.is_ascii() => (format!("\\x{code:02x}"), 10),
                        Some(c) => (c.to_string(), 10),
                        None => {
                            return Err((token.start, format!("\\U{code:08x} is no character")));
                        }
                    },
                    _ => return Err((token.start, "\\U needs eight hexadecimal digits".into())),
                },
                Some('N') => {
                    let reason = "\\N{...}, a character by its name, is not supported";
                    return Err((token.start, reason.into()));
                }
                Some(c) => (escape[..1 + c.len_utf8()].into(), 1 + c.len_utf8()),
                None => (escape.into(), 1),
            };
            out.push_str(&text);
            rest = &escape[length..];
        }
        out.push_str(rest);
        if out != token.text {
            self.replace(token, out);
        }
        Ok(())
    }

    /// What a loop goes over stands between `in` and `if`, `recursive` or the end of the tag.
    fn of_loop(&mut self, tokens: &[Token<'_>]) {
        let mut depth = 0_usize;
        let mut begin = None;
        let mut end = None;
        for token in tokens {
            match (token.kind, token.text) {
                (Kind::Open, _) => depth += 1,
                (Kind::Close, _) => depth = depth.saturating_sub(1),
                (Kind::Name, "in") if depth == 0 && begin.is_none() => {
                    begin = Some(token.end());
                    continue;
                }
                (Kind::Name, "if" | "recursive") if depth == 0 && begin.is_some() => break,
                _ => {}
            }
            if begin.is_some() {
                end = Some(token.end());
            }
        }
        if let (Some(begin), Some(end)) = (begin, end) {
            self.insert(begin, 1, " __items(");
            self.insert(end, 0, ")");
        }
    }

    fn apply(mut self, source: &str, at: &mut usize, out: &mut String) {
        self.0.sort_by_key(|edit| (edit.start, edit.order));
        for edit in self.0 {
            out.push_str(&source[*at..edit.start]);
            out.push_str(&edit.text);
            *at = edit.end;
        }
    }

    /// Finds the parts of a tag to rewrite, and refuses too deep nesting.
    fn of_tag(&mut self, tokens: &[Token<'_>], block: bool) -> Result<(), Fault> {
        if let (true, [only]) = (block, tokens) {
            match only.text {
                "generation" => self.replace(only, "with"),
                "endgeneration" => self.replace(only, "endwith"),
                _ => {}
            }
            return Ok(());
        }
        let mut levels = vec![Level::default()];
        for (index, token) in tokens.iter().enumerate() {
            refuse_empty_cycle(&tokens[index..])?;
            let deepest = levels.len();
            let Some(level) = levels.last_mut() else { return Ok(()) };
            level.tokens += 1;
            if level.height() > EXPRESSION_HEIGHT_MAX {
                let reason =
                    format!("an expression of more than {EXPRESSION_HEIGHT_MAX} nested parts");
                return Err((token.start, reason));
            }
            match token.kind {
                Kind::Open => {
                    level.begin(token.start);
                    if deepest > BRACKET_DEPTH_MAX {
                        let reason =
                            format!("more than {BRACKET_DEPTH_MAX} brackets inside each other");
                        return Err((token.start, reason));
                    }
                    levels.push(Level::default());
                }
                Kind::Close => {
                    self.end_concat(level);
                    let height = level.height();
                    levels.pop();
                    if let Some(outer) = levels.last_mut() {
                        outer.child = outer.child.max(height);
                        outer.end = token.end();
                        outer.complete = true;
                    }
                }
                _ => {
                    let statement = block && index == 0;
                    let role = if statement {
                        Role::Boundary
                    } else {
                        role(tokens, index, level.complete)
                    };
                    self.token(level, token, role);
                }
            }
        }
        // The engine reports a bracket that was never closed.
        if let [level] = &mut levels[..] {
            self.end_concat(level);
        }
        Ok(())
    }

    fn token(&mut self, level: &mut Level, token: &Token<'_>, role: Role) {
        match role {
            Role::Operand => {
                level.begin(token.start);
                level.end = token.end();
                level.complete = token.kind != Kind::Operator;
            }
            Role::Product => {
                self.end_percent(level);
                if let ("%", Some(start)) = (token.text, level.product) {
                    self.insert(start, 3, "__percent(");
                    self.replace(token, ",");
                    level.percent_open = true;
                }
                level.complete = false;
            }
            Role::Boundary => {
                if let ("~", Some(start)) = (token.text, level.concat) {
                    self.end_percent(level);
                    if !level.concat_open {
                        self.insert(start, 2, "__concat(");
                        level.concat_open = true;
                    }
                    self.replace(token, ",");
                } else {
                    self.end_concat(level);
                }
                if token.text == "," {
                    level.tallest = level.height();
                    (level.tokens, level.child) = (0, 0);
                }
                level.product = None;
                level.complete = false;
            }
        }
    }

    fn end_percent(&mut self, level: &mut Level) {
        if std::mem::take(&mut level.percent_open) {
            self.insert(level.end, 0, ")");
        }
    }

    fn end_concat(&mut self, level: &mut Level) {
        self.end_percent(level);
        if std::mem::take(&mut level.concat_open) {
            self.insert(level.end, 0, ")");
        }
        (level.product, level.concat) = (None, None);
    }
}

impl Level {
    fn begin(&mut self, at: usize) {
        self.product.get_or_insert(at);
        self.concat.get_or_insert(at);
    }
}

/// The role of a token that is no bracket; `complete` says whether an operand precedes it.
fn role(tokens: &[Token<'_>], index: usize, complete: bool) -> Role {
    let token = &tokens[index];
    let before = |back: usize| index.checked_sub(back).map_or("", |at| tokens[at].text);
    let of_test = before(1) == "is" || (before(1) == "not" && before(2) == "is");
    match (token.kind, token.text) {
        (Kind::Name, "and" | "or" | "not" | "in" | "if" | "else" | "recursive")
            if !of_test && !matches!(before(1), "." | "|") =>
        {
            Role::Boundary
        }
        (Kind::Operator, "." | "|") => Role::Operand,
        (Kind::Operator, "*" | "/" | "//" | "%") if complete => Role::Product,
        (Kind::Operator, "**") if complete => Role::Operand,
        // A sign: it belongs to the operand that follows.
        (Kind::Operator, "-" | "+") if !complete => Role::Operand,
        (Kind::Operator, _) => Role::Boundary,
        _ => Role::Operand,
    }
}

/// `loop.cycle()` divides by the number of its arguments.
fn refuse_empty_cycle(tokens: &[Token<'_>]) -> Result<(), Fault> {
    match tokens {
        [dot, name, open, close, ..]
            if [dot, name, open, close].map(|token| token.text) == [".", "cycle", "(", ")"] =>
        {
            Err((name.start, "loop.cycle() needs at least one argument".into()))
        }
        _ => Ok(()),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests;
