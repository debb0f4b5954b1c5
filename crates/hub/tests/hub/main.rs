//! Pulls from a hub on the loopback interface.

#![allow(clippy::unwrap_used)]

mod access;
mod cache;
mod faults;
mod redirects;
mod repo;
mod server;
mod tls;
