//! The hand-off protocol: how one phase's output becomes visible to the next phase's blocks.
//!
//! A *slot* is an array of 8-byte *units*. A unit holds a 32-bit value and the *epoch* (step
//! number) of the value, and one store writes both: the flag is in the data, as in NCCL's LL
//! protocol. A consumer polls the unit until it has the expected epoch: there is no separate flag,
//! no counter, no fence, and nothing to reset. Every (layer, phase) has its own slot, so a slot is
//! written once a step.
//!
//! Why no block is lapped: a unit of epoch `e + 1` may be written only when every block has read
//! the unit of epoch `e`. Each block publishes to the final slot after its last read of the step,
//! and starts the next step only after it has read every block's unit there. No later hand-off
//! protects the final slot, so it exists twice and steps alternate ([`Exchange::parity`]); with one
//! copy, a block that contributes to no earlier phase can be lapped there. `tests/model.rs` runs
//! two workers under every schedule with up to three preemptions, with one copy and with two, and
//! three workers under the first 60,000 schedules.
//!
//! The CPU engine runs on this crate, on `std` atomics, or on loom's under the `loom` feature. The
//! GPU's form differs in two ways: its unit holds two values of 24 bits and the low 16 bits of the
//! epoch, and only the first block reads the final slot: that no block is lapped follows from the
//! launches, which run one after another.

mod doorbell;
mod exchange;
mod sync;

pub use doorbell::{Doorbell, STOPPED};
pub use exchange::{Abort, Arrival, Exchange, Fault, FaultCause, Timeout};
