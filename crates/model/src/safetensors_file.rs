//! The header of a safetensors file: reads it with more checks than the library's, and writes it
//! before the tensors exist.

use crate::{ModelError, json};
use monolith_files::FileKind;
use safetensors::tensor::{Metadata, SafeTensors};
use serde::Serializer;
use std::path::Path;

/// Length of the number before the header's text.
const LENGTH_BYTES: usize = 8;

/// Returns where the tensors' bytes begin, and the header's entries.
///
/// # Errors
/// A file of another kind (named), a damaged header, or one that names a tensor twice, from which
/// programs would read different weights.
pub fn read_header(bytes: &[u8], path: &Path) -> Result<(usize, Metadata), ModelError> {
    let damaged = |what: String| ModelError::Safetensors { path: path.to_owned(), what };
    if let Some(kind) = FileKind::of(bytes).filter(|kind| *kind != FileKind::Safetensors) {
        return Err(damaged(format!("not a safetensors file, but {kind}")));
    }
    // First the library, which bounds the header's length by the file's.
    let (header, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|error| damaged(format!("not a safetensors file, or damaged: {error}")))?;
    let begin = LENGTH_BYTES.saturating_add(header);
    let text = bytes.get(LENGTH_BYTES..begin).unwrap_or_default();
    json::check(text).map_err(|error| damaged(format!("header: {error}")))?;
    Ok((begin, metadata))
}

/// A tensor to write.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its type's name in safetensors.
    pub dtype: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Length of its values.
    pub bytes: u64,
}

/// A header's entry under one name.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Said {
    /// Of the file: transformers needs the name of the framework whose layout the tensors have.
    File { format: &'static str },
    /// Of a tensor.
    Tensor { dtype: &'static str, shape: Vec<usize>, data_offsets: [u64; 2] },
}

/// Returns length and text of a header for consecutive tensors, padded to 8 bytes.
pub fn header(tensors: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut begin = 0;
    let tensors = tensors.into_iter().map(|Entry { name, dtype, shape, bytes }| {
        let data_offsets = [begin, begin + bytes];
        begin = data_offsets[1];
        (name, Said::Tensor { dtype, shape, data_offsets })
    });
    let said = [("__metadata__".to_owned(), Said::File { format: "pt" })].into_iter();
    let mut text = Vec::new();
    serde_json::Serializer::new(&mut text)
        .collect_map(said.chain(tensors))
        .expect("writing names and numbers to memory cannot fail");
    text.resize(text.len().next_multiple_of(LENGTH_BYTES), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this header's text and this many bytes of tensors.
    fn file(header: &str, bytes: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + bytes, 1);
        file
    }

    fn refused(bytes: &[u8]) -> String {
        read_header(bytes, Path::new("a.safetensors")).unwrap_err().to_string()
    }

    #[test]
    fn what_is_named_twice_is_refused_by_name() {
        let entry = |name: &str, begin: usize| {
            format!(
                r#""{name}":{{"dtype":"BF16","shape":[1],"data_offsets":[{begin},{}]}}"#,
                begin + 2
            )
        };
        let good = format!("{{{},{}}}", entry("a", 0), entry("b", 2));
        let (begin, metadata) = read_header(&file(&good, 4), Path::new("a.safetensors")).unwrap();
        assert_eq!((begin, metadata.tensors().len()), (8 + good.len(), 2));

        let swapped =
            format!("{{{},{},{},{}}}", entry("a", 0), entry("b", 2), entry("a", 2), entry("b", 0));
        assert!(refused(&file(&swapped, 4)).contains(r#"the key "a" is there twice"#));
        let same = format!("{{{},{}}}", entry("a", 0), entry("a", 0));
        assert!(refused(&file(&same, 2)).contains(r#"the key "a" is there twice"#));
        let metadata = format!(r#"{{"__metadata__":{{"x":"1","x":"2"}},{}}}"#, entry("a", 0));
        assert!(refused(&file(&metadata, 2)).contains(r#"the key "x" is there twice"#));
        let field = good.replacen(r#""shape":[1]"#, r#""shape":[1],"shape":[1]"#, 1);
        assert!(refused(&file(&field, 4)).contains("shape"));
    }

    #[test]
    fn other_files_are_named_for_what_they_are() {
        for (bytes, word) in [
            (&b""[..], "an empty file"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "a Git LFS pointer"),
            (b"<!DOCTYPE html><html></html>", "an HTML page"),
            (b"GGUF\x03\0\0\0\0\0\0\0", "a GGUF file"),
            (b"{\"error\": \"not found\"}", "JSON text"),
            (b"PK\x03\x04\0\0\x08\x08\0\0", "a ZIP archive"),
        ] {
            let message = refused(bytes);
            assert!(message.contains(word) && message.contains("a.safetensors"), "{message}");
        }
        assert!(refused(b"\x10\0\0").contains("damaged"));
    }
}
