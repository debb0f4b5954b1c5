//! One test binary: exact results, error messages, and properties that hold for every dump.

// Clippy does not count the helpers of an integration test as tests.
#![allow(clippy::unwrap_used)]

mod committed;
mod dump_file;
mod dumps;
mod export_gantt;
mod export_perfetto;
mod export_size;
mod export_text;
mod export_traces;
mod fault;
mod h200;
mod known;
mod page;
mod properties;
mod refusals;
