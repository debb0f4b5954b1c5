//! The structure of the CUDA sources: limits on functions and lines, where `asm` may stand, no
//! header without a use, and includes that point down.

mod code;

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use code::{functions, without_words};

const FUNCTION_LINES_MAX: usize = 70;
/// The longest line of today; new lines are shorter.
const LINE_CHARS_MAX: usize = 113;
/// Where `asm` may stand.
const ASM_PATHS: [&str; 2] = ["crates/kernels/cu/ptx/", "crates/probes/cu/ops.cuh"];

const KERNELS: &str = "crates/kernels/cu/";
const ENTRIES: &str = "crates/kernels/cu/entry/";
const PROBES: &str = "crates/probes/cu/";

/// The floors of the kernels' files and folders, the lowest first. An include stays on its floor or
/// points down.
const FLOORS: [&[&str]; 9] = [
    &["types.cuh", "abi.cuh", "step.cuh", "shape.cuh"],
    &["ptx/"],
    &["fault.cuh", "xray.cuh"],
    &["ring.cuh"],
    &["mma/"],
    &["formats/"],
    &["handoff/"],
    // A role knows the table of phases, and a phase the consumers; their files make no circle.
    &["roles/", "phases/"],
    &["entry/"],
];

/// Every CUDA source, by its path.
pub type Sources = BTreeMap<String, String>;

pub fn applies_to(path: &str) -> bool {
    let ours = path.starts_with(KERNELS) || path.starts_with(PROBES);
    ours && (path.ends_with(".cu") || path.ends_with(".cuh"))
}

/// Whether the file is compiled by itself.
fn is_entry(path: &str) -> bool {
    path.ends_with(".cu") && (path.starts_with(ENTRIES) || path.starts_with(PROBES))
}

pub fn check(sources: &Sources) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in sources {
        found.extend(limits(path, text));
    }
    let includes: BTreeMap<&str, Vec<Include>> =
        sources.iter().map(|(path, text)| (path.as_str(), includes(path, text, sources))).collect();
    for (path, includes) in &includes {
        found.extend(includes.iter().filter_map(|include| unresolved(path, include)));
        found.extend(upward(path, includes));
    }
    found.extend(circles(&includes));
    found.extend(dead(&includes));
    found
}

/// Long lines, long functions, and `asm` in a wrong place.
fn limits(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS_MAX {
            let what = format!("{chars} columns, over {LINE_CHARS_MAX}: break the line");
            found.push(Finding::new(path, index + 1, what));
        }
    }
    let code = without_words(text);
    if !ASM_PATHS.iter().any(|allowed| path.starts_with(allowed)) {
        let lines = code.lines().enumerate().filter(|(_, line)| holds_asm(line));
        found.extend(lines.map(|(index, _)| {
            let what = "`asm` belongs in crates/kernels/cu/ptx, or in crates/probes/cu/ops.cuh \
                        what only a probe needs: move it into a function there";
            Finding::new(path, index + 1, what)
        }));
    }
    match functions(&code) {
        Ok(functions) => found.extend(functions.iter().filter_map(|function| {
            let lines = function.last + 1 - function.first;
            let what = format!(
                "`{}` has {lines} lines, over {FUNCTION_LINES_MAX}: split it",
                function.name
            );
            (lines > FUNCTION_LINES_MAX).then(|| Finding::new(path, function.first, what))
        })),
        Err(line) => {
            let what = "a brace without a partner (in every branch of an `#if`): mend it";
            found.push(Finding::new(path, line, what));
        }
    }
    found
}

fn holds_asm(line: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.any(|word| ["asm", "__asm", "__asm__"].contains(&word))
}

struct Include {
    line: usize,
    named: String,
    /// The file's path, if there is one.
    path: Option<String>,
}

/// Returns what the file includes, from its own folder or else from the kernels'.
fn includes(path: &str, text: &str, sources: &Sources) -> Vec<Include> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix('#') else { continue };
        let Some(rest) = rest.trim_start().strip_prefix("include") else { continue };
        let Some((named, _)) = rest.trim_start().strip_prefix('"').and_then(|r| r.split_once('"'))
        else {
            continue;
        };
        let places = [joined(folder, named), joined(KERNELS.trim_end_matches('/'), named)];
        let path = places.into_iter().find(|place| sources.contains_key(place));
        all.push(Include { line: index + 1, named: named.to_owned(), path });
    }
    all
}

