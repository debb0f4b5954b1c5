//! Ctrl-C: the first is answered within half a second, the second ends the program at once.
//!
//! A command that has nothing to clean up is ended where it stands, with code 130. A command that
//! has, or whose partial result counts, holds a [`Guard`] and asks [`raised`] in its loops. A guard
//! buys time, not immunity: a program that does not ask for [`GRACE`] is ended all the same
//! (a temporary file that it leaves is recognized as stale and removed by the next command).

use crate::exit::Code;
use crate::progress;
use crate::text_out::say;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// How long a guarded command may take to ask.
const GRACE: Duration = Duration::from_millis(400);
/// How often the watcher looks whether the command has asked.
const LOOK_EVERY: Duration = Duration::from_millis(5);

static RAISED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether the command has asked since, and ends by itself.
static ANSWERED: AtomicBool = AtomicBool::new(false);
/// Guards held, and those of them whose command has a result to finish.
static GUARDS: AtomicUsize = AtomicUsize::new(0);
static FINISHING: AtomicUsize = AtomicUsize::new(0);

/// Takes Ctrl-C over, from the first line of the program on and whatever was inherited: a shell
/// starts background jobs with the signal ignored.
pub fn install() {
    // The order counts: a second signal finds the flag set, and ends the program in the handler.
    let code = Code::Interrupted as i32;
    let registered = flag::register_conditional_shutdown(SIGINT, code, RAISED.clone())
        .and_then(|_| flag::register(SIGINT, RAISED.clone()))
        .and_then(|_| Signals::new([SIGINT]));
    // Without a handler Ctrl-C still ends the program, only less politely.
    let Ok(mut signals) = registered else { return };
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            answer();
        }
    });
}

/// Ends the program, unless the command says that it does so itself.
fn answer() {
    let begin = Instant::now();
    while GUARDS.load(Ordering::SeqCst) > 0 {
        if ANSWERED.load(Ordering::SeqCst) {
            return;
        }
        if begin.elapsed() >= GRACE {
            if FINISHING.load(Ordering::SeqCst) == 0 {
                break;
            }
            say("monolith: ending after this step; Ctrl-C once more ends it at once");
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if ANSWERED.load(Ordering::SeqCst) {
        return;
    }
    end("interrupted");
}

/// Ends the program with code 130 and this message.
pub fn end(message: &str) -> ! {
    progress::clear();
    say(&format!("monolith: {message}"));
    // Not `std::process::exit`: what runs there may wait for what was interrupted.
    low_level::exit(Code::Interrupted as i32)
}

/// While it is held, the command asks [`raised`] and ends by itself.
#[must_use]
pub struct Guard {
    finishing: bool,
}

/// For a command that cleans up after itself.
pub fn guard() -> Guard {
    GUARDS.fetch_add(1, Ordering::SeqCst);
    Guard { finishing: false }
}

/// For a command whose result so far counts: it may finish the step that it is in, however long
/// that takes.
pub fn guard_result() -> Guard {
    FINISHING.fetch_add(1, Ordering::SeqCst);
    GUARDS.fetch_add(1, Ordering::SeqCst);
    Guard { finishing: true }
}

impl Drop for Guard {
    fn drop(&mut self) {
        GUARDS.fetch_sub(1, Ordering::SeqCst);
        if self.finishing {
            FINISHING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Whether Ctrl-C was pressed. Who learns it ends the command.
pub fn raised() -> bool {
    let raised = RAISED.load(Ordering::SeqCst);
    if raised {
        ANSWERED.store(true, Ordering::SeqCst);
    }
    raised
}

/// [`raised`], for a library whose callback gives an I/O result.
///
/// # Errors
/// [`ErrorKind::Interrupted`].
pub fn check() -> Result<()> {
    if raised() { Err(Error::from(ErrorKind::Interrupted)) } else { Ok(()) }
}
