//! A folder to run in, and what came of it.

use assert_cmd::Command;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

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
        // Against hanging for ever, and far from deciding anything.
        command.timeout(Duration::from_secs(120)).write_stdin("");
        command
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