fn joined(folder: &str, named: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in named.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn unresolved(path: &str, include: &Include) -> Option<Finding> {
    let what = format!(
        "includes {}, which git does not list: `git add` it, or correct the path",
        include.named
    );
    include.path.is_none().then(|| Finding::new(path, include.line, what))
}

/// Returns the floor of a kernel's file and the name under which it is listed.
fn floor(path: &str) -> Option<(usize, &'static str)> {
    let inner = path.strip_prefix(KERNELS)?;
    let fits =
        |name: &str| if name.ends_with('/') { inner.starts_with(name) } else { inner == name };
    FLOORS.iter().enumerate().find_map(|(floor, names)| {
        names.iter().copied().find(|name| fits(name)).map(|name| (floor, name))
    })
}

/// The kernels' includes that point up, and files that have no floor.
fn upward(path: &str, includes: &[Include]) -> Vec<Finding> {
    if !path.starts_with(KERNELS) {
        return Vec::new();
    }
    let Some((own, own_name)) = floor(path) else {
        let what = format!("has no floor: move it, or give it one in FLOORS in {}", file!());
        return vec![Finding::new(path, 0, what)];
    };
    let targets = includes.iter().filter_map(|include| Some((include, include.path.as_deref()?)));
    let mut found = Vec::new();
    for (include, target) in targets {
        let above = match floor(target) {
            Some((other, other_name)) if other > own => other_name,
            None if !target.starts_with(KERNELS) => target,
            _ => continue,
        };
        let what = format!(
            "includes {}, but {above} is above {own_name}: includes point down, so move what both \
             need to a lower file",
            include.named
        );
        found.push(Finding::new(path, include.line, what));
    }
    found
}

/// The includes from which a way leads back.
fn circles(includes: &BTreeMap<&str, Vec<Include>>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, own) in includes {
        for include in own {
            let Some(target) = include.path.as_deref() else { continue };
            if reached(includes, [target]).contains(path) {
                let what = format!(
                    "includes {}, which includes this file again: move what both need to a third \
                     file",
                    include.named
                );
                found.push(Finding::new(path, include.line, what));
            }
        }
    }
    found
}

/// The files that no kernel and no probe includes.
fn dead(includes: &BTreeMap<&str, Vec<Include>>) -> Vec<Finding> {
    let entries = includes.keys().copied().filter(|path| is_entry(path));
    let alive = reached(includes, entries);
    let dead = includes.keys().filter(|path| !alive.contains(*path));
    dead.map(|path| {
        let what = "no kernel and no probe includes this file: include it or remove it";
        Finding::new(path, 0, what)
    })
    .collect()
}

