//! One file per command.

pub mod bench;
pub mod diff;
pub mod doctor;
pub mod gate;
pub mod ids;
pub mod inspect;
pub mod kernels;
pub mod pack;
pub mod pull;
pub mod quality;
pub mod report;
pub mod run;
pub mod shell;
pub mod synth;
pub mod unpack;
pub mod xray;
pub mod xray_fault;
pub mod xray_record;
