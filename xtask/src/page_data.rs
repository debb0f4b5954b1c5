//! `cargo xtask page-data`: every file that the page reads, from `results/` alone.
//!
//! The X-rays, each with its critical path; their list; where each token's time went; the tables;
//! the token streams that race.
//! They are in `web/public/data`, which is generated, ignored by git, and part of every build of
//! the page. The page's side is `web/src/trace/list.ts`, `web/src/results` and `web/src/race`.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo::{Repo, read};
use crate::{command, say};

const LIST_SCHEMA: &str = "monolith-traces/2";
const BUDGET_SCHEMA: &str = "monolith-budget/1";
const LIST: &str = "traces.json";
const BUDGET: &str = "budget.json";
const RESULTS: &str = "results.json";
/// Token streams of one run side by side: `monolith report --race` says which may race.
const RACE: &str = "race.json";
/// A trace recorded by the demo: the page shows it first.
const RECORDED: &str = "trace.json.gz";
const RECORDED_TITLE: &str = "recorded on this machine";
const XRAY: &str = "xray-";
const ENDING: &str = ".json.gz";
/// Most bytes of a trace, and of all data together, gzipped: what a visitor loads.
const TRACE_BYTES_MAX: u64 = 400_000;
const DATA_BYTES_MAX: u64 = 5_000_000;
/// Most bytes of all races, unpacked: a third of that when gzipped.
const RACE_BYTES_MAX: usize = 900_000;
/// The page refuses longer names (web/src/trace/list.ts).
const NAME_CHARS_MAX: usize = 120;

/// A trace for the page: from where, to which name, and what it is of.
#[derive(Debug, PartialEq)]
struct Listed {
    from: PathBuf,
    file: String,
    title: String,
    /// Null for the trace recorded by the demo.
    of: Option<Of>,
}

/// What a committed trace is of.
#[derive(Clone, Debug, PartialEq)]
struct Of {
    run: String,
    gpu: String,
    variant: String,
    position: u32,
}

/// Builds the program and refills `web/public/data`.
pub fn run(repo: &Repo) -> Result<()> {
    command::run(repo.cargo().args(["build", "--release", "--package", "monolith"]))?;
    fill(repo, None)
}

/// Refills `web/public/data`, with the trace that the demo recorded, if there is one. The program
/// is built.
pub fn fill(repo: &Repo, recorded: Option<&Path>) -> Result<()> {
    let data = repo.web().join("public/data");
    let results = repo.root.join("results");
    let program = Program(repo.target.join("release/monolith"));
    let count = fill_with(&data, recorded, &results, &program)?;
    let tables = program.output(&["report", "--json", "--results"], &results)?;
    write(&data.join(RESULTS), &tables)?;
    let races = program.output(&["report", "--race", "--results"], &results)?;
    write(&data.join(RACE), checked_races(&races)?)?;
    say::line(format_args!("{}: {count} traces to choose from", data.display()));
    Ok(())
}

/// What reads and writes traces: the program, or a test's stand-in.
trait Traces {
    /// Writes the trace as the page reads it, with its critical path.
    fn export(&self, from: &Path, to: &Path) -> Result<()>;
    /// The analysis of a trace.
    fn analysis(&self, of: &Path) -> Result<Value>;
}

struct Program(PathBuf);

impl Program {
    fn output(&self, words: &[&str], path: &Path) -> Result<String> {
        command::output(Command::new(&self.0).args(words).arg(path))
    }
}

impl Traces for Program {
    fn export(&self, from: &Path, to: &Path) -> Result<()> {
        let mut command = Command::new(&self.0);
        command.args(["xray", "export", "--to", "page"]).arg(from).arg("--out").arg(to);
        command::output(&mut command).map(drop)
    }

    fn analysis(&self, of: &Path) -> Result<Value> {
        let text = self.output(&["xray", "analyze", "--json"], of)?;
        serde_json::from_str(&text).context("`monolith xray analyze --json` wrote no JSON")
    }
}

/// Refills the folder and returns the number of traces in it.
fn fill_with(
    data: &Path,
    recorded: Option<&Path>,
    results: &Path,
    program: &dyn Traces,
) -> Result<usize> {
    let mut traces: Vec<Listed> = recorded
        .map(|from| Listed {
            from: from.into(),
            file: RECORDED.into(),
            title: RECORDED_TITLE.into(),
            of: None,
        })
        .into_iter()
        .collect();
    traces.extend(committed(results)?);
    if data.exists() {
        std::fs::remove_dir_all(data)
            .with_context(|| format!("could not remove {}", data.display()))?;
    }
    std::fs::create_dir_all(data)
        .with_context(|| format!("could not create {}", data.display()))?;
    let mut budgets = Vec::new();
    let mut bytes = 0;
    for trace in &traces {
        let to = data.join(&trace.file);
        program.export(&trace.from, &to)?;
        bytes += checked_size(&to, bytes)?;
        budgets.push(budget(trace, &program.analysis(&to)?)?);
    }
    write(&data.join(LIST), &list_of(&traces))?;
    write(&data.join(BUDGET), &line(&json!({"schema": BUDGET_SCHEMA, "tokens": budgets})))?;
    Ok(traces.len())
}

