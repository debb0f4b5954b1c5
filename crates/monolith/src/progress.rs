//! Progress: what the command is doing, and how much of it is done. On a terminal one line is
//! redrawn; elsewhere a plain line is printed now and then. A separate thread prints it, so that a
//! report costs one store, and the clock moves even while nothing is reported.

use crate::text_out::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use monolith_text::printable_line;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// On a terminal: delay before the line is drawn.
const SHOWN_AFTER: Duration = Duration::from_millis(400);
/// On a terminal: interval between redraws.
const DRAWN_EVERY: Duration = Duration::from_millis(200);
/// Elsewhere: delay before the first line.
const SAID_AFTER: Duration = Duration::from_secs(2);
/// Elsewhere: interval between lines.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as kB, MB or GB with a rate.
    Bytes,
    /// Things of this name, in the plural.
    Of(&'static str),
}

/// The progress of one command. Dropping it ends it and clears the line on a terminal.
pub struct Progress {
    shared: Arc<Shared>,
    drawer: Option<JoinHandle<()>>,
}

struct Shared {
    /// The command or its whole task: `pack`, `gate`.
    name: String,
    unit: Unit,
    begin: Instant,
    done: AtomicU64,
    /// 0 if not known.
    total: AtomicU64,
    /// What the command is doing now.
    words: Mutex<String>,
    /// How many were shown when this one began, itself included: only the latest is drawn.
    depth: usize,
    ended: Mutex<bool>,
    end: Condvar,
}

/// Number of nested progress lines.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

impl Progress {
    /// Progress in words, given by [`Progress::doing`].
    pub fn new(name: impl Into<String>) -> Progress {
        Progress::of(name, Unit::Of("steps"))
    }

    /// Progress in bytes.
    pub fn bytes(name: impl Into<String>) -> Progress {
        Progress::of(name, Unit::Bytes)
    }

    /// Progress in this unit.
    pub fn of(name: impl Into<String>, unit: Unit) -> Progress {
        let depth = SHOWN.fetch_add(1, Ordering::SeqCst) + 1;
        let shared = Arc::new(Shared::new(name.into(), unit, depth));
        let drawn = shared.clone();
        let on_terminal = std::io::stderr().is_terminal();
        let draw = move || if on_terminal { draw(&drawn) } else { write_lines(&drawn) };
        // If the thread cannot start, no progress is shown; everything else works.
        let drawer = std::thread::Builder::new().name("progress".into()).spawn(draw).ok();
        Progress { shared, drawer }
    }

    /// Hidden progress, for `--quiet`.
    pub fn hidden() -> Progress {
        let shared = Arc::new(Shared::new(String::new(), Unit::Of(""), 0));
        Progress { shared, drawer: None }
    }

    /// Sets what the command is doing now, and restarts the count.
    pub fn doing(&self, what: impl Into<String>) {
        *locked(&self.shared.words) = what.into();
        self.at(0, 0);
    }

