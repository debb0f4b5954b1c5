//! The floors of ARCHITECTURE.md against the real dependencies.
//!
//! The table lies between a line `<!-- floors -->` and a line `<!-- /floors -->`; its first two
//! columns are the floor (a number, or `outside`) and the crate's name in backticks, without
//! `monolith-`. A crate may depend on lower floors only; one that is outside may depend on any,
//! and nothing may depend on it. Tests may depend upwards unless that closes a cycle.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use super::Finding;

/// The file that holds the table.
pub const TABLE: &str = "ARCHITECTURE.md";

/// A row: the line it stands on, and the floor or `None` for outside.
struct Row {
    line: usize,
    floor: Option<u32>,
}

/// A workspace crate's dependencies on other workspace crates.
#[derive(Default)]
struct Edges {
    normal: BTreeSet<String>,
    dev: BTreeSet<String>,
}

pub fn check(table: &str, metadata: &Value) -> Vec<Finding> {
    let (rows, mut found) = rows(table);
    let graph = graph(metadata);
    for (name, row) in &rows {
        if !graph.contains_key(name) {
            let what = format!("there is no crate {name}: take its row out");
            found.push(Finding::new(TABLE, row.line, what));
        }
    }
    for (name, edges) in &graph {
        match rows.get(name) {
            None => {
                let what = format!("the floors lack the crate {name}: add its row");
                found.push(Finding::new(TABLE, 0, what));
            }
            Some(row) => found.extend(upward(name, row, edges, &rows)),
        }
        for dev in edges.dev.iter().filter(|dev| reaches(&graph, dev, name)) {
            let what = format!(
                "the tests of {name} depend on {dev}, which depends on {name}: \
                 move them to a crate above both"
            );
            found.push(Finding::new(&manifest(name), 0, what));
        }
    }
    found
}

fn rows(table: &str) -> (BTreeMap<String, Row>, Vec<Finding>) {
    let (mut rows, mut found) = (BTreeMap::new(), Vec::new());
    let lines = table.lines().enumerate().skip_while(|(_, line)| line.trim() != "<!-- floors -->");
    let lines = lines.take_while(|(_, line)| line.trim() != "<!-- /floors -->");
    for (index, line) in lines.filter(|(_, line)| line.trim_start().starts_with('|')) {
        let mut cells = line.trim().trim_start_matches('|').split('|').map(str::trim);
        let (floor, name) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        if floor == "floor" || floor.starts_with(['-', ':']) {
            continue;
        }
        let Ok(floor) = (if floor == "outside" { Ok(None) } else { floor.parse().map(Some) })
        else {
            let what = format!("`{floor}` is no floor: write a number, or `outside`");
            found.push(Finding::new(TABLE, index + 1, what));
            continue;
        };
        let row = Row { line: index + 1, floor };
        if rows.insert(name.trim_matches('`').to_owned(), row).is_some() {
            found.push(Finding::new(TABLE, index + 1, format!("{name} has two rows: keep one")));
        }
    }
    if rows.is_empty() {
        let what = "no floors between `<!-- floors -->` and `<!-- /floors -->`: write the table";
        found.push(Finding::new(TABLE, 0, what));
    }
    (rows, found)
}

/// The normal dependencies that do not point down.
fn upward(name: &str, row: &Row, edges: &Edges, rows: &BTreeMap<String, Row>) -> Vec<Finding> {
    let listed = edges.normal.iter().filter_map(|to| Some((to, rows.get(to)?)));
    let wrong = listed.filter(|(_, to)| match (row.floor, to.floor) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(from), Some(to)) => to >= from,
    });
    let shown = |floor: Option<u32>| floor.map_or("outside".into(), |n| format!("on floor {n}"));
    wrong
        .map(|(to, to_row)| {
            let what = format!(
                "{name} ({}) depends on {to} ({}): dependencies point down, so move what both \
                 need to a lower crate",
                shown(row.floor),
                shown(to_row.floor)
            );
            Finding::new(&manifest(name), 0, what)
        })
        .collect()
}

fn graph(metadata: &Value) -> BTreeMap<String, Edges> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let mut graph: BTreeMap<String, Edges> =
        packages.iter().map(|package| (short(&package["name"]), Edges::default())).collect();
    for package in &packages {
        let mut edges = Edges::default();
        for dependency in list(&package["dependencies"]) {
            let to = short(&dependency["name"]);
            // A dependency with a path is one of ours, whatever it is called elsewhere.
            if !graph.contains_key(&to) || dependency["path"].is_null() {
                continue;
            }
            let dev = dependency["kind"].as_str() == Some("dev");
            if dev { &mut edges.dev } else { &mut edges.normal }.insert(to);
        }
        graph.insert(short(&package["name"]), edges);
    }
    graph
}

