//! The embedded files: the CUDA sources, and the cubins of a release.

use crate::bundle::{MANIFEST, Manifest, Row};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Returns the manifest of the embedded cubins; `None` if the build embeds none or a broken one.
pub fn manifest() -> Option<Manifest> {
    serde_json::from_slice(file(MANIFEST)?).ok()
}

/// Returns the embedded cubin with this key.
pub(crate) fn find(key: &str) -> Option<(Row, &'static [u8])> {
    let row = manifest()?.kernels.into_iter().find(|row| row.key == key)?;
    let bytes = file(&row.file)?;
    Some((row, bytes))
}

fn file(name: &str) -> Option<&'static [u8]> {
    CUBINS.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Sources, options, sha256};
    use crate::variant::TABLE;
    use crate::{Arch, Shape};
    use monolith_model::synth;

    /// Only a build with `MONOLITH_KERNELS_DIR` has cubins to check here.
    #[test]
    fn embedded_kernels_are_whole_and_of_these_sources() {
        let Some(manifest) = manifest() else {
            assert!(CUBINS.is_empty(), "cubins without a readable {MANIFEST}");
            return;
        };
        for row in &manifest.kernels {
            assert_eq!(sha256(file(&row.file).unwrap()), row.sha256, "{}", row.file);
        }
        let shape = Shape::of(&synth::shape("qwen3-0.6b").unwrap()).unwrap();
        for arch in Arch::ALL {
            let key = Sources::ours().key(&options(arch, &shape, &TABLE[0]));
            assert!(find(&key).is_some(), "no kernel of these sources for {arch}: rebuild");
        }
    }
}
