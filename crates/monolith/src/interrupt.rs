//! Ctrl-C: the first asks for an end at the next good place, the second ends the program at once.

use crate::exit::Code;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// From here on Ctrl-C is noticed, instead of ending the program.
pub fn catch() {
    static HANDLER: OnceLock<()> = OnceLock::new();
    HANDLER.get_or_init(|| {
        // Without a handler Ctrl-C still works, only less politely.
        let _ = ctrlc::set_handler(|| {
            if RAISED.swap(true, Ordering::Relaxed) {
                std::process::exit(Code::Interrupted as i32);
            }
        });
    });
}

/// Whether Ctrl-C was pressed.
pub fn raised() -> bool {
    RAISED.load(Ordering::Relaxed)
}

static RAISED: AtomicBool = AtomicBool::new(false);
