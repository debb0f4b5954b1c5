//! The README's tables, from the run records.

use anyhow::{Context, Result, bail};

use crate::repo::{Repo, read};
use crate::{command, say};

/// What to do with the tables.
#[derive(clap::Args)]
pub struct Options {
    /// Write nothing; fail if the README's tables are out of date.
    #[arg(long)]
    check: bool,
}

const README: &str = "README.md";
const BEGIN: &str = "<!-- results -->";
const END: &str = "<!-- /results -->";

/// Puts what `monolith report` prints between the README's markers.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let path = repo.root.join(README);
    let readme = read(&path)?;
    if parts(&readme)?.is_none() {
        say::line(format_args!("report: {README} has no {BEGIN}: nothing to write"));
        return Ok(());
    }
    let mut cargo = repo.cargo();
    cargo.args(["run", "--quiet", "--package", "monolith"]);
    if repo.target.join("release/monolith").is_file() {
        cargo.arg("--release");
    }
    let tables = command::output(cargo.args(["--", "report", "--results", "results"]))?;
    let wanted = spliced(&readme, &tables)?;
    if wanted == readme {
        say::line(format_args!("report: {README} is up to date"));
        return Ok(());
    }
    if options.check {
        bail!("{README}: the tables are out of date: run `cargo xtask report`");
    }
    std::fs::write(&path, wanted).with_context(|| format!("could not write {README}"))?;
    say::line(format_args!("report: {README} written"));
    Ok(())
}

/// The text before and after the tables, markers included; `None` without markers.
fn parts(readme: &str) -> Result<Option<(&str, &str)>> {
    let Some(begin) = readme.find(BEGIN).map(|at| at + BEGIN.len()) else { return Ok(None) };
    let Some(end) = readme[begin..].find(END).map(|at| at + begin) else {
        bail!("{README} has a line {BEGIN} but no line {END} after it");
    };
    Ok(Some((&readme[..begin], &readme[end..])))
}

/// The README with these tables.
fn spliced(readme: &str, tables: &str) -> Result<String> {
    let (before, after) =
        parts(readme)?.with_context(|| format!("{README} has no lines {BEGIN} and {END}"))?;
    Ok(format!("{before}\n\n{}\n\n{after}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let readme = format!("# a\n{BEGIN}\nold\n{END}\nb {BEGIN}\n");
        let once = spliced(&readme, "| t |\n\n").unwrap();
        assert_eq!(once, format!("# a\n{BEGIN}\n\n| t |\n\n{END}\nb {BEGIN}\n"));
        assert_eq!(spliced(&once, "| t |").unwrap(), once);
        let readme = format!("before\n\n{BEGIN}\nold\n{END}\n\nafter\n");
        let once = spliced(&readme, "new\n").unwrap();
        assert_eq!(once, format!("before\n\n{BEGIN}\n\nnew\n\n{END}\n\nafter\n"));
        assert_eq!(spliced(&once, "new\n").unwrap(), once);
        let error = spliced("no markers", "new").unwrap_err().to_string();
        assert!(error.contains(BEGIN) && error.contains(END), "{error}");
    }

    #[test]
    fn markers_are_both_there_or_neither() {
        assert!(parts("# a\n").unwrap().is_none());
        let error = parts(&format!("{END}\n{BEGIN}\n")).unwrap_err().to_string();
        assert!(error.contains("no line <!-- /results --> after it"), "{error}");
    }
}
