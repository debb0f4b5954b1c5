//! The harness's modules import in one direction, in the order that `lib.rs` states.

use std::path::{Path, PathBuf};

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The order of modules in the crate's documentation: the names in the list's items, before the
/// colon.
fn order(lib: &str) -> Vec<String> {
    let items = lib.lines().filter_map(|line| line.strip_prefix("//! - "));
    let items = items.flat_map(|item| item.split("; "));
    let names = items.filter_map(|item| Some(item.split_once(':')?.0)).collect::<Vec<_>>();
    let quoted = names.iter().flat_map(|names| names.split('`').skip(1).step_by(2));
    quoted.map(str::to_owned).collect()
}

/// The modules that `lib.rs` declares.
fn declared(lib: &str) -> Vec<String> {
    let items = lib.lines().filter_map(|line| {
        let item = line.strip_prefix("pub ").unwrap_or(line);
        item.strip_prefix("mod ")?.strip_suffix(';')
    });
    items.map(str::to_owned).collect()
}

/// The first names of all paths that begin with `crate::`, those in braces included. Comments are
/// skipped: a link in the documentation is no import.
fn imported(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join(" ");
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let first = |path: &str| path.trim_start().chars().take_while(|&c| is_name(c)).collect();
    let mut names: Vec<String> = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(first(rest));
            continue;
        };
        let (mut depth, mut begin) = (0, 0);
        for (index, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    names.push(first(&list[begin..index]));
                    begin = index + 1;
                }
                _ => {}
            }
            if c == '}' && depth == 0 && begin == index + 1 {
                break;
            }
        }
    }
    names
}

/// Every source file of a module.
fn files(module: &str) -> Vec<PathBuf> {
    let file = src().join(format!("{module}.rs"));
    if file.exists() {
        return vec![file];
    }
    let listed = std::fs::read_dir(src().join(module)).unwrap();
    listed.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_module_imports_only_modules_before_it() {
    let lib = std::fs::read_to_string(src().join("lib.rs")).unwrap();
    let (order, mut declared) = (order(&lib), declared(&lib));
    let mut sorted = order.clone();
    sorted.sort();
    declared.sort();
    assert_eq!(sorted, declared, "the list in lib.rs names every module once");
    for (place, module) in order.iter().enumerate() {
        for path in files(module) {
            let names = imported(&std::fs::read_to_string(&path).unwrap());
            for name in names.iter().filter(|name| *name != module) {
                let other = order.iter().position(|other| other == name);
                let allowed = other.is_none_or(|other| other < place);
                assert!(allowed, "{} imports {name}, which stands after {module}", path.display());
            }
        }
    }
    // The crate's root imports none of them, so that whatever imports the root is in no circle.
    let root: Vec<String> = imported(&lib);
    let root = root.iter().find(|name| order.contains(name));
    assert_eq!(root, None, "lib.rs imports a module");
}

#[test]
fn imports_are_found_in_every_form() {
    let text = "use crate::gate::{self, Rule};\n\
                use crate::{HarnessError, report, runs::{Index, RunFolder}, now};\n\
                // See crate::pace.\n\
                fn f() { crate::files::is_plain(\"\"); }\n\
                use crate::{\n    bench,\n    quality::Kept,\n};\n";
    let expected = ["gate", "HarnessError", "report", "runs", "now", "files", "bench", "quality"];
    let mut found = imported(text);
    found.retain(|name| !name.is_empty());
    assert_eq!(found, expected);
}