    /// Sets how much is done, and the total (0 if not known). Costs two stores: cheap enough for
    /// every step.
    pub fn at(&self, done: u64, total: u64) {
        self.shared.done.store(done, Ordering::Relaxed);
        self.shared.total.store(total, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *locked(&self.shared.ended) = true;
        self.shared.end.notify_all();
        if let Some(drawer) = self.drawer.take() {
            let _ = drawer.join();
        }
        if self.shared.depth > 0 {
            SHOWN.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Shared {
    fn new(name: String, unit: Unit, depth: usize) -> Shared {
        Shared {
            name,
            unit,
            begin: Instant::now(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            words: Mutex::default(),
            depth,
            ended: Mutex::new(false),
            end: Condvar::new(),
        }
    }

    /// Waits, and returns whether the command ended meanwhile.
    fn ends_within(&self, time: Duration) -> bool {
        let ended = locked(&self.ended);
        let waited = self.end.wait_timeout_while(ended, time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether this one is the innermost, the one that is drawn.
    fn is_shown(&self) -> bool {
        self.depth == SHOWN.load(Ordering::SeqCst)
    }

    /// The command and what it is doing: `gate: hashing the weights`.
    fn label(&self) -> String {
        let words = locked(&self.words);
        let label = match words.is_empty() {
            true => self.name.clone(),
            false => format!("{}: {words}", self.name),
        };
        // Names of files and models are among the words.
        printable_line(&label).into_owned()
    }

    /// The whole line: `gate: tokens and logits, 312 of 5120 steps (6%), 12 s`.
    fn line(&self) -> String {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let seconds = self.begin.elapsed().as_secs();
        let count = counted(self.unit, done, total);
        format!("{}{count}, {seconds} s", self.label())
    }
}

/// Formats how much is done, after a comma; empty if nothing is counted.
fn counted(unit: Unit, done: u64, total: u64) -> String {
    let amount = |count: u64| match unit {
        Unit::Bytes => amount_of_bytes(count),
        Unit::Of(name) => format!("{count} {name}"),
    };
    match (done, total) {
        (0, 0) => String::new(),
        (_, 0) => format!(", {}", amount(done)),
        (_, _) => {
            let percent = 100.0 * done as f64 / total as f64;
            let of = match unit {
                Unit::Bytes => amount_of_bytes(done),
                Unit::Of(_) => done.to_string(),
            };
            format!(", {of} of {} ({percent:.0}%)", amount(total))
        }
    }
}

fn amount_of_bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        _ if count >= 1e9 => format!("{:.2} GB", count / 1e9),
        _ if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.0} kB", count / 1e3),
    }
}

/// Writes a plain line now and then.
fn write_lines(shared: &Shared) {
    let mut pause = SAID_AFTER;
    while !shared.ends_within(pause) {
        if shared.is_shown() {
            say(&shared.line());
        }
        pause = SAID_EVERY;
    }
}

/// The line on the terminal now; other output must clear it first.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Redraws the line until the command ends.
fn draw(shared: &Shared) {
    let mut pause = SHOWN_AFTER;
    while !shared.ends_within(pause) {
        pause = DRAWN_EVERY;
        if shared.is_shown() {
            redraw(shared);
        }
    }
    clear();
}

fn redraw(shared: &Shared) {
    let new = || ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let bar = locked(&DRAWN).get_or_insert_with(new).clone();
    let (done, total) = (shared.done.load(Ordering::Relaxed), shared.total.load(Ordering::Relaxed));
    let template = match (shared.unit, done, total) {
        (Unit::Bytes, _, 1..) => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (Unit::Bytes, 1.., 0) => "{spinner} {msg}: {bytes}, {elapsed}",
        (Unit::Of(_), _, 1..) => "{msg} [{bar:30}] {pos}/{len} {eta}",
        (Unit::Of(_), 1.., 0) => "{spinner} {msg}: {pos}, {elapsed}",
        (_, 0, 0) => "{spinner} {msg}, {elapsed}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(shared.label());
    if total > 0 {
        bar.set_length(total);
    } else {
        bar.unset_length();
    }
    if done < bar.position() {
        bar.reset_eta();
    }
    bar.set_position(done);
    bar.tick();
}

/// Clears the line, if one is drawn.
pub fn clear() {
    if let Some(bar) = locked(&DRAWN).take() {
        bar.finish_and_clear();
    }
}

/// Runs `write` while the line is cleared.
pub fn suspended<T>(write: impl FnOnce() -> T) -> T {
    let bar = locked(&DRAWN).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_and_how_far_it_is() {
        let shared = Shared::new("gate".into(), Unit::Of("steps"), 0);
        assert!(shared.line().starts_with("gate, "), "{}", shared.line());
        *locked(&shared.words) = "tokens".into();
        shared.done.store(312, Ordering::Relaxed);
        assert!(shared.line().starts_with("gate: tokens, 312 steps, "), "{}", shared.line());
        shared.total.store(5120, Ordering::Relaxed);
        let line = shared.line();
        assert!(line.starts_with("gate: tokens, 312 of 5120 steps (6%), "), "{line}");
    }

    #[test]
    fn a_label_holds_no_control_character() {
        let shared = Shared::new("pull".into(), Unit::Bytes, 0);
        *locked(&shared.words) = "a\u{1b}]0;x\u{7}\nb".into();
        assert_eq!(shared.label(), "pull: a\\u{1b}]0;x\\u{7}\\nb");
    }

    #[test]
    fn bytes_are_shown_in_a_unit_that_fits() {
        for (done, total, text) in [
            (0, 0, ""),
            (0, 5_000_000, ", 0 kB of 5.0 MB (0%)"),
            (1_500_000_000, 0, ", 1.50 GB"),
            (750_000_000, 1_500_000_000, ", 750.0 MB of 1.50 GB (50%)"),
        ] {
            assert_eq!(counted(Unit::Bytes, done, total), text);
        }
    }
}
