//! Checks whether Nsight Compute can read the hardware's counters, by profiling a small kernel.

use crate::ProbeError;
use crate::report::Counters;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = "ncu";
const METRIC: &str = "sm__cycles_elapsed.max";
const VERSION_PATIENCE: Duration = Duration::from_secs(3);
const PROFILE_PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn probe(child: Option<&[String]>) -> Result<Counters, ProbeError> {
    let Some(child) = child else {
        let why = "no program for Nsight Compute to profile: monolith-probe names itself";
        return Err(ProbeError::Ncu(why.into()));
    };
    let mut version = Command::new(PROGRAM);
    version.arg("--version");
    let version = match finish(version, VERSION_PATIENCE) {
        Ok(ended) => version_in(&ended.text),
        Err(Unfinished::NotFound) => {
            return Ok(without(None, "ncu is not on PATH: install Nsight Compute"));
        }
        Err(unfinished) => return Ok(without(None, &unfinished.describe("ncu --version"))),
    };
    let mut profile = Command::new(PROGRAM);
    // The clocks stay as they are: they are the machine's owner's choice.
    profile.args(["--clock-control", "none", "--metrics", METRIC, "--csv", "--page", "raw"]);
    profile.args(["--kernel-name", "probe_convert", "--launch-count", "1"]).args(child);
    match finish(profile, PROFILE_PATIENCE) {
        Ok(ended) => Ok(judge(version, &ended)),
        Err(unfinished) => Ok(without(version, &unfinished.describe("ncu"))),
    }
}

fn without(ncu: Option<String>, why: &str) -> Counters {
    Counters { work: false, ncu, sm_cycles_elapsed_max: None, why: Some(why.into()) }
}

/// A program's output, of both streams, and whether it succeeded.
struct Ended {
    text: String,
    success: bool,
}

enum Unfinished {
    NotFound,
    NotStarted(std::io::Error),
    TookTooLong(Duration),
}

impl Unfinished {
    fn describe(&self, program: &str) -> String {
        match self {
            Unfinished::NotFound => format!("{program} was not found"),
            Unfinished::NotStarted(error) => format!("{program} did not start: {error}"),
            Unfinished::TookTooLong(patience) => {
                format!("{program} did not finish within {} s", patience.as_secs())
            }
        }
    }
}

/// Runs a program; after the timeout, kills it and its children.
fn finish(mut command: Command, patience: Duration) -> Result<Ended, Unfinished> {
    // In its own process group, so that it can be killed together with its children.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut process = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Unfinished::NotFound,
        _ => Unfinished::NotStarted(error),
    })?;
    let (sender, receiver) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        process.stdout.take().map(|stream| Box::new(stream) as _),
        process.stderr.take().map(|stream| Box::new(stream) as _),
    ];
    for mut stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // Keeps the output that was read before an error.
            let _ = stream.read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    drop(sender);
    let end = Instant::now() + patience;
    while Instant::now() < end {
        match process.try_wait() {
            Ok(Some(status)) => {
                let texts = (0..2).filter_map(|_| receiver.recv_timeout(patience / 4).ok());
                return Ok(Ended { text: texts.collect(), success: status.success() });
            }
            Ok(None) => thread::sleep(POLL),
            Err(error) => return Err(Unfinished::NotStarted(error)),
        }
    }
    let group = format!("-{}", process.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = process.kill();
    let _ = process.wait();
    Err(Unfinished::TookTooLong(patience))
}

fn version_in(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Version "))?;
    Some(line.split_whitespace().next()?.into())
}

/// Reads the metric, or else Nsight Compute's complaint.
fn judge(ncu: Option<String>, ended: &Ended) -> Counters {
    match metric_in(&ended.text) {
        Some(cycles) if cycles > 0.0 && ended.success => {
            Counters { work: true, ncu, sm_cycles_elapsed_max: Some(cycles), why: None }
        }
        _ => without(ncu, &complaint_in(&ended.text)),
    }
}

/// Returns the metric from the raw page's table: a row of names, a row of units, a row of values.
fn metric_in(text: &str) -> Option<f64> {
    let mut lines = text.lines().map(cells);
    let at = lines.find_map(|names| names.iter().position(|name| name == METRIC))?;
    let mut values = lines.filter_map(|cells| cells.get(at)?.replace(',', "").parse().ok());
    values.next()
}

/// Splits a line of comma-separated values, some quoted, into cells.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.trim().chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cells.last_mut().into_iter().for_each(|cell| cell.push(letter)),
        }
    }
    cells
}

fn complaint_in(text: &str) -> String {
    let marked = |mark: &str| {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(mark));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    };
    let errors = marked("==ERROR==");
    let warnings = marked("==WARNING==");
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    match (errors.is_empty(), warnings.is_empty(), last) {
        (false, ..) => errors,
        (_, false, _) => warnings,
        (.., Some(last)) => format!("ncu did not print the metric; its last line: {last}"),
        (.., None) => "ncu printed nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(text: &str) -> Ended {
        Ended { text: text.into(), success: true }
    }

    #[test]
    fn the_metric_is_read_from_the_raw_page() {
        let text = "==PROF== Connected to process 12\n==PROF== Profiling \"probe_convert\"\n\
            \"ID\",\"Process ID\",\"Kernel Name\",\"sm__cycles_elapsed.max\"\n\
            \"\",\"\",\"\",\"cycle\"\n\
            \"0\",\"12\",\"probe_convert(unsigned int *, int)\",\"5,123\"\n";
        let counters = judge(Some("2025.3".into()), &ended(text));
        assert!(counters.work && counters.why.is_none());
        assert_eq!(counters.sm_cycles_elapsed_max, Some(5123.0));
    }

    #[test]
    fn a_refusal_is_told_in_ncus_words() {
        let text = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have \
                    permission\n==WARNING== No kernels were profiled.\n";
        let counters = judge(None, &ended(text));
        assert!(!counters.work);
        assert!(counters.why.unwrap().starts_with("ERR_NVGPUCTRPERM"));
        let zero = "\"ID\",\"sm__cycles_elapsed.max\"\n\"\",\"cycle\"\n\"0\",\"0\"\n";
        assert!(!judge(None, &ended(zero)).work);
        assert_eq!(complaint_in(" \n"), "ncu printed nothing");
    }

    #[test]
    fn the_version_is_read() {
        let text = "NVIDIA (R) Nsight Compute\nVersion 2025.3.1.0 (build 36398880) (public)\n";
        assert_eq!(version_in(text).as_deref(), Some("2025.3.1.0"));
        assert_eq!(version_in("no"), None);
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children() {
        let begun = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        let result = finish(command, Duration::from_millis(200));
        assert!(matches!(result, Err(Unfinished::TookTooLong(_))));
        assert!(begun.elapsed() < Duration::from_secs(20));
        let missing = finish(Command::new("no-such-program-anywhere"), Duration::from_secs(1));
        assert!(matches!(missing, Err(Unfinished::NotFound)));
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let ended = finish(command, Duration::from_secs(10)).ok().unwrap();
        assert!(ended.text.contains("one") && ended.text.contains("two") && !ended.success);
    }
}
