//! Every test that needs no GPU, step by step.

use anyhow::Result;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::repo::Repo;
use crate::{command, install, kernels, page, say, tidy, traces};

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Skip the slow steps: the model check, the page's build and the browser test.
    #[arg(long)]
    quick: bool,
    /// List the steps, and run none.
    #[arg(long)]
    list: bool,
    /// Continue after a step that fails.
    #[arg(long)]
    keep_going: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    slow: bool,
    run: fn(&Repo) -> Result<Outcome>,
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    /// Passed, but these tests were ignored: this machine lacks what they need.
    Ignored(Vec<String>),
    Failed,
    Skipped,
    NotRun,
}

/// In order of speed: the fastest step comes first.
const STEPS: [Step; 13] = [
    step("format", "cargo fmt --all --check", format),
    step("tidy", "floors, limits, generated files, forbidden text", |repo| passed(tidy::run(repo))),
    step("clippy", "cargo clippy --workspace --all-targets, warnings denied", clippy),
    step("kernels", "every GPU kernel compiles, and its machine code is checked", gpu_kernels),
    step("tests", "cargo test --workspace; ignored tests are listed in the summary", tests),
    step("traces", "Perfetto's protobufs and speedscope's importer read the test traces", viewers),
    slow(
        "model check",
        "the hand-off protocol under loom's schedules: all for two workers, 60,000 for three",
        model_check,
    ),
    step("python", "every Python file compiles, and the tools' tests pass", python),
    step("page packages", "Node and the npm packages, installed if missing", page_packages),
    step("page check", "npm run check", |repo| npm(repo, "check")),
    step("page tests", "npm test", |repo| npm(repo, "test")),
    slow("page build", "npm run build", |repo| passed(page::build(repo, &Node::ensure(repo)?))),
    slow("browser test", "npm run test:browser, with Chromium", browser),
];

const fn step(name: &'static str, about: &'static str, run: fn(&Repo) -> Result<Outcome>) -> Step {
    Step { name, about, slow: false, run }
}

const fn slow(name: &'static str, about: &'static str, run: fn(&Repo) -> Result<Outcome>) -> Step {
    Step { name, about, slow: true, run }
}

/// Runs the steps; the last line says how many passed and failed.
pub fn run(repo: &Repo, options: &Options) -> ExitCode {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| !(options.quick && step.slow)).collect();
    if options.list {
        for step in steps {
            say::line(format_args!("{:<15}{}", step.name, step.about));
        }
        return ExitCode::SUCCESS;
    }
    let results = run_steps(repo, &steps, options.keep_going);
    say::heading("summary");
    for (step, (outcome, took)) in steps.iter().zip(&results) {
        say::line(format_args!(
            "{:<15}{:<9}{:>7.1} s",
            step.name,
            outcome.word(),
            took.as_secs_f64()
        ));
    }
    for name in results.iter().flat_map(|(outcome, _)| outcome.ignored()) {
        say::line(format_args!("ignored: {name}"));
    }
    let outcomes: Vec<&Outcome> = results.iter().map(|(outcome, _)| outcome).collect();
    say::line(summary(&outcomes));
    if outcomes.contains(&&Outcome::Failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run_steps(repo: &Repo, steps: &[&Step], keep_going: bool) -> Vec<(Outcome, Duration)> {
    let (mut results, mut stopped) = (Vec::new(), false);
    for step in steps {
        if stopped {
            results.push((Outcome::NotRun, Duration::ZERO));
            continue;
        }
        say::heading(format_args!("{}: {}", step.name, step.about));
        let begun = Instant::now();
        let outcome = (step.run)(repo).unwrap_or_else(|error| {
            say::line(format_args!("{} failed: {error:#}", step.name));
            Outcome::Failed
        });
        stopped = outcome == Outcome::Failed && !keep_going;
        results.push((outcome, begun.elapsed()));
    }
    results
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Passed | Outcome::Ignored(_) => "passed",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
            Outcome::NotRun => "not run",
        }
    }

    /// Tests of the step that were ignored.
    fn ignored(&self) -> &[String] {
        if let Outcome::Ignored(names) = self { names } else { &[] }
    }
}

/// `steps: 9 passed, 0 failed`, then the steps that did not run and the ignored tests, if any.
fn summary(outcomes: &[&Outcome]) -> String {
    let count = |word| outcomes.iter().filter(|outcome| outcome.word() == word).count();
    let mut line = format!("steps: {} passed, {} failed", count("passed"), count("failed"));
    let ignored: usize = outcomes.iter().map(|outcome| outcome.ignored().len()).sum();
    let (skipped, not_run) = (count("skipped"), count("not run"));
    for (count, what) in [(skipped, "skipped"), (not_run, "not run"), (ignored, "tests ignored")] {
        if count > 0 {
            line += &format!(", {count} {what}");
        }
    }
    line
}

fn passed(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Passed)
}

fn cargo(repo: &Repo, args: &[&str]) -> Result<Outcome> {
    passed(command::run(repo.cargo().args(args)))
}

fn tests(repo: &Repo) -> Result<Outcome> {
    let mut ignored = Vec::new();
    command::run_seen(repo.cargo().args(["test", "--workspace"]), |line| {
        ignored.extend(ignored_test(line).map(str::to_owned));
    })?;
    Ok(if ignored.is_empty() { Outcome::Passed } else { Outcome::Ignored(ignored) })
}

/// The name on a line like `test a_name ... ignored`, with or without a reason at the end.
fn ignored_test(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    result.starts_with("ignored").then_some(name.trim_end())
}

