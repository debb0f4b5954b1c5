//! The page's layers: it imports nothing from outside web, and what reads and lays out a trace
//! (web/src/trace) knows nothing of what shows it.

use super::Finding;

const TRACE: &str = "web/src/trace/";

/// All that web/src/trace may import of the page beside itself; its tests may import more.
const BELOW_TRACE: [&str; 2] = ["web/src/abi.ts", "web/src/abi"];

pub fn applies_to(path: &str) -> bool {
    let script = [".ts", ".tsx", ".mts", ".js", ".mjs"].iter().any(|end| path.ends_with(end));
    path.starts_with("web/") && script
}

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(imported) = imported(line).and_then(|to| resolved(path, to)) else { continue };
        if !imported.starts_with("web/") {
            let what = format!("imports {imported}, outside web: generate what the page needs");
            found.push(Finding::new(path, index + 1, what));
        }
        if path.starts_with(TRACE) && !path.contains(".test.") && !is_below_trace(&imported) {
            let what = format!("imports {imported}, a layer above: pass it what it needs instead");
            found.push(Finding::new(path, index + 1, what));
        }
    }
    found
}

fn is_below_trace(imported: &str) -> bool {
    imported.starts_with(TRACE) || BELOW_TRACE.contains(&imported)
}

/// What the line imports: the text quoted after `from`, `import` or `import(`.
fn imported(line: &str) -> Option<&str> {
    ["from", "import", "import("].iter().find_map(|word| {
        let at = line.find(&format!("{word}\"")).or_else(|| line.find(&format!("{word}'")));
        let spaced =
            || line.find(&format!("{word} \"")).or_else(|| line.find(&format!("{word} '")));
        let rest = line[at.or_else(spaced)? + word.len()..].trim_start();
        let quote = rest.chars().next()?;
        rest[1..].split_once(quote).map(|(imported, _)| imported)
    })
}

/// A relative import as a path from the root; `None` for a package. What climbs out of the
/// repository keeps its leading `..`.
fn resolved(path: &str, imported: &str) -> Option<String> {
    if !imported.starts_with('.') {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in imported.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_trace_file_imports_nothing_above_it() {
        let text = "import { a } from \"./layout\";\n\
                    import { b } from \"../paint/canvas.ts\";\n\
                    import type { C } from '../main';\n\
                    const d = await import(\"../paint\");\n\
                    import { e } from \"../abi\";\n\
                    } from \"../view/card.ts\";\n\
                    import { f } from \"../trace/axis.ts\";\n";
        assert_eq!(lines("web/src/trace/read.ts", text), [2, 3, 4, 6]);
        assert_eq!(lines("web/src/trace/read.test.ts", text), [0; 0]);
        assert_eq!(lines("web/src/main.ts", text), [0; 0]);
    }

    #[test]
    fn nothing_imports_from_outside_web() {
        let text = "import x from \"../../crates/xray/trace.schema.json\";\n\
                    import \"../../../elsewhere\";\n\
                    import { defineConfig } from \"vite\";\n\
                    import y from \"./data/../abi\";\n";
        assert_eq!(lines("web/src/main.ts", text), [1, 2]);
        assert_eq!(lines("web/vite.config.ts", "import a from '../data/b.json'"), [1]);
    }

    #[test]
    fn only_the_pages_scripts_are_read() {
        assert!(applies_to("web/src/main.ts") && applies_to("web/test/smoke.mjs"));
        assert!(!applies_to("web/index.html") && !applies_to("tools/make.js"));
    }
}
