//! A folder to run in, and what came of it.

use assert_cmd::Command;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Against hanging for ever, and far from deciding anything.
const PATIENCE: Duration = Duration::from_secs(600);

/// The text that the goldens continue.
pub const PROMPT: &str = "The Atlantic Ocean is the second largest of the world's five oceanic \
    divisions. It separates the Old World of Africa and Europe from";

/// The model that is shipped.
pub fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/tiny").canonicalize().unwrap()
}

/// A working folder of one's own, which is also home and every cache.
pub struct Place {
    dir: TempDir,
}

/// What a process left.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program, in this folder, with an environment that holds nothing of the user's.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolith"));
        command.args(args).current_dir(self.dir.path()).env_clear();
        command.env("HOME", self.path("home")).env("HF_HOME", self.path("hf"));
        command.env("MONOLITH_CACHE", self.path("cache"));
        // These tests are of the CPU engine: a GPU is hidden where there is one.
        command.env("CUDA_VISIBLE_DEVICES", "");
        command.timeout(PATIENCE).write_stdin("");
        command
    }

    /// The same program, to be looked at and interrupted while it runs.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::new(self.as_job(std::process::Command::new(env!("CARGO_BIN_EXE_monolith")), args))
    }

    /// As [`Place::start`], from a shell that has Ctrl-C and hang-up ignored, as `nohup` and
    /// background jobs have it.
    pub fn start_ignoring(&self, args: &[&str]) -> Running {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "trap '' INT HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_monolith")]);
        Running::new(self.as_job(shell, args))
    }

    /// Arguments and environment of [`Place::command`].
    pub fn as_job(
        &self,
        mut command: std::process::Command,
        args: &[&str],
    ) -> std::process::Command {
        command.args(args).current_dir(self.dir.path()).env_clear();
        command.env("HOME", self.path("home")).env("HF_HOME", self.path("hf"));
        command.env("MONOLITH_CACHE", self.path("cache")).env("CUDA_VISIBLE_DEVICES", "");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    /// Every file below this folder, with its size.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let (mut folders, mut files) = (vec![self.dir.path().to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().into_iter().flatten().flatten() {
                let Ok(there) = entry.path().symlink_metadata() else { continue };
                if there.is_dir() {
                    folders.push(entry.path());
                } else {
                    files.push((entry.path(), there.len()));
                }
            }
        }
        files.sort();
        files
    }

    pub fn run(&self, args: &[&str]) -> Outcome {
        outcome(&mut self.command(args))
    }

    /// Standard output of a run that is to succeed.
    pub fn succeeds(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!(outcome.code, 0, "{args:?}: {}", outcome.stderr);
        outcome.stdout
    }

    /// A failure: its code, its message, and nothing on standard output.
    #[track_caller]
    pub fn fails(&self, args: &[&str], code: i32, message: &str) {
        self.run(args).is_failure(code, message);
    }

    /// A copy of the shipped model whose files can be replaced.
    pub fn model(&self, name: impl AsRef<OsStr>) -> PathBuf {
        let dir = self.dir.path().join(name.as_ref());
        std::fs::create_dir_all(&dir).unwrap();
        for entry in tiny().read_dir().unwrap() {
            let path = entry.unwrap().path();
            symlink(&path, dir.join(path.file_name().unwrap())).unwrap();
        }
        dir
    }
}

/// A program that runs. Nothing here waits for ever: who waits too long kills it and fails.
pub struct Running {
    child: Child,
    stdout: Said,
    stderr: Said,
}

/// What comes out of a pipe, read by a thread of its own.
struct Said {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Said {
    /// Reads to the end, or closes the pipe after so many bytes.
    fn of(mut pipe: impl Read + Send + 'static, most: usize) -> Said {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let read = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 256];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                let mut bytes = read.lock().unwrap();
                bytes.extend_from_slice(&buffer[..count]);
                if bytes.len() >= most {
                    break;
                }
            }
        });
        Said { bytes, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }
}

impl Running {
    pub fn new(command: std::process::Command) -> Running {
        Running::reading(command, usize::MAX)
    }

    /// Closes the program's standard output after so many bytes.
    pub fn reading(mut command: std::process::Command, most: usize) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Said::of(child.stdout.take().unwrap(), most);
        let stderr = Said::of(child.stderr.take().unwrap(), usize::MAX);
        Running { child, stdout, stderr }
    }

    /// A program whose standard output is something else.
    pub fn writing(mut command: std::process::Command, stdout: impl Into<Stdio>) -> Running {
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = Said::of(child.stderr.take().unwrap(), usize::MAX);
        Running { child, stdout: Said::of(std::io::empty(), 0), stderr }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until something is so; the program must still run then.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&Running) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            let too_long = begin.elapsed() > PATIENCE;
            if too_long || ended.is_some() {
                let _ = self.child.kill();
                panic!("{what}: not before {ended:?}; {} {}", self.stdout(), self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the program has taken Ctrl-C over, by what the kernel says of it.
    #[track_caller]
    pub fn until_it_listens(&mut self) {
        let status = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        if !status.exists() {
            return std::thread::sleep(Duration::from_secs(1));
        }
        // The signals that it catches, one bit each: SIGINT is number 2.
        self.until("it listens", |_| {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & 0b10 != 0)
        });
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        let mut kill = Command::new("sh");
        kill.args(["-c", &format!("kill -INT {}", self.child.id())]).timeout(PATIENCE);
        assert!(kill.output().unwrap().status.success());
    }

    /// Does something again and again until the program ends.
    #[track_caller]
    pub fn until_ended_by(&mut self, act: impl Fn(&Running)) {
        let begin = Instant::now();
        while !self.has_ended() {
            assert!(begin.elapsed() < PATIENCE, "it does not end; {}", self.stderr());
            act(self);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub fn outcome(mut self) -> Outcome {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("it does not end; {} {}", self.stdout(), self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        while !(self.stdout.reader.is_finished() && self.stderr.reader.is_finished()) {
            assert!(begin.elapsed() < 2 * PATIENCE, "somebody else holds its pipes");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (stdout, stderr) = (self.stdout(), self.stderr());
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = status.code().unwrap_or_else(|| panic!("{status}: {stderr}"));
        Outcome { code, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end. It must not panic, and has no terminal to colour.
pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    let outcome = Outcome {
        code: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    assert!(!(outcome.stdout.clone() + &outcome.stderr).contains('\x1b'), "colours, in a pipe");
    outcome
}

impl Outcome {
    #[track_caller]
    pub fn is_failure(&self, code: i32, message: &str) {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stderr.contains(message), "{:?} is not in: {}", message, self.stderr);
        assert_eq!(self.stdout, "", "an error leaves standard output empty");
    }
}

/// Puts other contents in place of a file (or of a link to one).
pub fn replace(path: &Path, bytes: &[u8]) {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).unwrap();
}

/// `run --json` of the shipped model, as JSON.
pub fn run_json(place: &Place, args: &[&str]) -> serde_json::Value {
    let model = tiny();
    let all = [&["run", "--json", "-m", model.to_str().unwrap()], args].concat();
    serde_json::from_str(&place.succeeds(&all)).unwrap()
}

/// A list of token ids in a JSON object.
pub fn ids(value: &serde_json::Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}
