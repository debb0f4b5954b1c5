//! The checksum that the hub announces for a file.

use monolith_files::hex;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::name::is_lower_hex;

/// The suffixes that a compressing server adds to an `ETag`.
const CODINGS: [&str; 5] = ["gzip", "br", "zstd", "deflate", "gz"];

/// The checksum that an `ETag` names: SHA-256 or git's blob id, in hexadecimal digits.
#[must_use]
pub fn checksum_of_etag(etag: &str) -> Option<String> {
    Checksum::from_etag(etag).map(|checksum| checksum.0)
}

/// A file's checksum, which is also its name among the cache's blobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Checksum(String);

impl Checksum {
    /// Reads an `ETag`: SHA-256 for large files (64 digits), git's blob id for the others (40).
    /// Servers that compress mark the tag as weak (`W/`), or add the name of the coding to it.
    pub fn from_etag(etag: &str) -> Option<Self> {
        let text = etag.trim().trim_start_matches("W/").trim_matches('"');
        let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (sum, rest) = text.split_at(digits);
        let coding = rest.trim_start_matches(['"', '-', ';', ':']);
        let plain = rest.is_empty();
        let coded = coding.len() < rest.len() && CODINGS.contains(&coding);
        let known = matches!(sum.len(), 40 | 64) && is_lower_hex(sum) && (plain || coded);
        known.then(|| Self(sum.to_owned()))
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

/// A running checksum.
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
    fn etags_name_a_coding() {
        for sum in [GIT, SHA256] {
            for coding in ["-gzip", "--gzip", ";gzip", ":gzip", "-br", "-zstd", "-deflate"] {
                for etag in [
                    format!("\"{sum}{coding}\""),
                    format!("W/\"{sum}{coding}\""),
                    format!("\"{sum}\"{coding}"),
                ] {
                    assert_eq!(Checksum::from_etag(&etag).unwrap().as_str(), sum, "{etag}");
                }
            }
        }
    }

    #[test]
    fn anything_else_is_no_checksum() {
        let upper = GIT.to_uppercase();
        let nginx = "\"65a1b2c3-1f4\"";
        for etag in ["", "\"\"", "../../x", "abc", &upper, &GIT[1..], nginx, "é"] {
            assert_eq!(Checksum::from_etag(etag), None, "{etag:?}");
        }
        for end in ["gzip", "-", "-2", "-gzip-2", "-../x", "é", "0", "-gzip0"] {
            let etag = format!("{SHA256}{end}");
            assert_eq!(Checksum::from_etag(&etag), None, "{etag:?}");
        }
    }
}
