//! Ending in the middle: Ctrl-C, and a reader that has seen enough.

use crate::support::{Place, replace, tiny};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// A decode that takes minutes, so that no test sees its end.
fn endless(place: &Place, args: &[&str]) -> Child {
    endless_with(place, &["-p", "My fellow"], args)
}

/// The same with another prompt.
fn endless_with(place: &Place, prompt: &[&str], args: &[&str]) -> Child {
    let config = std::fs::read_to_string(tiny().join("config.json")).unwrap();
    let longer = "\"max_position_embeddings\": 60000";
    let config = config.replace("\"max_position_embeddings\": 4096", longer);
    assert!(config.contains(longer));
    replace(&place.model("m").join("config.json"), config.as_bytes());
    Command::new(env!("CARGO_BIN_EXE_monolith"))
        .args(["run", "-m", "m", "--ignore-eos", "-n", "59000"])
        .args(prompt)
        .args(["--context", "60000"])
        .args(args)
        .current_dir(place.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn first_bytes(child: &mut Child) -> [u8; 10] {
    let mut bytes = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn ctrl_c_ends_the_text_and_prints_the_statistics() {
    let place = Place::new();
    let mut child = endless(&place, &["--xray", "x.json.gz", "--xray-at", "58000"]);
    first_bytes(&mut child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("tok/s") && stderr.contains("stopped: interrupted"), "{stderr}");
    assert!(output.stdout.ends_with(b"\n"));
    let trace = std::fs::read(place.path("x.json.gz")).unwrap();
    assert!(monolith_xray::page::read(&trace).is_ok());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let place = Place::new();
    let mut child = endless(&place, &[]);
    first_bytes(&mut child);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let model = tiny();
    let model = model.to_str().unwrap();
    for args in [&["doctor"][..], &["run", "-m", model, "-p", "My fellow", "-n", "4"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_monolith"))
            .args(args)
            .stdout(std::fs::File::create("/dev/full").unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("monolith: standard output: No space left"), "{stderr}");
    }
}

#[test]
fn a_long_prompt_says_how_far_it_is_and_ctrl_c_ends_it() {
    let place = Place::new();
    replace(&place.path("long.txt"), "My fellow Americans, tonight. ".repeat(7000).as_bytes());
    let mut child = endless_with(&place, &["-f", "long.txt"], &[]);
    let watchdog = Watchdog::of(&child);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // The first line comes after two seconds. Where the machine is slow, it can be of the loading.
    let progress = lines.find(|line| line.starts_with("prompt, ")).expect("the prompt says so");
    let words: Vec<&str> = progress.split(' ').collect();
    let (done, all) = (words[1].parse::<u32>().unwrap(), words[3].parse::<u32>().unwrap());
    assert!(done > 0 && done < all && words[4] == "tokens", "{progress}");
    interrupt(&child);
    let rest = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    watchdog.call_off();
    let said = format!("of the prompt's {all} tokens");
    assert!(rest.contains("monolith: interrupted after ") && rest.contains(&said), "{rest}");
    assert!(!rest.contains("tok/s"), "{rest}");
}

/// Kills a program that hangs, so that the test which waits for it fails instead of waiting.
struct Watchdog(std::sync::mpsc::Sender<()>);

impl Watchdog {
    fn of(child: &Child) -> Watchdog {
        let (sender, called_off) = std::sync::mpsc::channel();
        let kill = format!("kill -KILL {}", child.id());
        std::thread::spawn(move || {
            if called_off.recv_timeout(Duration::from_secs(240)) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("sh").args(["-c", &kill]).status();
            }
        });
        Watchdog(sender)
    }

    /// The program has ended.
    fn call_off(self) {
        drop(self.0);
    }
}
