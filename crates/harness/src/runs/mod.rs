//! Run records: `results/<date>-<gpu>-<nn>/`, one folder per measuring run.
//!
//! A measuring run is one boot of one GPU. It may span commands, and each command adds to the
//! folder. Once the run is sealed (`MANIFEST` lists its files), nothing is added or changed. The
//! folder's README is a report of its other files: whoever adds to the folder writes it
//! ([`crate::report::write_readme`]).

mod folder;
mod index;

pub use folder::{CommandRecord, RunFolder};
pub use index::{Index, IndexEntry};