fn format(repo: &Repo) -> Result<Outcome> {
    install::rust_component(repo.cargo().arg("fmt"), "rustfmt")?;
    cargo(repo, &["fmt", "--all", "--check"])
}

fn clippy(repo: &Repo) -> Result<Outcome> {
    install::rust_component(repo.cargo().arg("clippy"), "clippy")?;
    cargo(repo, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn gpu_kernels(repo: &Repo) -> Result<Outcome> {
    let Some(tools) = needed(kernels::tools(repo))? else { return Ok(Outcome::Skipped) };
    passed(kernels::run(repo, &tools))
}

fn viewers(repo: &Repo) -> Result<Outcome> {
    let Some(protobufs) = needed(traces::protobufs(repo))? else { return Ok(Outcome::Skipped) };
    passed(traces::check(repo, &protobufs))
}

fn model_check(repo: &Repo) -> Result<Outcome> {
    let package = ["test", "--package", "monolith-handoff", "--features", "loom"];
    cargo(repo, &[&package[..], &["--release", "--test", "model"]].concat())
}

/// What a step needs. If it is missing, the step fails in CI; elsewhere it is skipped, with a
/// message.
fn needed<T>(what: Result<T>) -> Result<Option<T>> {
    match what {
        Ok(found) => Ok(Some(found)),
        Err(error) if std::env::var_os("CI").is_some_and(|ci| !ci.is_empty()) => Err(error),
        Err(error) => {
            say::line(format_args!("SKIPPED: {error:#}"));
            Ok(None)
        }
    }
}

fn python(repo: &Repo) -> Result<Outcome> {
    let files: Vec<String> =
        repo.tracked()?.into_iter().filter(|path| path.ends_with(".py")).collect();
    if files.is_empty() {
        return Ok(Outcome::Passed);
    }
    let Some(python) = needed(install::python())? else { return Ok(Outcome::Skipped) };
    let run = |arguments: &[&str]| {
        let mut python = Command::new(&python);
        python.current_dir(&repo.root).env("PYTHONPYCACHEPREFIX", repo.target.join("pycache"));
        command::run(python.args(["-m"]).args(arguments))
    };
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    run(&[&["py_compile"], &names[..]].concat())?;
    passed(run(&["unittest", "discover", "-s", "tools"]))
}

fn page_packages(repo: &Repo) -> Result<Outcome> {
    passed(page::install(repo, &Node::ensure(repo)?))
}

fn npm(repo: &Repo, script: &str) -> Result<Outcome> {
    passed(command::run(Node::ensure(repo)?.npm(repo).args(["run", script])))
}

fn browser(repo: &Repo) -> Result<Outcome> {
    let Some(chromium) = needed(install::chromium())? else { return Ok(Outcome::Skipped) };
    let mut npm = Node::ensure(repo)?.npm(repo);
    passed(command::run(npm.args(["run", "test:browser"]).env("CHROMIUM", chromium)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Failed, Ignored, NotRun, Passed, Skipped};

    const FAILING: [Step; 3] = [
        step("a", "passes", |_| Ok(Passed)),
        step("b", "fails", |_| Err(anyhow::anyhow!("injected"))),
        step("c", "is skipped", |_| Ok(Skipped)),
    ];

    fn outcomes(keep_going: bool) -> Vec<Outcome> {
        let repo =
            Repo { root: ".".into(), target: "target".into(), metadata: serde_json::Value::Null };
        let steps: Vec<&Step> = FAILING.iter().collect();
        run_steps(&repo, &steps, keep_going).into_iter().map(|(outcome, _)| outcome).collect()
    }

    #[test]
    fn the_first_failure_stops_unless_told_to_keep_going() {
        assert_eq!(outcomes(false), [Passed, Failed, NotRun]);
        assert_eq!(outcomes(true), [Passed, Failed, Skipped]);
    }

    #[test]
    fn the_summary_counts_every_outcome() {
        assert_eq!(summary(&[&Passed, &Passed]), "steps: 2 passed, 0 failed");
        assert_eq!(
            summary(&[&Passed, &Skipped, &Failed, &NotRun]),
            "steps: 1 passed, 1 failed, 1 skipped, 1 not run"
        );
        let ignored = Ignored(vec!["a".into(), "b".into()]);
        assert_eq!(summary(&[&Passed, &ignored]), "steps: 2 passed, 0 failed, 2 tests ignored");
    }

    #[test]
    fn ignored_tests_are_seen_in_both_harnesses_output() {
        for (line, name) in [
            ("test a::b ... ignored", Some("a::b")),
            ("test a ... ignored, needs a network", Some("a")),
            ("test src/lib.rs - f (line 3) ... ignored", Some("src/lib.rs - f (line 3)")),
            ("test a_longer_name    ... ignored", Some("a_longer_name")),
            ("test a ... ok", None),
            ("test result: ok. 1 passed; 0 failed; 3 ignored; 0 measured", None),
            ("ignored: the tests that need a GPU", None),
        ] {
            assert_eq!(ignored_test(line), name, "{line}");
        }
    }

    #[test]
    fn a_commands_lines_are_seen_and_its_failure_is_told() {
        command::in_time(lines_are_seen);
    }

    fn lines_are_seen() {
        let mut lines = Vec::new();
        let mut see = |line: &str| lines.push(line.to_owned());
        command::run_seen(Command::new("sh").args(["-c", "echo a; printf b"]), &mut see).unwrap();
        let failed = command::run_seen(Command::new("sh").args(["-c", "echo c; exit 3"]), &mut see);
        assert!(failed.unwrap_err().to_string().contains("exit status: 3"));
        assert_eq!(lines, ["a", "b", "c"]);
    }
}
