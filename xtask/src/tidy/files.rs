//! Files that must exist, and files that must not be large.

use std::path::Path;

use super::Finding;

/// What later steps and other languages rely on.
const REQUIRED: [&str; 3] =
    ["Cargo.lock", "crates/xray/trace.schema.json", "web/package-lock.json"];

const BYTES_MAX: u64 = 2_000_000;

/// Larger files that are worth their place in every clone.
const LARGER: [(&str, u64); 2] = [
    ("data/tiny/model.safetensors", 15_000_000),
    ("data/standin/deltas-00001-of-00001.safetensors", 15_000_000),
];

pub fn missing(root: &Path) -> Vec<Finding> {
    let missing = REQUIRED.iter().filter(|path| !root.join(path).is_file());
    missing.map(|path| Finding::new(path, 0, "missing: add it, and commit it")).collect()
}

pub fn too_large(path: &str, bytes: u64) -> Option<Finding> {
    let listed = LARGER.iter().find(|(larger, _)| *larger == path);
    let max = listed.map_or(BYTES_MAX, |(_, max)| *max);
    (bytes > max).then(|| {
        let what =
            format!("{bytes} bytes, over the limit of {max}: shrink it, or list it in {}", file!());
        Finding::new(path, 0, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("Cargo.lock"), "").unwrap();
        let found: Vec<String> = missing(root.path()).into_iter().map(|f| f.path).collect();
        assert_eq!(found, REQUIRED[1..]);
    }

    #[test]
    fn only_a_listed_file_may_be_large() {
        assert_eq!(too_large("a.bin", BYTES_MAX), None);
        assert!(too_large("a.bin", BYTES_MAX + 1).unwrap().what.contains("2000001 bytes"));
        assert_eq!(too_large("data/tiny/model.safetensors", 15_000_000), None);
        assert!(too_large("data/tiny/model.safetensors", 15_000_001).is_some());
    }
}
