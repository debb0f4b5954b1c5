//! Reads the records in a run's folder, and recounts each from the tokens beside it.

use super::{ControlFile, OwnControl, QualityRecord, Tokens, forgery};
use crate::HarnessError;
use crate::identity::sha256_hex;
use std::io::Read;
use std::path::Path;

/// The largest file that is read: a hundred times what 100 prompts x 64 tokens need.
const FILE_MAX: u64 = 16 << 20;

/// A record, with the reason to reject it if there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The record.
    pub record: QualityRecord,
    /// It was changed, or it contradicts itself or the files beside it.
    pub doubt: Option<String>,
}

impl Kept {
    /// Reads a record, and recounts its agreements from the tokens beside it.
    ///
    /// # Errors
    /// A file that is missing, too large or not a record.
    pub fn read(path: &Path) -> Result<Kept, HarnessError> {
        let record = QualityRecord::read(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let doubt = forgery(&record).or_else(|| recounted(&record, folder).err());
        Ok(Kept { record, doubt })
    }
}

/// Returns the name of a file that is named by its contents' hash.
pub(super) fn name_of(kind: &str, sha256: &str) -> Option<String> {
    let digits = sha256.get(..8).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some(format!("{kind}-{digits}.json"))
}

/// Reads a file, unless it is too large.
pub(super) fn bounded_file(path: &Path) -> Result<Vec<u8>, HarnessError> {
    let file = std::fs::File::open(path).map_err(HarnessError::io(path))?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(HarnessError::io(path))?;
    if bytes.len() as u64 > FILE_MAX {
        let what = format!("it is larger than the {} MiB that are read", FILE_MAX >> 20);
        return Err(HarnessError::file(path, what));
    }
    Ok(bytes)
}

/// Returns the file beside a record that has this hash.
fn beside(folder: &Path, kind: &str, sha256: &str) -> Result<Vec<u8>, String> {
    let name = name_of(kind, sha256).ok_or_else(|| format!("its {kind} file has no hash"))?;
    let bytes = bounded_file(&folder.join(&name)).map_err(|error| match error {
        HarnessError::Io { source, .. } => format!("{name}: {source}"),
        other => other.to_string(),
    })?;
    if sha256_hex(&bytes) != sha256 {
        return Err(format!("{name} is not the file that the record names"));
    }
    Ok(bytes)
}

/// Checks that the record's counts are those of the tokens beside it.
fn recounted(record: &QualityRecord, folder: &Path) -> Result<(), String> {
    let new = record.measured.options.new;
    let control = match &record.control {
        None => None,
        Some(control) => {
            let file = ControlFile::kept(beside(folder, "control", &control.sha256)?, new)?;
            if file.control != *control {
                return Err("the control is not what its file says".into());
            }
            Some(file)
        }
    };
    let Some(sha256) = &record.tokens_sha256 else {
        // A record of version 1 kept only counts.
        return Ok(());
    };
    let tokens = Tokens::parse(&beside(folder, "tokens", sha256)?, new)?;
    if tokens.prompt_ids_sha256 != record.measured.prompts.ids_sha256 {
        return Err("the tokens are of other prompts".into());
    }
    if tokens.scores() != record.numbers.prompts {
        return Err("the agreement is not what the tokens give".into());
    }
    let own = control.and_then(|file| tokens.own_scores(&file.f32));
    if own.map(|prompts| OwnControl::of(prompts, new)) != record.own_control {
        return Err("the own control is not what the tokens give".into());
    }
    Ok(())
}
