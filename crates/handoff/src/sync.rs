//! The atomics and threads that the protocol runs on.

#[cfg(not(feature = "loom"))]
pub use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread::{Thread, current, park},
};

#[cfg(feature = "loom")]
pub use loom::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread::{Thread, current, park},
};

/// One turn of a spin: a pause for the core, or a scheduling point for the model checker.
#[cfg(not(feature = "loom"))]
pub fn spin_turn(turns: u32) {
    // On a machine with fewer free cores than blocks, the block waited for may need this core.
    if turns.is_multiple_of(256) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// One turn of a spin: a pause for the core, or a scheduling point for the model checker.
#[cfg(feature = "loom")]
pub fn spin_turn(_turns: u32) {
    loom::thread::yield_now();
}
