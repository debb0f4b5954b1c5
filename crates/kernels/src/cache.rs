//! The user's cache of compiled kernels: one file per key and compiler version.
//!
//! An entry is the cubin, then its sha256, then a magic word. ELF readers and NVIDIA's tools ignore
//! the tail. An entry with a wrong tail counts as missing, so it is compiled again.

use crate::KernelError;
use crate::bundle::replace;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"MLCUBIN1";
const SHA256_BYTES: usize = 32;

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Returns the cache in this folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// Returns the cache in `kernels` in the folder that `MONOLITH_CACHE` names, or else in
    /// `monolith` in the user's cache folder; `None` if there is neither.
    pub fn from_env() -> Option<Cache> {
        let named = std::env::var_os("MONOLITH_CACHE").filter(|folder| !folder.is_empty());
        let folder = match named {
            Some(folder) => PathBuf::from(folder),
            None => dirs::cache_dir()?.join("monolith"),
        };
        Some(Cache::new(folder.join("kernels")))
    }

    /// Returns the path of the kernel with this key, compiled by this compiler.
    pub fn path(&self, key: &str, compiler: &str) -> PathBuf {
        self.folder.join(format!("{key}-{compiler}.cubin"))
    }

    /// Reads the kernel, or returns `None` if it is missing or damaged.
    pub fn get(&self, key: &str, compiler: &str) -> Option<(PathBuf, Vec<u8>)> {
        read(self.path(key, compiler))
    }

    /// Reads the kernel with this key from any compiler, the highest file name first.
    pub fn get_any(&self, key: &str) -> Option<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(&self.folder).ok()?;
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| is_of_key(path, key));
        paths.sort_unstable();
        paths.into_iter().rev().find_map(read)
    }

    /// Writes the kernel to the cache.
    ///
    /// # Errors
    /// The folder or the file cannot be written.
    pub fn put(&self, key: &str, compiler: &str, cubin: &[u8]) -> Result<PathBuf, KernelError> {
        fs::create_dir_all(&self.folder).map_err(KernelError::io(&self.folder))?;
        let path = self.path(key, compiler);
        replace(&path, &[cubin, &Sha256::digest(cubin), MAGIC].concat())?;
        Ok(path)
    }
}

fn is_of_key(path: &Path, key: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let rest = name.strip_prefix(key).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| rest.ends_with(".cubin"))
}

fn read(path: PathBuf) -> Option<(PathBuf, Vec<u8>)> {
    let mut bytes = fs::read(&path).ok()?;
    let cubin = bytes.strip_suffix(MAGIC)?;
    let length = cubin.len().checked_sub(SHA256_BYTES)?;
    let (cubin, sum) = cubin.split_at(length);
    if Sha256::digest(cubin)[..] != *sum {
        return None;
    }
    bytes.truncate(length);
    Some((path, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_found_by_key_and_compiler() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("not/yet/there"));
        assert!(cache.get("a", "13.0").is_none() && cache.get_any("a").is_none());
        let path = cache.put("a", "13.0", b"cubin").unwrap();
        assert_eq!(cache.get("a", "13.0").unwrap(), (path, b"cubin".to_vec()));
        assert!(cache.get("a", "13.4").is_none() && cache.get("b", "13.0").is_none());
        assert_eq!(cache.get_any("a").unwrap().1, b"cubin");
        assert!(cache.get_any("").is_none());
        cache.put("a", "13.4", b"newer").unwrap();
        assert_eq!(cache.get_any("a").unwrap().1, b"newer");
        cache.put("a", "13.0", b"").unwrap();
        assert_eq!(cache.get("a", "13.0").unwrap().1, b"");
        // No half-written file is left beside the entries.
        assert_eq!(fs::read_dir(folder.path().join("not/yet/there")).unwrap().count(), 2);
    }

    #[test]
    fn a_damaged_entry_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let path = cache.put("a", "13.0", &[7; 100]).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(cache.get("a", "13.0").is_none(), "byte {at} changed");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(cache.get("a", "13.0").is_none(), "cut to {at} bytes");
        }
        fs::write(&path, &whole).unwrap();
        assert!(cache.get("a", "13.0").is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Cache::new(file.join("kernels")).put("a", "13.0", b"").unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
