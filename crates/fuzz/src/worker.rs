//! One batch of one parser's inputs, in a process of its own.

use crate::Options;
use crate::parsers::{self, Parser, Scratch};
use crate::random::Random;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Exit status of a batch whose input did not end.
pub const HANG_STATUS: i32 = 86;

/// What a batch prints at its end: one line of JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Inputs that ran.
    pub inputs: u64,
    /// Inputs that the parser accepted.
    pub accepted: u64,
    /// Inputs that panicked, with the panics' messages.
    pub panics: Vec<(u64, String)>,
    /// Slow inputs, with their milliseconds.
    pub slow: Vec<(u64, u64)>,
    /// The slowest input's time, in microseconds.
    pub slowest_us: u64,
    /// The process's largest resident size, in kilobytes.
    pub peak_kb: u64,
}

/// Makes the input with this number.
pub fn input(parser: &Parser, corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::of(seed, parser.name, number);
    let one = random.pick(corpus).clone();
    let other = random.pick(corpus).clone();
    (parser.mutate)(&one, &other, &mut random)
}

/// Runs the batch that the options name.
pub fn run(options: &Options) -> Result<bool> {
    let name = options.parser.as_deref().context("a worker needs --parser")?;
    let parser = parsers::find(name)?;
    let limit = options.memory_mb << 20;
    rlimit::Resource::AS.set(limit, limit).context("could not limit the memory")?;
    let corpus = (parser.corpus)()?;
    let scratch = Scratch::new()?;
    (parser.prepare)(&scratch)?;
    let words = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&words);
    std::panic::set_hook(Box::new(move |info| {
        *heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = info.to_string();
    }));
    let current = Arc::new((AtomicU64::new(0), Mutex::new(Instant::now())));
    watch(Arc::clone(&current), Duration::from_secs(options.hang_s));
    let mut batch = Batch::default();
    for number in options.from..options.from + options.inputs {
        let bytes = input(parser, &corpus, options.seed, number);
        if options.trace {
            writeln!(std::io::stderr(), "{number}")?;
        }
        let begin = Instant::now();
        *current.1.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = begin;
        current.0.store(number + 1, Ordering::SeqCst);
        let outcome = catch_unwind(AssertUnwindSafe(|| (parser.run)(&bytes, &scratch)));
        current.0.store(0, Ordering::SeqCst);
        let took = begin.elapsed();
        batch.inputs += 1;
        batch.slowest_us = batch.slowest_us.max(took.as_micros() as u64);
        if took >= Duration::from_millis(options.slow_ms) {
            batch.slow.push((number, took.as_millis() as u64));
        }
        match outcome {
            Ok(accepted) => batch.accepted += u64::from(accepted),
            Err(_) => {
                let words = words.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                batch.panics.push((number, words.clone()));
            }
        }
    }
    batch.peak_kb = peak_kb().unwrap_or(0);
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&batch)?)?;
    Ok(true)
}

/// Ends the process once an input takes too long.
fn watch(current: Arc<(AtomicU64, Mutex<Instant>)>, most: Duration) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let number = current.0.load(Ordering::SeqCst);
            let begin = *current.1.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if number > 0 && begin.elapsed() > most {
                let _ = writeln!(std::io::stderr(), "hang {}", number - 1);
                std::process::exit(HANG_STATUS);
            }
        }
    });
}

/// The largest resident size so far, as the system reports it.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
