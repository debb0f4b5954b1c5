//! What the hub says a file must hash to.

use monolith_files::hex;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::name::is_lower_hex;

/// A file's checksum, which is also its name among the cache's blobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Checksum(String);

impl Checksum {
    /// Reads an `ETag`: SHA-256 for large files (64 digits), git's blob id for the others (40).
    pub fn from_etag(etag: &str) -> Option<Self> {
        let text = etag.trim().trim_start_matches("W/").trim_matches('"');
        let known = matches!(text.len(), 40 | 64) && is_lower_hex(text);
        known.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A hasher for a file of this many bytes.
    pub fn hasher(&self, size_bytes: u64) -> Hasher {
        if self.0.len() == 64 {
            return Hasher::Sha256(Sha256::new());
        }
        let mut git = Sha1::new();
        git.update(format!("blob {size_bytes}\0"));
        Hasher::Git(git)
    }
}

/// A checksum in the making.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    /// SHA-1 over git's header and the file.
    Git(Sha1),
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Git(hasher) => hasher.update(bytes),
        }
    }

    pub fn finish(self) -> Checksum {
        match self {
            Self::Sha256(hasher) => Checksum(hex(&hasher.finalize())),
            Self::Git(hasher) => Checksum(hex(&hasher.finalize())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello\n' | git hash-object --stdin` and `sha256sum`.
    const GIT: &str = "ce013625030ba8dba906f756967f9e9ca394464a";
    const SHA256: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

    #[test]
    fn both_kinds_hash_as_their_tools_do() {
        for expected in [GIT, SHA256] {
            let checksum = Checksum::from_etag(expected).unwrap();
            let mut hasher = checksum.hasher(6);
            hasher.update(b"hel");
            hasher.update(b"lo\n");
            assert_eq!(hasher.finish(), checksum);
        }
    }

    #[test]
    fn etags_come_quoted_and_weak() {
        for etag in [format!("\"{GIT}\""), format!("W/\"{GIT}\""), format!(" {GIT}")] {
            assert_eq!(Checksum::from_etag(&etag).unwrap().as_str(), GIT);
        }
    }

    #[test]
    fn anything_else_is_no_checksum() {
        let upper = GIT.to_uppercase();
        for etag in ["", "\"\"", "../../x", "abc", &upper, &GIT[1..], &format!("{SHA256}-gzip")] {
            assert_eq!(Checksum::from_etag(etag), None, "{etag:?}");
        }
    }
}
