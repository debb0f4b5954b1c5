//! One file a command.

pub mod diff;
pub mod doctor;
pub mod inspect;
pub mod pack;
pub mod pull;
pub mod run;
pub mod shell;
pub mod synth;
