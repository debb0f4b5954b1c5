//! Model download from a Hugging Face compatible hub, into the cache that its Python tools use.
//!
//! [`pull`] is the whole interface: it takes a [`PullRequest`] and [`Settings`], and returns a
//! [`Snapshot`]. Every file is checked against the hub's checksum before it gets its name, so a
//! file is complete or absent. Offline, it makes no connection.
//!
//! Why not the hf-hub crate: version 1.0 checks no checksum, does not retry or resume an
//! interrupted body, and ignores `HF_HUB_OFFLINE`. It always includes the Xet client, an async
//! runtime and aws-lc: 230 crates instead of 46. This crate uses `ureq` and rustls with ring, which
//! build with only a C compiler, and the common cache layout.

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
mod settings;

pub use authorities::Authorities;
pub use checksum::checksum_of_etag;
pub use endpoint::Endpoint;
pub use error::{Error, Missing, TokenUse};
pub use limits::Limits;
pub use monolith_http::{Retry, Token, redirect_target};
pub use name::{RepoId, Revision};
pub use progress::Progress;
pub use pull::{Files, PullRequest, Snapshot, pull};
pub use remote::Listing;
pub use settings::Settings;
