//! Ctrl-C: the first one takes effect within half a second, the second ends the program at once.
//!
//! A command with nothing to clean up is ended at once, with code 130. A command that has files to
//! clean up or a partial result to finish holds a [`Guard`] and checks [`raised`] in its loops. A
//! guard gives time, not immunity: a program that does not check for [`GRACE`] is ended anyway, and
//! its temporaries are removed. (A second Ctrl-C leaves them; the next command recognizes them as
//! stale.)

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

/// How long a guarded command may take to check [`raised`].
const GRACE: Duration = Duration::from_millis(400);
/// How often the watcher thread tests whether the command has checked.
const LOOK_EVERY: Duration = Duration::from_millis(5);

static RAISED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether the command has checked since, and so ends by itself.
static ANSWERED: AtomicBool = AtomicBool::new(false);
/// Number of guards held, and of those whose command has a result to finish.
static GUARDS: AtomicUsize = AtomicUsize::new(0);
static FINISHING: AtomicUsize = AtomicUsize::new(0);

/// Installs the handler of Ctrl-C at the start of the program, even if the signal is ignored: a
/// shell starts background jobs that way.
pub fn install() {
    // The order matters: a second signal finds the flag set and ends the program in the handler.
    let code = Code::Interrupted as i32;
    let registered = flag::register_conditional_shutdown(SIGINT, code, RAISED.clone())
        .and_then(|_| flag::register(SIGINT, RAISED.clone()))
        .and_then(|_| Signals::new([SIGINT]));
    // Without a handler Ctrl-C still ends the program, but without cleaning up.
    let Ok(mut signals) = registered else { return };
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            answer();
        }
    });
}

/// Ends the program, unless the command ends by itself.
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
            say("monolith: ending after this step; press Ctrl-C again to end at once");
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
    monolith_files::remove_unfinished();
    say(&format!("monolith: {message}"));
    // Not `std::process::exit`: its exit handlers may wait for the interrupted thread.
    low_level::exit(Code::Interrupted as i32)
}

/// While a command holds a guard, it checks [`raised`] and ends by itself.
#[must_use]
pub struct Guard {
    finishing: bool,
}

/// Returns a guard for a command that cleans up after itself.
pub fn guard() -> Guard {
    GUARDS.fetch_add(1, Ordering::SeqCst);
    Guard { finishing: false }
}

/// Returns a guard for a command whose partial result counts: it may finish the current step,
/// however long that takes.
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

/// Returns whether Ctrl-C was pressed. If so, the caller ends the command.
pub fn raised() -> bool {
    let raised = RAISED.load(Ordering::SeqCst);
    if raised {
        ANSWERED.store(true, Ordering::SeqCst);
    }
    raised
}

/// [`raised`] for a library whose callback returns an I/O result.
///
/// # Errors
/// [`ErrorKind::Interrupted`].
pub fn check() -> Result<()> {
    if raised() { Err(Error::from(ErrorKind::Interrupted)) } else { Ok(()) }
}
