//! Recognizes the kind of a file by its first bytes: clones, proxies and copies leave other files
//! under the names of weights, configurations and tokenizers.

use std::fmt;

/// A kind of file that is found in place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// An empty file.
    Empty,
    /// The pointer that a clone without git-lfs leaves in place of a large file.
    LfsPointer,
    /// A web page: the answer of a site or a proxy.
    Html,
    /// The answer of an object store.
    Xml,
    /// JSON text.
    Json,
    /// Safetensors.
    Safetensors,
    /// llama.cpp's format.
    Gguf,
    /// A pack of this project.
    Pack,
    /// A ZIP archive, such as PyTorch's checkpoints.
    Zip,
    /// Something compressed with gzip.
    Gzip,
    /// A Python pickle, as old PyTorch checkpoints are.
    Pickle,
}

impl FileKind {
    /// Returns the kind of a file that begins with these bytes, if it is a known one. A few hundred
    /// bytes are enough.
    pub fn of(bytes: &[u8]) -> Option<FileKind> {
        // A header's length is below 16 MB in practice and 100 MB at most, and braces follow.
        if let [_, _, _, _, 0, 0, 0, 0, b'{', ..] = bytes {
            return Some(FileKind::Safetensors);
        }
        for (magic, kind) in MAGICS {
            if bytes.starts_with(magic) {
                return Some(kind);
            }
        }
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
        let begins = |with: &str| {
            text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        match text.first() {
            None => Some(FileKind::Empty),
            Some(b'{' | b'[') => Some(FileKind::Json),
            _ if begins("<!doctype html") || begins("<html") => Some(FileKind::Html),
            _ if begins("<?xml") => Some(FileKind::Xml),
            _ => None,
        }
    }
}

/// First bytes that no text has, or that no other text has.
const MAGICS: [(&[u8], FileKind); 6] = [
    (b"version https://git-lfs", FileKind::LfsPointer),
    (b"GGUF", FileKind::Gguf),
    (b"MONOPACK", FileKind::Pack),
    (b"PK\x03\x04", FileKind::Zip),
    (b"\x1f\x8b", FileKind::Gzip),
    (b"\x80\x02", FileKind::Pickle),
];

impl fmt::Display for FileKind {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            FileKind::Empty => "an empty file",
            FileKind::LfsPointer => {
                "a Git LFS pointer, not the file it stands for (`git lfs pull` fetches that)"
            }
            FileKind::Html => "an HTML page, the answer of a website or of a proxy",
            FileKind::Xml => "an XML document, such as a file store's error message",
            FileKind::Json => "JSON text",
            FileKind::Safetensors => "a safetensors file",
            FileKind::Gguf => "a GGUF file",
            FileKind::Pack => "a monolith pack",
            FileKind::Zip => "a ZIP archive (PyTorch's own checkpoints are such archives)",
            FileKind::Gzip => "a gzip file",
            FileKind::Pickle => "a Python pickle, as old PyTorch checkpoints are",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_by_its_first_bytes() {
        let cases: [(&[u8], Option<FileKind>); 18] = [
            (b"", Some(FileKind::Empty)),
            (b" \n", Some(FileKind::Empty)),
            (b"version https://git-lfs.github.com/spec/v1\noid", Some(FileKind::LfsPointer)),
            (b"<!DOCTYPE html>", Some(FileKind::Html)),
            (b"\xef\xbb\xbf\r\n<!doctype HTML>", Some(FileKind::Html)),
            (b"<html lang=\"en\">", Some(FileKind::Html)),
            (b"<?xml version=\"1.0\"?><Error>", Some(FileKind::Xml)),
            (b"{\"a\": 1}", Some(FileKind::Json)),
            (b"  [1]", Some(FileKind::Json)),
            (b"\x80\x02\0\0\0\0\0\0{\"a\"", Some(FileKind::Safetensors)),
            (b"PK\x03\x04\0\0\0\0{", Some(FileKind::Safetensors)),
            (b"GGUF\x03\0\0\0", Some(FileKind::Gguf)),
            (b"MONOPACK\x02\0\0\0", Some(FileKind::Pack)),
            (b"PK\x03\x04\x14\0\x08", Some(FileKind::Zip)),
            (b"\x1f\x8b\x08", Some(FileKind::Gzip)),
            (b"\x80\x02\x8a\x0a", Some(FileKind::Pickle)),
            (b"\x10\0\0\0\0\0\0\0", None),
            (b"plain text", None),
        ];
        for (bytes, kind) in cases {
            assert_eq!(FileKind::of(bytes), kind, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