/// The size of a trace; refuses one that is too large, by itself or with those before it.
fn checked_size(trace: &Path, before: u64) -> Result<u64> {
    let name = trace.display();
    let size = std::fs::metadata(trace).with_context(|| format!("could not read {name}"))?.len();
    ensure!(size <= TRACE_BYTES_MAX, "{name}: {size} bytes, at most {TRACE_BYTES_MAX} are allowed");
    ensure!(
        before + size <= DATA_BYTES_MAX,
        "the traces up to {name} take {} bytes, at most {DATA_BYTES_MAX} are allowed",
        before + size
    );
    Ok(size)
}

/// Refuses races that are too large.
fn checked_races(races: &str) -> Result<&str> {
    let size = races.len();
    ensure!(size <= RACE_BYTES_MAX, "{RACE}: {size} bytes, at most {RACE_BYTES_MAX} are allowed");
    Ok(races)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

/// Where a token's time went: the parts of the analysis that the page compares versions by.
fn budget(trace: &Listed, analysis: &Value) -> Result<Value> {
    let part = |pointer: &str| {
        let part = analysis.pointer(pointer).cloned();
        part.with_context(|| format!("the analysis of {} has no {pointer}", trace.file))
    };
    Ok(json!({
        "file": trace.file,
        "title": trace.title,
        "of": trace.of.as_ref().map(of_json),
        "step": part("/step")?,
        "token_ns": part("/token_ns")?,
        "totals": part("/path/totals")?,
        "phases": part("/path/phases")?,
        "handoff": part("/handoff")?,
    }))
}

fn of_json(of: &Of) -> Value {
    let Of { run, gpu, variant, position } = of;
    json!({"run": run, "gpu": gpu, "variant": variant, "position": position})
}

fn list_of(traces: &[Listed]) -> String {
    let entry = |trace: &Listed| {
        json!({
            "file": trace.file,
            "title": trace.title,
            "of": trace.of.as_ref().map(of_json),
        })
    };
    let entries: Vec<Value> = traces.iter().map(entry).collect();
    line(&json!({"schema": LIST_SCHEMA, "traces": entries}))
}

/// The X-rays of each variant on each GPU, from the newest run that has one, as
/// `results/index.json` orders the runs.
fn committed(results: &Path) -> Result<Vec<Listed>> {
    let mut traces = Vec::new();
    let mut seen: Vec<(String, String)> = Vec::new();
    for (folder, gpu) in runs(results)?.into_iter().rev() {
        let mut xrays = xrays(&results.join(&folder), &folder, &gpu)?;
        xrays.retain(|(variant, _)| !seen.contains(&(gpu.clone(), variant.clone())));
        for (variant, listed) in xrays {
            seen.push((gpu.clone(), variant));
            traces.push(listed);
        }
    }
    Ok(traces)
}

/// Folder and GPU of every run, the newest last.
fn runs(results: &Path) -> Result<Vec<(String, String)>> {
    let path = results.join("index.json");
    let index: Value = serde_json::from_str(&read(&path)?)
        .with_context(|| format!("{} is not JSON", path.display()))?;
    let runs = index["runs"].as_array();
    let runs = runs.with_context(|| format!("{} has no list `runs`", path.display()))?;
    let text = |run: &Value, key: &str| {
        let text = run[key].as_str().map(String::from);
        text.with_context(|| format!("{}: a run has no {key}", path.display()))
    };
    runs.iter().map(|run| Ok((text(run, "folder")?, text(run, "gpu")?))).collect()
}

/// The X-rays in a run's folder, each with its variant: in order of that and then of position.
fn xrays(at: &Path, folder: &str, gpu: &str) -> Result<Vec<(String, Listed)>> {
    ensure!(is_safe(folder), "results/index.json: the folder {folder:?} is not a plain name");
    let entries = std::fs::read_dir(at).with_context(|| format!("could not read {}", at.display()));
    let mut found = Vec::new();
    for entry in entries? {
        let entry = entry.with_context(|| format!("could not read {}", at.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(what) = name.strip_prefix(XRAY).and_then(|rest| rest.strip_suffix(ENDING)) else {
            continue;
        };
        let file = format!("{folder}-{name}");
        if !is_safe(&file) {
            bail!(
                "{}: the page takes only letters, digits, `.`, `_` and `-` in a name, and at \
                 most {NAME_CHARS_MAX} characters with the folder's name: rename it",
                entry.path().display()
            );
        }
        let (order, what) = described(what);
        let (variant, position) = order.clone();
        let of = Of { run: folder.into(), gpu: gpu.into(), variant, position };
        let title = format!("{what}, {gpu}");
        found.push((order, Listed { from: entry.path(), file, title, of: Some(of) }));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found.into_iter().map(|((variant, _), listed)| (variant, listed)).collect())
}

/// Sort key and title of a name like `bf16-flag-16`; without a position, the name is the title.
fn described(name: &str) -> ((String, u32), String) {
    let numbered = name.rsplit_once('-');
    match numbered.and_then(|(variant, at)| Some((variant, at.parse::<u32>().ok()?))) {
        Some((variant, position)) => {
            ((variant.into(), position), format!("{variant}, position {position}"))
        }
        None => ((name.into(), 0), name.into()),
    }
}

/// Whether a name stays in its folder and needs no escaping in a URL.
fn is_safe(name: &str) -> bool {
    name.len() <= NAME_CHARS_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A results folder with these runs (folder, GPU), the newest last, and these files.
    fn results(runs: &[(&str, &str)], files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let run = |(folder, gpu): &(&str, &str)| json!({"folder": folder, "gpu": gpu});
        let runs: Vec<Value> = runs.iter().map(run).collect();
        fs::write(root.path().join("index.json"), json!({ "runs": runs }).to_string()).unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        root
    }

    #[test]
    fn a_variant_that_the_newest_run_lacks_is_of_an_older_one() {
        let results = results(
            &[("r1", "A"), ("r2", "A"), ("r3", "B"), ("r4", "A")],
            &[
                "r1/xray-fp8-flag-16.json.gz",
                "r2/xray-fp8-flag-16.json.gz",
                "r2/xray-bf16-flag-16.json.gz",
                "r3/xray-bf16-flag-16.json.gz",
                "r4/xray-bf16-flag-16.json.gz",
            ],
        );
        let listed = committed(results.path()).unwrap();
        let files: Vec<&str> = listed.iter().map(|trace| &*trace.file).collect();
        let of = |run, variant| format!("{run}-xray-{variant}-flag-16.json.gz");
        assert_eq!(files, [of("r4", "bf16"), of("r3", "bf16"), of("r2", "fp8")]);
    }

    /// Copies traces, and analyzes each alike.
    struct Copies;

    impl Traces for Copies {
        fn export(&self, from: &Path, to: &Path) -> Result<()> {
            fs::copy(from, to).map(drop).context("copy")
        }

        fn analysis(&self, _: &Path) -> Result<Value> {
            Ok(json!({
                "step": "model, variant on device, position 16",
                "token_ns": 9,
                "path": {"totals": {"compute_ns": 9}, "phases": [], "jumps": 0},
                "handoff": null,
            }))
        }
    }

    #[test]
    fn the_list_holds_the_newest_xrays_of_each_gpu_and_the_recorded_one_first() {
        let results = results(
            &[("r1", "A"), ("r2", "B 1"), ("r3", "A"), ("r4", "A")],
            &[
                "r1/xray-bf16-flag-16.json.gz",
                "r2/xray-whole.json.gz",
                "r3/xray-fp8-flag-2048.json.gz",
                "r3/xray-fp8-flag-16.json.gz",
                "r3/xray-bf16-flag-2048.json.gz",
                "r3/reference.json",
                "r3/gate-bf16-flag-16.json.gz",
                "r4/rows.jsonl",
            ],
        );
        let recorded = results.path().join("mine");
        fs::write(&recorded, "just now").unwrap();
        let data = results.path().join("public/data");
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("stale.json.gz"), "old").unwrap();
        let count = fill_with(&data, Some(&recorded), results.path(), &Copies).unwrap();
        assert_eq!(count, 5);
        // The page's tests read this very text: web/src/trace/list.test.ts.
        let expected = concat!(
            r#"{"schema":"monolith-traces/2","traces":["#,
            r#"{"file":"trace.json.gz","of":null,"title":"recorded on this machine"},"#,
            r#"{"file":"r3-xray-bf16-flag-2048.json.gz","of":{"gpu":"A","position":2048,"#,
            r#""run":"r3","variant":"bf16-flag"},"title":"bf16-flag, position 2048, A"},"#,
            r#"{"file":"r3-xray-fp8-flag-16.json.gz","of":{"gpu":"A","position":16,"#,
            r#""run":"r3","variant":"fp8-flag"},"title":"fp8-flag, position 16, A"},"#,
            r#"{"file":"r3-xray-fp8-flag-2048.json.gz","of":{"gpu":"A","position":2048,"#,
            r#""run":"r3","variant":"fp8-flag"},"title":"fp8-flag, position 2048, A"},"#,
            r#"{"file":"r2-xray-whole.json.gz","of":{"gpu":"B 1","position":0,"#,
            r#""run":"r2","variant":"whole"},"title":"whole, B 1"}]}"#,
            "\n"
        );
        assert_eq!(read(&data.join(LIST)).unwrap(), expected);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 7);
        assert_eq!(read(&data.join(RECORDED)).unwrap(), "just now");
        let copied = read(&data.join("r3-xray-fp8-flag-16.json.gz")).unwrap();
        assert_eq!(copied, "r3/xray-fp8-flag-16.json.gz");
        let budget: Value = serde_json::from_str(&read(&data.join(BUDGET)).unwrap()).unwrap();
        assert_eq!(budget["tokens"][1]["of"]["variant"], "bf16-flag");
        assert_eq!(budget["tokens"][1]["totals"], json!({"compute_ns": 9}));
        assert_eq!(fill_with(&data, None, results.path(), &Copies).unwrap(), 4);
        assert!(!data.join(RECORDED).exists());
    }

    #[test]
    fn a_trace_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("a.json.gz");
        fs::write(&trace, vec![0; TRACE_BYTES_MAX as usize]).unwrap();
        assert_eq!(checked_size(&trace, 0).unwrap(), TRACE_BYTES_MAX);
        let error = checked_size(&trace, DATA_BYTES_MAX - 1).unwrap_err().to_string();
        assert!(error.contains("take 5399999 bytes"), "{error}");
        fs::write(&trace, vec![0; TRACE_BYTES_MAX as usize + 1]).unwrap();
        let error = checked_size(&trace, 0).unwrap_err().to_string();
        assert!(error.contains("400001 bytes, at most 400000"), "{error}");
    }

    #[test]
    fn races_that_are_too_large_are_refused() {
        let most = "r".repeat(RACE_BYTES_MAX);
        assert_eq!(checked_races(&most).unwrap(), most);
        let error = checked_races(&(most + "r")).unwrap_err().to_string();
        assert_eq!(error, "race.json: 900001 bytes, at most 900000 are allowed");
    }

    #[test]
    fn an_analysis_that_lacks_a_part_is_refused() {
        let of = None;
        let trace = Listed { from: "f".into(), file: "f".into(), title: "t".into(), of };
        let error = budget(&trace, &json!({"step": "s", "token_ns": 1})).unwrap_err().to_string();
        assert_eq!(error, "the analysis of f has no /path/totals");
    }

    #[test]
    fn what_is_committed_is_listed_under_safe_names() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let listed = committed(&results).unwrap();
        for (index, trace) in listed.iter().enumerate() {
            assert!(trace.from.is_file() && is_safe(&trace.file), "{trace:?}");
            assert!(listed[..index].iter().all(|other| other.file != trace.file), "{trace:?}");
        }
        let h200: Vec<&str> = listed
            .iter()
            .filter(|trace| trace.title.ends_with(", NVIDIA H200"))
            .map(|trace| trace.title.split(',').next().unwrap_or_default())
            .collect();
        assert!(h200.contains(&"bf16-flag") && h200.contains(&"fp8-flag"), "{listed:?}");
    }

    #[test]
    fn names_that_leave_the_folder_or_need_quoting_are_refused() {
        for name in ["a", "2026-11-29-h200-02", "a_b.json.gz"] {
            assert!(is_safe(name), "{name}");
        }
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for name in ["", "..", ".a", "-a", "a/b", "a\\b", "a b", "a%2fb", "a#b", "é", &long] {
            assert!(!is_safe(name), "{name}");
        }
        let refused = |runs: &[(&str, &str)], files: &[&str]| {
            let results = results(runs, files);
            format!("{:#}", committed(results.path()).unwrap_err())
        };
        let error = refused(&[("r1", "A")], &["r1/xray-a b.json.gz"]);
        assert!(error.contains("xray-a b.json.gz") && error.contains("rename it"), "{error}");
        let error = refused(&[("../r1", "A")], &[]);
        assert!(error.contains(r#"the folder "../r1" is not a plain name"#), "{error}");
        let error = refused(&[("r1", "A")], &[]);
        assert!(error.contains("could not read"), "{error}");
    }

    #[test]
    fn an_index_that_is_no_list_of_runs_is_refused() {
        let results = results(&[], &[]);
        assert_eq!(committed(results.path()).unwrap(), []);
        for (index, words) in [
            ("", "is not JSON"),
            ("[]", "has no list `runs`"),
            (r#"{"runs":[{"folder":"a"}]}"#, "a run has no gpu"),
        ] {
            fs::write(results.path().join("index.json"), index).unwrap();
            let error = format!("{:#}", committed(results.path()).unwrap_err());
            assert!(error.contains(words), "{index}: {error}");
        }
    }
}
