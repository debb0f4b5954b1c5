//! Running other programs.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::say;

/// The command as a person would type it.
pub fn shown(command: &Command) -> String {
    let program = command.get_program();
    // Cargo passes its full path; a person would type its name.
    let cargo = Path::new(program).file_name().filter(|name| *name == "cargo");
    let mut words = vec![word(cargo.unwrap_or(program))];
    words.extend(command.get_args().map(word));
    let words = words.join(" ");
    match command.get_current_dir().and_then(Path::file_name) {
        Some(folder) if folder == "web" => format!("(cd web && {words})"),
        _ => words,
    }
}

fn word(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%<>~".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Announces the command, runs it on this terminal, and fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    say::line(format_args!("$ {shown}"));
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("could not start `{shown}`: is it installed?"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); its own output above says why");
    }
    Ok(())
}

/// [`run`], and hands every line of the command's standard output to `seen` as well.
pub fn run_seen(command: &mut Command, mut seen: impl FnMut(&str)) -> Result<()> {
    let shown = shown(command);
    say::line(format_args!("$ {shown}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start `{shown}`: is it installed?"))?;
    let mut output = BufReader::new(child.stdout.take().context("its output is piped")?);
    // A test may print bytes that are not text.
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        say::line(text);
        seen(text);
        line.clear();
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); its own output above says why");
    }
    Ok(())
}

/// Runs the command quietly and returns what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start `{shown}`: is it installed?"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, told.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` wrote bytes, not text"))
}

/// Whether the command starts and succeeds; discards its output.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a test that waits for a child process, and fails if it takes more than a minute.
#[cfg(test)]
pub fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(std::time::Duration::from_secs(60)).expect("the test ends without a panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("npm");
        command.args(["run", "two words", "it's", ""]).current_dir("some/web");
        assert_eq!(shown(&command), r"(cd web && npm run 'two words' 'it'\''s' '')");
        assert_eq!(shown(Command::new("/some/bin/cargo").arg("fmt")), "cargo fmt");
    }

    #[test]
    fn failures_name_the_command() {
        in_time(failures);
    }

    fn failures() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("`false` failed"), "{error}");
        let error = format!("{:#}", run(&mut Command::new("no-such-program")).unwrap_err());
        assert!(error.contains("could not start `no-such-program`"), "{error}");
        let error = output(Command::new("ls").arg("/no/such/file")).unwrap_err().to_string();
        assert!(error.contains("/no/such/file"), "{error}");
        assert!(!succeeds(&mut Command::new("false")));
        assert!(succeeds(&mut Command::new("true")));
    }
}
