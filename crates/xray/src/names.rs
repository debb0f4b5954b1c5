//! Helpers for serde that write phases and kinds by name: files and reports say `qkv`, not an id.

use monolith_abi::{EventKind, Phase};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serializer};
use std::collections::BTreeMap;

use crate::PhaseBytes;

/// Escapes control characters, so that text from a file cannot send commands to the terminal.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Writes a phase as its name.
pub(crate) fn phase<S: Serializer>(phase: &Phase, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(phase.name())
}

/// Writes a kind as its name.
pub(crate) fn kind<S: Serializer>(kind: &EventKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

/// Writes the bytes of each phase as an object, in order of the phases.
pub(crate) fn phase_bytes<S: Serializer>(all: &[PhaseBytes], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(all.len()))?;
    for PhaseBytes { phase, bytes } in all {
        map.serialize_entry(phase.name(), bytes)?;
    }
    map.end()
}

/// Reads the same object, with keys in any order.
pub(crate) fn read_phase_bytes<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<PhaseBytes>, D::Error> {
    let by_name: BTreeMap<String, u64> = BTreeMap::deserialize(from)?;
    let row = |(name, bytes): (String, u64)| match Phase::from_name(&name) {
        Some(phase) => Ok(PhaseBytes { phase, bytes }),
        None => Err(D::Error::custom(format!("meta.phase_bytes: unknown phase {name:?}"))),
    };
    let mut all: Vec<PhaseBytes> = by_name.into_iter().map(row).collect::<Result<_, _>>()?;
    all.sort_by_key(|row| row.phase);
    Ok(all)
}
