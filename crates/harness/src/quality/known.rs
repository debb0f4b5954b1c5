//! Models whose card limits the use of their quality figures.

use super::QualityRecord;

/// A model, identified by the hash of its weights' values ([`crate::identity::tensors_sha256`]),
/// whatever its name.
struct Known {
    tensors_sha256: &'static str,
    note: &'static str,
}

const KNOWN: [Known; 1] = [Known {
    tensors_sha256: "1f3703527e2493651fc564c81520ec8da103705fe1d5fabadd769e387ef7da06",
    note: "the stand-in is not for judging weight formats: most of every matrix is noise",
}];

/// Returns the note of the model's card on such figures.
pub fn note(record: &QualityRecord) -> Option<&'static str> {
    let own = record.measured.tensors_sha256.as_ref();
    let hash = own.or(record.control.as_ref().map(|control| &control.tensors_sha256))?;
    KNOWN.iter().find(|known| known.tensors_sha256 == hash).map(|known| known.note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_stand_ins_note_is_its_cards() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let card = std::fs::read_to_string(root.join("data/standin/CARD.md")).unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, said) = KNOWN[0].note.split_once("not for ").unwrap();
        assert!(words(&card).contains(&words(said)), "{said}");
    }

    #[test]
    fn the_committed_records_of_the_stand_in_have_it() {
        let results =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/2026-11-30-h200-01");
        let read = |name: &str| QualityRecord::read(&results.join(name)).unwrap();
        let standin = read("quality-fp8-flag-fp8-9a2911d93e6734a7-ad75c055.json");
        assert_eq!(note(&standin), Some(KNOWN[0].note));
        let tiny = read("quality-fp8-flag-fp8-3f85a2bf7473298d-ffaada56.json");
        assert_eq!(note(&tiny), None);
    }
}
