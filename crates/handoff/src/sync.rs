//! The atomics and threads of the protocol: those of `std`, or loom's.

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
    // With fewer free cores than blocks, the block that owns the value may need this core.
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
