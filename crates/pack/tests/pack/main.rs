//! Round trips over odd shapes, and the refusal, by name, of everything that is not a whole pack.

#![allow(clippy::unwrap_used)]

mod damage;
mod fp8;
mod golden;
mod import;
mod mixed;
mod support;
mod whole;