/// Returns these files and all that they include.
fn reached<'a>(
    includes: &'a BTreeMap<&str, Vec<Include>>,
    from: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = from.into_iter().collect();
    while let Some(path) = next.pop() {
        if seen.insert(path) {
            let targets = includes.get(path).into_iter().flatten();
            next.extend(targets.filter_map(|include| include.path.as_deref()));
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let sources = sources.iter().map(|(path, text)| ((*path).into(), (*text).into()));
        check(&sources.collect()).iter().map(ToString::to_string).collect()
    }

    /// A small tree in order, with one file replaced or added.
    fn with(path: &str, text: &str) -> Vec<String> {
        let mut sources = vec![
            ("crates/kernels/cu/types.cuh", "using u32 = unsigned;\n"),
            ("crates/kernels/cu/ptx/clock.cuh", "#include \"../types.cuh\"\n"),
            ("crates/kernels/cu/roles/consumer.cuh", "#include \"../ptx/clock.cuh\"\n"),
            ("crates/kernels/cu/phases/table.cuh", "#include \"../roles/consumer.cuh\"\n"),
            ("crates/kernels/cu/roles/loader.cuh", "#include \"../phases/table.cuh\"\n"),
            ("crates/kernels/cu/entry/k.cu", "#include \"../roles/loader.cuh\"\n"),
            ("crates/probes/cu/p.cu", "#include \"ops.cuh\"\n"),
            ("crates/probes/cu/ops.cuh", "#include \"ptx/clock.cuh\"\n"),
        ];
        sources.retain(|(other, _)| *other != path);
        sources.push((path, text));
        found(&sources)
    }

    const LOADER: &str = "crates/kernels/cu/roles/loader.cuh";

    #[test]
    fn a_tree_in_order_has_no_findings() {
        assert_eq!(with("crates/kernels/cu/types.cuh", "#include <cuda.h>\n"), [""; 0]);
    }

    #[test]
    fn a_function_or_line_over_the_limit_is_named() {
        let body = |lines: usize| {
            format!(
                "#include \"../phases/table.cuh\"\nvoid f(int a) {{\n{}}}\n",
                "  g();\n".repeat(lines)
            )
        };
        assert_eq!(with(LOADER, &body(FUNCTION_LINES_MAX - 2)), [""; 0]);
        let over = with(LOADER, &body(FUNCTION_LINES_MAX - 1));
        assert_eq!(over, [format!("{LOADER}:2: `f` has 71 lines, over 70: split it")]);
        let line = |chars: usize| {
            format!("#include \"../phases/table.cuh\"\n//{}\n", "é".repeat(chars - 2))
        };
        assert_eq!(with(LOADER, &line(LINE_CHARS_MAX)), [""; 0]);
        let over = with(LOADER, &line(LINE_CHARS_MAX + 1));
        assert_eq!(over, [format!("{LOADER}:2: 114 columns, over 113: break the line")]);
        assert_eq!(with(LOADER, "#include \"../phases/table.cuh\"\nvoid f() {\n").len(), 1);
    }

    #[test]
    fn asm_belongs_in_ptx_and_in_the_probes_operations() {
        let text = "#include \"../types.cuh\"\nvoid f() { asm volatile(\"nop;\"); }\n";
        assert_eq!(with("crates/kernels/cu/ptx/clock.cuh", text), [""; 0]);
        assert_eq!(with("crates/probes/cu/ops.cuh", "void f() { asm(\"nop;\"); }\n"), [""; 0]);
        let wrong = with("crates/kernels/cu/roles/consumer.cuh", text);
        assert!(wrong[0].starts_with("crates/kernels/cu/roles/consumer.cuh:2: `asm` belongs"));
        let said = "#include \"../types.cuh\"\n// asm\nconst char* asm_text = \"asm\";\n";
        assert_eq!(with("crates/kernels/cu/roles/consumer.cuh", said), [""; 0]);
    }

    #[test]
    fn an_include_points_down() {
        let clock = "crates/kernels/cu/ptx/clock.cuh";
        let up = with(clock, "#include \"../fault.cuh\"\n");
        assert!(
            up[0].starts_with(&format!("{clock}:1: includes ../fault.cuh, which git does not"))
        );
        let fault = "crates/kernels/cu/fault.cuh";
        let sources = [
            (clock, "\n#include \"../fault.cuh\"\n"),
            (fault, ""),
            ("crates/kernels/cu/entry/k.cu", "#include \"../ptx/clock.cuh\"\n"),
        ];
        let up = found(&sources);
        assert_eq!(up.len(), 1);
        assert!(up[0].starts_with(&format!("{clock}:2: includes ../fault.cuh, but fault.cuh is")));
        let outside = with(LOADER, "#include \"../../../probes/cu/ops.cuh\"\n");
        assert!(outside[0].contains("crates/probes/cu/ops.cuh is above roles/"), "{outside:?}");
        let homeless = with("crates/kernels/cu/new.cuh", "");
        assert!(homeless[0].starts_with("crates/kernels/cu/new.cuh: has no floor"));
    }

    #[test]
    fn a_circle_is_named_at_each_of_its_includes() {
        let consumer = "crates/kernels/cu/roles/consumer.cuh";
        let text = "#include \"../ptx/clock.cuh\"\n#include \"loader.cuh\"\n";
        let circle = with(consumer, text);
        let lines: Vec<&str> = circle.iter().map(|what| what.split(": ").next().unwrap()).collect();
        let loader = format!("{LOADER}:1");
        assert_eq!(
            lines,
            [
                "crates/kernels/cu/phases/table.cuh:1",
                "crates/kernels/cu/roles/consumer.cuh:2",
                &loader
            ]
        );
    }

    #[test]
    fn a_header_without_a_use_is_named() {
        let path = "crates/kernels/cu/mma/old.cuh";
        let dead = with(path, "#include \"../ptx/clock.cuh\"\n");
        assert_eq!(
            dead,
            [format!("{path}: no kernel and no probe includes this file: include it or remove it")]
        );
        assert_eq!(with("crates/probes/cu/old.cuh", "").len(), 1);
        assert_eq!(with("crates/kernels/cu/roles/old.cu", "").len(), 1);
    }

    #[test]
    fn only_the_kernels_and_the_probes_are_read() {
        assert!(applies_to("crates/kernels/cu/entry/k.cu") && applies_to("crates/probes/cu/o.cuh"));
        assert!(!applies_to("crates/engine/tests/a.cu") && !applies_to("crates/probes/cu/README"));
    }
}
