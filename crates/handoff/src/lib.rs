//! The hand-off protocol: how one phase's output becomes visible to the next phase's blocks.
//!
//! A *slot* is an array of 8-byte *units*; a unit holds a 32-bit value and the *epoch* (step
//! number) it belongs to, written in one store. A consumer polls the data itself until the epoch
//! is the one it expects: no flag, no counter, no fence, nothing to reset. Every (layer, phase)
//! has its own slot, so a slot is written once a step.
//!
//! Why nobody is lapped: a unit of epoch `e + 1` may be written only when every block has read
//! the unit of epoch `e`. Each block posts to the final slot after its last read of the step,
//! and starts the next step only after it has read every block's post there. The final slot
//! itself has no later hand-off behind it, so it exists twice and steps alternate
//! ([`Exchange::parity`]); with one copy, a block that contributes to no earlier phase can be
//! lapped there. `tests/model.rs` explores every schedule of both forms.
//!
//! The same protocol runs on the GPU; this crate is its CPU form, on `std` atomics, or on loom's
//! under the `loom` feature.

mod doorbell;
mod exchange;
mod sync;

pub use doorbell::{Doorbell, STOPPED};
pub use exchange::{Abort, Arrival, Exchange, Fault, FaultCause, Patience};
