//! Model download from a Hugging Face compatible hub, into the cache that its Python tools use.
//!
//! [`pull`] is the whole of it: one [`PullRequest`], one [`Settings`], a [`Snapshot`] back. Every
//! file is checked against the hub's checksum before it gets its name, so a file is complete or
//! absent. Offline, nothing is connected to.
//!
//! Why not the hf-hub crate: its 1.0 checks no checksum, does not retry or resume a body that
//! breaks off, and knows nothing of `HF_HUB_OFFLINE`. It also always brings the Xet client, an
//! async runtime and aws-lc: 230 crates where this takes 46. So: `ureq`, rustls with ring, which
//! build with no more than a C compiler, and the cache layout that all of them share.

mod authorities;
mod cache;
mod checksum;
mod client;
mod download;
mod endpoint;
mod error;
mod limits;
mod name;
mod progress;
mod pull;
mod remote;
mod retry;
mod settings;
mod token;

pub use authorities::Authorities;
pub use checksum::checksum_of_etag;
pub use endpoint::{Endpoint, redirect_target};
pub use error::{Error, Missing, TokenUse};
pub use limits::Limits;
pub use name::{RepoId, Revision};
pub use progress::Progress;
pub use pull::{Files, PullRequest, Snapshot, pull};
pub use remote::Listing;
pub use retry::Retry;
pub use settings::Settings;
pub use token::Token;
