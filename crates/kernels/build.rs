//! Embeds the CUDA sources (so that no list must name a new file), and the cubins of the folder
//! that `MONOLITH_KERNELS_DIR` names, if it is set.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut sources = Vec::new();
    walk(&root.join("cu"), "", &mut sources)?;
    sources.retain(|(name, _)| is_source(name));
    println!("cargo::rerun-if-changed=cu");

    println!("cargo::rerun-if-env-changed=MONOLITH_KERNELS_DIR");
    let mut cubins = Vec::new();
    if let Some(folder) = env::var_os("MONOLITH_KERNELS_DIR").filter(|folder| !folder.is_empty()) {
        // From the repository's root, where cargo is called.
        let folder = root.join("../..").join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let manifest = folder.join("manifest.json");
        if !manifest.is_file() {
            return Err(io::Error::other(format!(
                "MONOLITH_KERNELS_DIR is set, but there is no {}: make it with \
                 `monolith kernels build --out {}`",
                manifest.display(),
                folder.display()
            )));
        }
        walk(&folder, "", &mut cubins)?;
    }

    let mut text = String::new();
    let _ = writeln!(text, "/// The CUDA sources: path from cu/, and text.");
    table(&mut text, "SOURCES", "&str", "include_str", &sources);
    let _ = writeln!(text, "/// The files of the folder of cubins embedded in this build.");
    table(&mut text, "CUBINS", "&[u8]", "include_bytes", &cubins);
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("embedded.rs"), text)
}

fn is_source(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "cu" || ending == "cuh")
}

/// Finds every file under the folder: its relative path with `/`, and its path.
fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push((name, entry.path()));
        }
    }
    Ok(())
}

fn table(text: &mut String, name: &str, kind: &str, include: &str, files: &[(String, PathBuf)]) {
    let _ = writeln!(text, "pub(crate) const {name}: &[(&str, {kind})] = &[");
    for (file, path) in files {
        let _ = writeln!(text, "    ({file:?}, {include}!({:?})),", path.display().to_string());
    }
    let _ = writeln!(text, "];");
}
