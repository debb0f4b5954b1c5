//! Model download from a Hugging Face compatible hub, into the cache that its Python tools use.
//!
//! [`pull`] is the whole of it: one [`PullRequest`], one [`Settings`], a [`Snapshot`] back. Every
//! file is checked against the hub's checksum before it gets its name, and is there whole or not
//! at all. Offline, nothing is connected to.
//!
//! Why not the hf-hub crate: its 1.0 checks no checksum, does not retry or resume a body that
//! breaks off, and knows nothing of `HF_HUB_OFFLINE`. It also always brings the Xet client, an
//! async runtime and aws-lc: 230 crates where this takes 46. So: `ureq`, rustls with ring, which
//! build with no more than a C compiler, and the cache layout that all of them share.

mod cache;
mod checksum;
mod client;
mod download;
mod endpoint;
mod error;
mod name;
mod progress;
mod pull;
mod remote;
mod retry;
mod settings;
mod token;

pub use endpoint::Endpoint;
pub use error::Error;
pub use name::{RepoId, Revision};
pub use progress::Progress;
pub use pull::{Files, PullRequest, Snapshot, pull};
pub use retry::Retry;
pub use settings::Settings;
pub use token::Token;
