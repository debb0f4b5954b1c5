//! A folder of compiled kernels with a manifest, which a release build embeds.

use crate::nvrtc::{Nvrtc, Search};
use crate::source::{Sources, options, sha256};
use crate::{Arch, CubinInfo, KernelError, Shape, Variant};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The manifest's file name.
pub const MANIFEST: &str = "manifest.json";

/// The kernels of a folder.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// One row per file.
    pub kernels: Vec<Row>,
}

/// One compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The file, in the manifest's folder.
    pub file: String,
    /// The hash over its sources and options.
    pub key: String,
    /// The row of the variant table.
    pub variant: String,
    /// The architecture.
    pub arch: String,
    /// The shape, as [`Shape`] displays it.
    pub shape: String,
    /// The compiler's version.
    pub compiler: String,
    /// The hash of the file.
    pub sha256: String,
}

/// A newly compiled kernel.
#[derive(Debug)]
pub struct Built {
    /// Its row in the manifest.
    pub row: Row,
    /// The facts that the cubin states.
    pub info: CubinInfo,
    /// The compiler's warnings.
    pub log: String,
    /// Time to compile.
    pub took: Duration,
}

/// Callback for progress: the next kernel, how many are compiled, and the total.
pub type Progress<'a> = dyn FnMut(&str, usize, usize) + 'a;

/// Compiles rows of the variant table for these architectures and shapes into a folder, with a
/// manifest. Needs NVRTC, but no GPU. Writes nothing before everything is compiled.
///
/// # Errors
/// NVRTC is not found, the sources do not compile, or a file cannot be written.
pub fn kernels_build(
    variants: &[&Variant],
    archs: &[Arch],
    shapes: &[Shape],
    out: &Path,
    progress: &mut Progress,
) -> Result<Vec<Built>, KernelError> {
    build(&Sources::ours(), &Search::from_env(), variants, archs, shapes, out, progress)
}

/// [`kernels_build`] with given sources and compiler.
///
/// # Errors
/// Those of [`kernels_build`].
pub fn build(
    sources: &Sources,
    search: &Search,
    variants: &[&Variant],
    archs: &[Arch],
    shapes: &[Shape],
    out: &Path,
    progress: &mut Progress,
) -> Result<Vec<Built>, KernelError> {
    let nvrtc = Nvrtc::load(search).map_err(|error| error.wanted("the rows of the table"))?;
    let (mut built, mut cubins) = (Vec::new(), Vec::new());
    let total = shapes.len() * variants.len() * archs.len();
    for shape in shapes {
        for &variant in variants {
            for &arch in archs {
                progress(&format!("{} {arch} {shape}", variant.name), built.len(), total);
                let options = options(arch, shape, variant);
                let begun = Instant::now();
                let compiled = nvrtc.compile(&sources.of(variant), arch, &options)?;
                let took = begun.elapsed();
                let info = CubinInfo::read(&compiled.cubin)?;
                let key = sources.key(&options);
                let row = Row {
                    file: format!("{}-{arch}-{shape}-{}.cubin", variant.name, &key[..16]),
                    key,
                    variant: variant.name.into(),
                    arch: arch.name().into(),
                    shape: shape.to_string(),
                    compiler: info.compiler.clone().unwrap_or_else(|| nvrtc.version().into()),
                    sha256: sha256(&compiled.cubin),
                };
                cubins.push(compiled.cubin);
                built.push(Built { row, info, log: compiled.log, took });
            }
        }
    }
    write(&built, &cubins, out)?;
    Ok(built)
}

/// Writes the files and replaces those of an earlier build.
fn write(built: &[Built], cubins: &[Vec<u8>], out: &Path) -> Result<(), KernelError> {
    fs::create_dir_all(out).map_err(KernelError::io(out))?;
    remove_old(out);
    for (built, cubin) in built.iter().zip(cubins) {
        replace(&out.join(&built.row.file), cubin)?;
    }
    let manifest = Manifest { kernels: built.iter().map(|built| built.row.clone()).collect() };
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| KernelError::cubin(error.to_string()))?;
    replace(&out.join(MANIFEST), format!("{text}\n").as_bytes())
}

/// Removes the files that an earlier build's manifest names, and nothing else.
fn remove_old(out: &Path) {
    let manifest = out.join(MANIFEST);
    let Ok(text) = fs::read(&manifest) else { return };
    let old: Manifest = serde_json::from_slice(&text).unwrap_or_default();
    for row in old.kernels {
        let plain = Path::new(&row.file).file_name().is_some_and(|name| *name == *row.file);
        if plain && row.file.ends_with(".cubin") {
            let _ = fs::remove_file(out.join(row.file));
        }
    }
    let _ = fs::remove_file(manifest);
}

/// Writes the file whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), KernelError> {
    let write = monolith_files::write_whole(path, bytes);
    write.map_err(|error| KernelError::io(path)(error.source))
}
