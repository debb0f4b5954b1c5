//! One binary: exact answers, refusals by name, and what must hold for every dump.

// Clippy takes the helpers of an integration test for no tests.
#![allow(clippy::unwrap_used)]

mod dumps;
mod known;
mod page;
mod properties;
mod refusals;