/// Whether a chain of normal dependencies leads from one crate to the other.
fn reaches(graph: &BTreeMap<String, Edges>, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(name) = next.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            next.extend(graph.get(name).iter().flat_map(|edges| &edges.normal).map(String::as_str));
        }
    }
    false
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix("monolith-").unwrap_or(name).to_owned()
}

fn manifest(name: &str) -> String {
    if name == "xtask" { "xtask/Cargo.toml".into() } else { format!("crates/{name}/Cargo.toml") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GOOD: &str = "# Title\n| 9 | `elsewhere` | not in the table |\n<!-- floors -->\n\n\
        | floor | crate | job |\n|---|---|---|\n| 0 | `low` | a |\n| 1 | `high` | b |\n\
        | outside | `xtask` | c |\n\n<!-- /floors -->\n| 9 | `after` | |\n";

    /// Crates as `name: dependencies`, a dev-dependency marked by `?`.
    fn metadata(crates: &[(&str, &[&str])]) -> Value {
        let package = |(name, dependencies): &(&str, &[&str])| {
            let dependency = |to: &&str| {
                let kind = if to.ends_with('?') { json!("dev") } else { Value::Null };
                json!({ "name": to.trim_end_matches('?'), "kind": kind, "path": "here" })
            };
            let dependencies: Vec<Value> = dependencies.iter().map(dependency).collect();
            json!({ "name": name, "dependencies": dependencies })
        };
        json!({ "packages": crates.iter().map(package).collect::<Vec<_>>() })
    }

    fn found(table: &str, crates: &[(&str, &[&str])]) -> Vec<String> {
        check(table, &metadata(crates)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        let crates: [(&str, &[&str]); 3] = [
            ("monolith-low", &["serde"]),
            ("high", &["monolith-low", "monolith-low?"]),
            ("xtask", &["high"]),
        ];
        assert_eq!(found(GOOD, &crates), [""; 0]);
    }

    #[test]
    fn dependencies_that_point_up_or_outside_are_named() {
        let crates: [(&str, &[&str]); 3] =
            [("monolith-low", &["high"]), ("high", &["xtask"]), ("xtask", &[])];
        let found = found(GOOD, &crates);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/high/Cargo.toml: high (on floor 1) depends on xtask"));
        assert!(found[1].starts_with("crates/low/Cargo.toml: low (on floor 0) depends on high"));
    }

    #[test]
    fn a_dependency_on_the_same_floor_is_named() {
        let table = GOOD.replace("| 1 |", "| 0 |");
        let crates: [(&str, &[&str]); 3] = [("low", &[]), ("high", &["low"]), ("xtask", &[])];
        assert_eq!(found(&table, &crates).len(), 1);
    }

    #[test]
    fn tests_may_depend_upwards_but_not_in_a_cycle() {
        let apart: [(&str, &[&str]); 3] = [("low", &["high?"]), ("high", &[]), ("xtask", &[])];
        assert_eq!(found(GOOD, &apart), [""; 0]);
        let cycle: [(&str, &[&str]); 3] = [("low", &["high?"]), ("high", &["low"]), ("xtask", &[])];
        let found = found(GOOD, &cycle);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("the tests of low depend on high"), "{found:?}");
    }

    #[test]
    fn rows_and_crates_match_one_to_one() {
        let found = found(GOOD, &[("low", &[]), ("new", &[]), ("xtask", &[])]);
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md:8: there is no crate high: take its row out",
                "ARCHITECTURE.md: the floors lack the crate new: add its row",
            ]
        );
    }

    #[test]
    fn a_broken_table_is_named() {
        let crates: [(&str, &[&str]); 1] = [("low", &[])];
        assert!(found("no table", &crates)[0].contains("write the table"));
        let table = "<!-- floors -->\n| ground | `low` | |\n| 0 | `low` | |\n| 1 | `low` | |\n";
        let found = found(table, &crates);
        assert_eq!(
            found[0],
            "ARCHITECTURE.md:2: `ground` is no floor: write a number, or `outside`"
        );
        assert_eq!(found[1], "ARCHITECTURE.md:4: `low` has two rows: keep one");
    }
}
