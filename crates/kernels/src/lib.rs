//! The CUDA megakernel: its sources, its variant table, and its compilation.
//!
//! A kernel is a row of [`variant::TABLE`], compiled for an [`Arch`] and the [`Shape`] of a model
//! as constants. [`load`] looks for it among the cubins that a release embeds, then in the user's
//! cache, and otherwise compiles it with NVRTC. Building this crate needs no part of CUDA.

pub mod arch;
pub mod bundle;
pub mod cache;
pub mod cubin;
pub mod embedded;
pub mod error;
pub mod load;
pub mod nvrtc;
pub mod shape;
pub mod source;
pub mod variant;

pub use arch::Arch;
pub use bundle::kernels_build;
pub use cubin::CubinInfo;
pub use error::{KernelError, NVRTC_PACKAGE, check_driver};
pub use load::{Cubin, Loader, Origin, load};
pub use shape::{Shape, ShapeError};
pub use source::Sources;
pub use variant::Variant;
