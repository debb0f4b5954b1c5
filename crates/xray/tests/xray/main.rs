//! One binary: exact answers, refusals by name, and what must hold for every dump.

// Clippy takes the helpers of an integration test for no tests.
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
