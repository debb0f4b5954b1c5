//! Finds a kernel: embedded, cached, or compiled now.

use crate::cache::Cache;
use crate::nvrtc::{LoadError, Nvrtc, Search};
use crate::source::{Sources, options, sha256};
use crate::{Arch, CubinInfo, KernelError, Shape, Variant, embedded};
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A compiled kernel, ready for the driver.
#[derive(Debug)]
pub struct Cubin {
    /// The ELF file.
    pub bytes: Cow<'static, [u8]>,
    /// The facts that the file states.
    pub info: CubinInfo,
    /// The kernel's origin.
    pub origin: Origin,
    /// The hash over its sources and options, independent of the compiler.
    pub key: String,
    /// Non-fatal problems: a cache that cannot be written, the compiler's warnings.
    pub warnings: Vec<String>,
}

impl Cubin {
    /// Returns the sha256 of the ELF file that the driver loads. It tells apart the machine code
    /// that two compilers make from the same sources and options.
    pub fn sha256(&self) -> String {
        sha256(&self.bytes)
    }
}

/// Where a kernel comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Embedded in this build.
    Embedded,
    /// From the user's cache.
    Cached(PathBuf),
    /// Compiled now.
    Compiled(Duration),
}

/// Loads the kernel of a row of the table for this architecture and model. Environment variables
/// say where the cache and NVRTC are.
///
/// # Errors
/// The kernel is neither embedded nor cached and cannot be compiled; the message says why and what
/// helps.
pub fn load(arch: Arch, shape: &Shape, variant: &Variant) -> Result<Cubin, KernelError> {
    Loader::from_env().load(arch, shape, variant)
}

/// Where to look for a kernel, and what to compile.
#[derive(Clone, Debug)]
pub struct Loader {
    /// The sources to compile.
    pub sources: Sources,
    /// The cache of compiled kernels, if any.
    pub cache: Option<Cache>,
    /// Where to look for the compiler.
    pub search: Search,
}

impl Loader {
    /// Our sources, with the cache and the compiler from the environment or the usual places.
    pub fn from_env() -> Loader {
        Loader { sources: Sources::ours(), cache: Cache::from_env(), search: Search::from_env() }
    }

    /// See [`load`].
    ///
    /// # Errors
    /// Those of [`load`].
    pub fn load(&self, arch: Arch, shape: &Shape, variant: &Variant) -> Result<Cubin, KernelError> {
        let cubin = self.find(arch, shape, variant)?;
        let kernels = variant.kernels().iter();
        let bytes = kernels.map(|kernel| cubin.info.shared_bytes(kernel)).max().unwrap_or(0);
        if bytes > arch.shared_bytes_max().into() {
            return Err(KernelError::SharedMemory { shape: shape.to_string(), bytes, arch });
        }
        Ok(cubin)
    }

    fn find(&self, arch: Arch, shape: &Shape, variant: &Variant) -> Result<Cubin, KernelError> {
        let options = options(arch, shape, variant);
        let key = self.sources.key(&options);
        if let Some((_, bytes)) = embedded::find(&key) {
            return cubin(bytes.into(), Origin::Embedded, key, arch, variant);
        }
        let nvrtc = match Nvrtc::load(&self.search) {
            Ok(nvrtc) => nvrtc,
            Err(error) => return self.without_compiler(error, &key, arch, shape, variant),
        };
        let version = nvrtc.version();
        if let Some(found) = self.cache.as_ref().and_then(|cache| cache.get(&key, version))
            && let Ok(cubin) = from_cache(found, &key, arch, variant)
        {
            return Ok(cubin);
        }
        let begun = Instant::now();
        let compiled = nvrtc.compile(&self.sources.of(variant), arch, &options)?;
        let origin = Origin::Compiled(begun.elapsed());
        let mut cubin = cubin(compiled.cubin.into(), origin, key, arch, variant)?;
        cubin.warnings.extend(Some(compiled.log).filter(|log| !log.is_empty()));
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(&cubin.key, version, &cubin.bytes)
        {
            cubin.warnings.push(format!("the compiled kernel could not be cached: {error}"));
        }
        Ok(cubin)
    }

    /// Without a compiler, uses a cached kernel of the same sources from any compiler.
    fn without_compiler(
        &self,
        error: LoadError,
        key: &str,
        arch: Arch,
        shape: &Shape,
        variant: &Variant,
    ) -> Result<Cubin, KernelError> {
        if let Some(found) = self.cache.as_ref().and_then(|cache| cache.get_any(key))
            && let Ok(cubin) = from_cache(found, key, arch, variant)
        {
            return Ok(cubin);
        }
        Err(error.wanted(&format!("{} on {arch}, {shape}", variant.name)))
    }
}

fn from_cache(
    found: (PathBuf, Vec<u8>),
    key: &str,
    arch: Arch,
    variant: &Variant,
) -> Result<Cubin, KernelError> {
    let (path, bytes) = found;
    cubin(bytes.into(), Origin::Cached(path), key.into(), arch, variant)
}

/// Reads the facts that the cubin states, and refuses a cubin that is not ours.
fn cubin(
    bytes: Cow<'static, [u8]>,
    origin: Origin,
    key: String,
    arch: Arch,
    variant: &Variant,
) -> Result<Cubin, KernelError> {
    let info = CubinInfo::read(&bytes)?;
    if info.capability != arch.capability() {
        return Err(KernelError::cubin(format!("it is for sm_{}, not {arch}", info.capability)));
    }
    if let Some(name) = variant.kernels().iter().find(|name| info.kernel(name).is_none()) {
        return Err(KernelError::cubin(format!("it has no kernel {name}")));
    }
    Ok(Cubin { bytes, info, origin, key, warnings: Vec::new() })
}
