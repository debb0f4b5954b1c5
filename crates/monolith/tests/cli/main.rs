//! The command line as its users meet it: a process, its two streams and its exit code.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod checkpoint;
mod diff;
mod exit;
#[path = "../../../harness/tests/common/fixture.rs"]
mod fixture;
mod help;
mod hub;
mod interrupt;
mod kernels;
mod measure;
mod model;
mod pack;
mod predict;
mod prompt;
mod quality;
mod run;
mod soak;
mod support;
mod synth;
mod terminal;
mod usage;
mod xray;
