//! CUDA's text as code: what is left without comments and literals, and its functions.

use std::ops::Range;

/// Returns the text with every comment, string, character and preprocessor line as spaces. Lines
/// keep their numbers.
pub fn without_words(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = chars.clone();
    let mut at = 0;
    while at < chars.len() {
        let end = token_end(&chars, at);
        if let Some(end) = end {
            for c in code[at..end].iter_mut().filter(|c| **c != '\n') {
                *c = ' ';
            }
        }
        at = end.unwrap_or(at + 1);
    }
    code.into_iter().collect()
}

/// Where the comment, literal or preprocessor line ends that begins here, if one does.
fn token_end(chars: &[char], at: usize) -> Option<usize> {
    let begins = |text: &str| chars[at..].iter().copied().take(text.len()).eq(text.chars());
    let line_end = |from: usize| {
        chars[from..].iter().position(|c| *c == '\n').map_or(chars.len(), |more| from + more)
    };
    if begins("//") {
        return Some(line_end(at));
    }
    if begins("/*") {
        let closes = (at + 2..chars.len()).find(|&i| chars[i..].starts_with(&['*', '/']));
        return Some(closes.map_or(chars.len(), |i| i + 2));
    }
    let line = chars[..at].iter().rev().take_while(|c| **c != '\n');
    if chars[at] == '#' && line.clone().all(|c| c.is_whitespace()) {
        let mut end = line_end(at);
        while chars[end - 1] == '\\' && end < chars.len() {
            end = line_end(end + 1);
        }
        return Some(end);
    }
    // In 1'000 the mark stands between digits.
    let separates = at > 0 && chars[at - 1].is_alphanumeric() && chars[at] == '\'';
    if !separates && matches!(chars[at], '"' | '\'') {
        let mut end = at + 1;
        while end < chars.len() && chars[end] != chars[at] && chars[end] != '\n' {
            end += if chars[end] == '\\' { 2 } else { 1 };
        }
        return Some((end + 1).min(chars.len()));
    }
    None
}

/// A function: its name, its first line and its last, counted from 1.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub first: usize,
    pub last: usize,
}

/// Returns the functions that have bodies, or the line of a brace without a partner.
pub fn functions(code: &str) -> Result<Vec<Function>, usize> {
    let mut functions = Vec::new();
    // The open braces: where each stands, and the head of the function whose body it opens.
    let mut open: Vec<(usize, Option<Range<usize>>)> = Vec::new();
    let mut head = 0;
    let mut inside = false;
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    for (at, c) in code.char_indices() {
        match c {
            '{' => {
                let body = !inside && is_function(&code[head..at]);
                inside |= body;
                open.push((at, body.then_some(head..at)));
            }
            '}' => {
                let Some((_, of)) = open.pop() else { return Err(line(at)) };
                if let Some(of) = of {
                    inside = false;
                    let text = &code[of.clone()];
                    let first = line(of.start + text.len() - text.trim_start().len());
                    functions.push(Function { name: name(text), first, last: line(at) });
                }
            }
            _ => {}
        }
        if matches!(c, '{' | '}' | ';') {
            head = at + 1;
        }
    }
    match open.last() {
        Some((at, _)) => Err(line(*at)),
        None => Ok(functions),
    }
}

/// Whether the text before a brace is a function's: it has parameters, and is no type's head and no
/// initializer's.
fn is_function(head: &str) -> bool {
    let outer = outer(head);
    let types = ["struct", "class", "union", "enum", "namespace"];
    let words = outer.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let mut words = words.filter(|word| !word.is_empty());
    let operator = outer.contains("operator");
    outer.contains('(')
        && (operator || !outer.contains('='))
        && !words.any(|word| types.contains(&word))
}

/// Returns the name before the last parameters.
fn name(head: &str) -> String {
    let outer = outer(head);
    // The initializers of a constructor's members are not its name.
    let paths = outer.replace("::", "\u{1}");
    let declared = paths.split(':').next().unwrap_or_default();
    let before = declared.rsplit_once('(').map_or("", |(before, _)| before).trim_end();
    let from = before
        .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    before[from..].to_owned()
}

/// Returns the text without what is in parentheses and without the parameters of a template.
fn outer(head: &str) -> String {
    let (mut kept, mut round, mut angle) = (String::new(), 0, 0);
    for c in head.chars() {
        match c {
            ')' => round -= 1,
            '<' if round == 0 && (angle > 0 || kept.trim_end().ends_with("template")) => angle += 1,
            '>' if round == 0 && angle > 0 => {
                angle -= 1;
                continue;
            }
            _ => {}
        }
        if round == 0 && angle == 0 {
            kept.push(c);
        }
        if c == '(' {
            round += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, usize, usize)> {
        let functions = functions(&without_words(text)).unwrap();
        functions.into_iter().map(|f| (f.name, f.first, f.last)).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let text =
            "a /* {\n{ */ b; // }\nc(\"}\\\"}\", '{', 1'000'000); \n#define X { \\\n  }\nd\n";
        let code = without_words(text);
        assert_eq!(code.lines().count(), text.lines().count());
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words.join(" "), "a b; c( , , 1'000'000); d");
    }

    #[test]
    fn functions_are_found_in_every_scope() {
        let text = "namespace n {\n\
                    struct S {\n  int a = 3;\n  S(int a) : a(a) {}\n\
                    \x20 bool operator==(S other) { return a == other.a; }\n};\n\
                    template <class T, int N = (2 > 1)>\n__device__ int f(T t) {\n\
                    \x20 if (t) { g([&](u32& x) { return x; }); }\n}\n\
                    constexpr int TABLE[] = {1, h(2)};\n}\n\
                    extern \"C\" __global__ void __launch_bounds__((W + 1) * 32)\n\
                    \x20   kernel(int a,\n           int b) {\n}\n";
        let named = |name: &str, first, last| (name.to_owned(), first, last);
        let found = found(text);
        assert_eq!(found[0], named("S", 4, 4));
        assert_eq!((found[1].1, found[1].2), (5, 5));
        assert_eq!(found[2..], [named("f", 7, 10), named("kernel", 13, 16)]);
    }

    #[test]
    fn the_kernels_functions_are_found() {
        let names = |text: &str| found(text).into_iter().map(|f| f.0).collect::<Vec<_>>();
        let entry = include_str!("../../../../crates/kernels/cu/entry/megakernel.cu");
        assert_eq!(
            names(entry),
            ["consume", "conclude", "step", "monolith_step", "monolith_step_split"]
        );
        let head = names(include_str!("../../../../crates/kernels/cu/phases/head.cuh"));
        assert!(head.contains(&"consider_warp".into()) && head.contains(&"argmax".into()));
    }

    #[test]
    fn a_brace_without_a_partner_is_named() {
        assert_eq!(functions("a {\n{ }\n"), Err(1));
        assert_eq!(functions("a { }\n }\n"), Err(2));
    }
}
