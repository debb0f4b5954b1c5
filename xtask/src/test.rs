//! Every test there is without a GPU, step by step.

use anyhow::Result;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::repo::Repo;
use crate::{command, install, kernels, page, say, tidy, traces};

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Leave out the slow steps: the model check, the page's build and the browser test.
    #[arg(long)]
    quick: bool,
    /// Name the steps, and run none.
    #[arg(long)]
    list: bool,
    /// Go on after a step that fails.
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
    Failed,
    Skipped,
    NotRun,
}

/// In order: what fails fastest comes first.
const STEPS: [Step; 13] = [
    step("format", "cargo fmt --all --check", format),
    step("tidy", "floors, limits, generated files, forbidden text", |repo| passed(tidy::run(repo))),
    step("clippy", "cargo clippy --workspace --all-targets, warnings denied", clippy),
    step("kernels", "every GPU kernel compiles, and its machine code is as wanted", gpu_kernels),
    step("tests", "cargo test --workspace", |repo| cargo(repo, &["test", "--workspace"])),
    step("traces", "the tests' traces, by Perfetto's own protobufs", perfetto),
    slow("model check", "the hand-off protocol under every schedule that loom finds", model_check),
    step("python", "every Python file compiles, and the tools' tests pass", python),
    step("page packages", "Node if need be, npm ci if need be", page_packages),
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
        let outcome = format!("{outcome:?}").to_lowercase();
        say::line(format_args!("{:<15}{outcome:<9}{:>7.1} s", step.name, took.as_secs_f64()));
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

/// `steps: 9 passed, 0 failed`, and what did not run where there is any.
fn summary(outcomes: &[&Outcome]) -> String {
    let count = |which| outcomes.iter().filter(|outcome| ***outcome == which).count();
    let (skipped, not_run) = (count(Outcome::Skipped), count(Outcome::NotRun));
    let mut line =
        format!("steps: {} passed, {} failed", count(Outcome::Passed), count(Outcome::Failed));
    for (count, what) in [(skipped, "skipped"), (not_run, "not run")] {
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

fn perfetto(repo: &Repo) -> Result<Outcome> {
    let Some(protobufs) = needed(traces::protobufs(repo))? else { return Ok(Outcome::Skipped) };
    passed(traces::check(repo, &protobufs))
}

fn model_check(repo: &Repo) -> Result<Outcome> {
    let package = ["test", "--package", "monolith-handoff", "--features", "loom"];
    cargo(repo, &[&package[..], &["--release", "--test", "model"]].concat())
}

/// What a step needs. Without it the step fails in CI, and is skipped aloud elsewhere.
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
    use Outcome::{Failed, NotRun, Passed, Skipped};

    const FAILING: [Step; 3] = [
        step("a", "passes", |_| Ok(Passed)),
        step("b", "fails", |_| Err(anyhow::anyhow!("planted"))),
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
    }
}
