//! What a killed process leaves. In a binary of its own: while another test starts a process, that
//! process shares every lock for a moment.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use monolith_files::{WholeFile, WholeFolder, remove_stale, write_whole};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Against hanging for ever, and far from deciding anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the other process where to write.
const FOLDER: &str = "MONOLITH_FILES_TEST_FOLDER";

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The other process of the next test; in an ordinary run there is no such folder.
#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut file = WholeFile::create(&folder.join("a")).unwrap();
    file.write_all(b"half").unwrap();
    let whole = WholeFolder::create(&folder.join("b")).unwrap();
    println!("\nwriting");
    // Until it is killed, or the process that would have killed it is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(whole);
}

#[test]
fn what_a_killed_process_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writes_until_it_is_killed", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(other.stdout.take().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(out.lines().any(|line| line.unwrap() == "writing")));
    // A process that says nothing is left to the end of its input.
    assert!(told.recv_timeout(PATIENCE).expect("it says something in time"));
    assert_eq!((remove_stale(folder.path()), names(folder.path()).len()), (0, 2));
    other.kill().unwrap();
    let begin = Instant::now();
    while other.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
    write_whole(&folder.path().join("a"), b"whole").unwrap();
    assert_eq!(names(folder.path()), ["a"]);
}
