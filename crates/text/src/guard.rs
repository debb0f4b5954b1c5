//! Guards calls into libraries that can panic or run forever on a hostile file.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Stack of the threads that run templates: address space only, until it is used.
///
/// A template can nest a list one level deeper for every seven units of its fuel, and dropping the
/// list takes a few stack frames per level.
const STACK_BYTES: usize = 256 << 20;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Why a guarded call returned no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The call panicked with this message.
    Panic(String),
    /// The call did not end within the time limit. Its thread keeps running: threads cannot be
    /// stopped.
    Timeout,
    /// The system could not start a thread.
    NoThread(String),
}

/// Runs `call`; returns a panic's message instead of printing it.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(call));
    QUIET.set(outer);
    outcome.map_err(|payload| message(&*payload))
}

/// Runs `call` on a separate thread, with a stack that does not depend on the caller's.
pub(crate) fn on_own_thread<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        let outcome = catch(call);
        // The receiver is gone if the call took too long.
        let _ = sender.send(outcome);
    };
    thread::Builder::new()
        .name("template".into())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| Failure::NoThread(error.to_string()))?;
    match receiver.recv_timeout(limit) {
        Ok(outcome) => outcome.map_err(Failure::Panic),
        Err(RecvTimeoutError::Timeout) => Err(Failure::Timeout),
        Err(RecvTimeoutError::Disconnected) => Err(Failure::Panic("unknown reason".into())),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown reason")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_message() {
        let number = std::hint::black_box(3);
        assert_eq!(catch(|| number), Ok(3));
        assert_eq!(catch(|| panic!("of {number}")), Err::<(), _>("of 3".into()));
        assert_eq!(catch(|| panic!("plain")), Err::<(), _>("plain".into()));
        let panicked = on_own_thread(Duration::MAX, || panic!("there"));
        assert_eq!(panicked, Err::<(), _>(Failure::Panic("there".into())));
    }

    #[test]
    fn what_does_not_end_is_left() {
        let sleeps = || loop {
            thread::park();
        };
        assert_eq!(on_own_thread(Duration::ZERO, sleeps), Err::<(), _>(Failure::Timeout));
    }
}
