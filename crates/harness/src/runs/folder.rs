//! One run's folder: what is in it, and what may be added.

use super::index::{Index, IndexEntry, is_sealed};
use crate::HarnessError;
use crate::bench::{Output, Row, StreamRecord, rendered};
use crate::environment::{Environment, slug};
use crate::files::{self, read_file, write_json};
use crate::gate::GateRecord;
use crate::identity::{file_sha256, sha256_hex};
use crate::quality::{Kept, Outcome};
use crate::reference::Summary;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A command that was part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// When it was recorded, UTC.
    pub date: String,
    /// The command as it was typed.
    pub command: String,
    /// The relevant versions: of this program, CUDA, NVRTC, torch and so on.
    pub versions: Vec<String>,
}

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    /// The folder's path.
    pub path: PathBuf,
    /// The folder's name in the index.
    pub name: String,
}

impl RunFolder {
    /// Opens the folder of the environment's run, or makes a new one.
    ///
    /// # Errors
    /// A results folder that cannot be read or written, or a run that is sealed.
    pub fn open(results: &Path, environment: &Environment) -> Result<RunFolder, HarnessError> {
        std::fs::create_dir_all(results).map_err(HarnessError::io(results))?;
        // If two processes begin a run, one waits. Without locks, the last one wins.
        let held = File::open(results).map_err(HarnessError::io(results))?;
        let _ = held.lock();
        let mut index = Index::read(results)?;
        for entry in index.runs.iter().rev() {
            let folder = RunFolder::named(results, &entry.folder);
            if folder.environment().is_ok_and(|own| own.run_id == environment.run_id) {
                return entry.open(results)?.0.unsealed(results);
            }
        }
        let stem = format!("{}-{}", environment.day(), slug(&environment.kind, &environment.gpu));
        let folder = RunFolder::create(results, &stem)?;
        write_json(&folder.path.join("environment.json"), environment)?;
        index.runs.push(IndexEntry::of(&folder.name, environment));
        index.write(results)?;
        Ok(folder)
    }

    /// Makes a new folder, with the first free number.
    fn create(results: &Path, stem: &str) -> Result<RunFolder, HarnessError> {
        for number in 1..=u32::MAX {
            let folder = RunFolder::named(results, &format!("{stem}-{number:02}"));
            match std::fs::create_dir(&folder.path) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(HarnessError::io(&folder.path)(error)),
            }
        }
        Err(HarnessError::file(results, "there are too many runs of one day"))
    }

    /// Returns the folder, if files may be added.
    fn unsealed(self, results: &Path) -> Result<RunFolder, HarnessError> {
        if is_sealed(results, &self.name)? {
            let what = "this run is sealed (MANIFEST lists its files), so nothing is added to it: \
                        name another folder with --results";
            return Err(HarnessError::file(&self.path, what));
        }
        Ok(self)
    }

    /// Returns a folder that is in the index.
    pub fn named(results: &Path, name: &str) -> RunFolder {
        RunFolder { path: results.join(name), name: name.into() }
    }

    /// Reads the environment that the run began with.
    ///
    /// # Errors
    /// A file that is missing or of another kind.
    pub fn environment(&self) -> Result<Environment, HarnessError> {
        files::read_json(&self.path.join("environment.json"))
    }

    /// Reads every row.
    ///
    /// # Errors
    /// A line that is not a row; a missing file has none. A torn last line does not count
    /// ([`RunFolder::torn`]).
    pub fn rows(&self) -> Result<Vec<Row>, HarnessError> {
        Ok(files::read_lines(&self.rows_path())?.items)
    }

    /// Reads every command.
    ///
    /// # Errors
    /// A line that is not a command; a missing file has none. A torn last line does not count
    /// ([`RunFolder::torn`]).
    pub fn commands(&self) -> Result<Vec<CommandRecord>, HarnessError> {
        Ok(files::read_lines(&self.commands_path())?.items)
    }

    /// Describes the last lines that an interrupted write left incomplete.
    pub fn torn(&self) -> Vec<String> {
        let rows = files::read_lines::<serde::de::IgnoredAny>(&self.rows_path());
        let commands = files::read_lines::<serde::de::IgnoredAny>(&self.commands_path());
        [rows, commands].into_iter().filter_map(|lines| lines.ok()?.torn).collect()
    }

    fn rows_path(&self) -> PathBuf {
        self.path.join("rows.jsonl")
    }

    fn commands_path(&self) -> PathBuf {
        self.path.join("commands.jsonl")
    }

    /// Reads every gate record, by file name, or why a file with such a name is not one.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn gates(&self) -> Result<(Vec<GateRecord>, Vec<String>), HarnessError> {
        let (mut records, mut others) = (Vec::new(), Vec::new());
        for path in self.records("gate-")? {
            match GateRecord::read(&path) {
                Ok(record) => records.push(record),
                Err(error) => others.push(error.to_string()),
            }
        }
        Ok((records, others))
    }

    /// Reads every quality record, by file name.
    ///
    /// # Errors
    /// A folder that cannot be listed. A file that is not a record is skipped.
    pub fn qualities(&self) -> Result<Vec<Kept>, HarnessError> {
        let paths = self.records("quality-")?;
        Ok(paths.iter().filter_map(|path| Kept::read(path).ok()).collect())
    }

    /// Reads every record of token streams, by file name, or why a file with such a name is none.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn streams(&self) -> Result<(Vec<StreamRecord>, Vec<String>), HarnessError> {
        let (mut records, mut others) = (Vec::new(), Vec::new());
        for path in self.records("stream-")? {
            match StreamRecord::read(&path) {
                Ok(record) => records.push(record),
                Err(error) => others.push(error.to_string()),
            }
        }
        Ok((records, others))
    }

    /// Lists the JSON files whose names begin like this, in order.
    fn records(&self, begin: &str) -> Result<Vec<PathBuf>, HarnessError> {
        let listed = std::fs::read_dir(&self.path).map_err(HarnessError::io(&self.path))?;
        let mut paths: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(begin) && name.ends_with(".json"))
        });
        paths.sort();
        Ok(paths)
    }

    /// Adds rows. Reports a torn last line that was removed before.
    ///
    /// # Errors
    /// Rows of another run or without a gate, or a file that cannot be written.
    pub fn add_rows(&self, rows: &[Row]) -> Result<Option<String>, HarnessError> {
        let own = self.environment()?.run_id;
        let path = self.rows_path();
        if let Some(row) = rows.iter().find(|row| row.run_id != own) {
            let what = format!("a row of run {} does not belong to run {own}", row.run_id);
            return Err(HarnessError::file(&path, what));
        }
        let unverified =
            |row: &&Row| row.gate_passed != Some(true) && row.subject().ours().is_some();
        if let Some(row) = rows.iter().find(unverified) {
            let what = format!("the row of {} is unverified: no run keeps it", row.test);
            return Err(HarnessError::file(&path, what));
        }
        files::append(&path, &rendered(rows, Output::Jsonl))
    }

    /// Adds a record of token streams, whole or not at all; gives its path.
    ///
    /// # Errors
    /// A record of another run or without a gate, or a file that cannot be written.
    pub fn add_streams(&self, record: &StreamRecord) -> Result<PathBuf, HarnessError> {
        let (own, theirs) = (self.environment()?.run_id, &record.subject.run_id);
        let refused = |what: String| Err(HarnessError::file(&self.path, what));
        if *theirs != own {
            return refused(format!("streams of run {theirs} do not belong to run {own}"));
        }
        if record.gate_passed != Some(true) {
            let variant = &record.subject.variant;
            return refused(format!("the streams of {variant} are unverified: no run keeps them"));
        }
        record.write(&self.path)
    }

    /// Adds a command. Reports a torn last line that was removed before.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add_command(
        &self,
        command: &str,
        versions: &[String],
    ) -> Result<Option<String>, HarnessError> {
        let record = CommandRecord {
            date: crate::now(),
            command: command.into(),
            versions: versions.to_vec(),
        };
        let line = serde_json::to_string(&record).expect("plain data is JSON") + "\n";
        files::append(&self.commands_path(), &line)
    }

    /// Adds a gate's record, after the summary of its reference.
    ///
    /// # Errors
    /// A file that cannot be read or written, or a reference that is not the record's.
    pub fn add_gate(&self, record: &GateRecord, reference: &Path) -> Result<(), HarnessError> {
        self.keep(&reference.join("reference.json"), "reference", &record.reference.sha256)?;
        record.write(&self.path).map(drop)
    }

    /// Keeps a copy of a file that a record depends on, named by its hash.
    ///
    /// # Errors
    /// The file has another hash, or another file already has the copy's name.
    fn keep(&self, from: &Path, name: &str, sha256: &str) -> Result<(), HarnessError> {
        let to = self.path.join(kept_name(name, sha256));
        let missing = || HarnessError::io(from)(ErrorKind::NotFound.into());
        let bytes = read_file(from)?.ok_or_else(missing)?;
        let found = sha256_hex(&bytes);
        if found != sha256 {
            let what = format!("its sha256 is {found}, and the record names {sha256}");
            return Err(HarnessError::file(from, what));
        }
        // A link would be wrong once the folder is copied, so the file replaces it.
        let is_link = to.symlink_metadata().is_ok_and(|there| there.is_symlink());
        if !is_link && to.exists() {
            let there = file_sha256(&to)?;
            if there == sha256 {
                return Ok(());
            }
            let what = format!(
                "it exists and holds something else (sha256 {there}): {} is not copied over it",
                from.display()
            );
            return Err(HarnessError::file(&to, what));
        }
        Ok(monolith_files::write_whole(&to, &bytes)?)
    }

    /// Reads the kept summary of a gate's reference. `None` if it was not kept: then nothing can be
    /// recomputed from it.
    ///
    /// # Errors
    /// A file with its name but another hash.
    pub fn reference(&self, record: &GateRecord) -> Result<Option<Summary>, HarnessError> {
        let sha256 = &record.reference.sha256;
        let named = self.path.join(kept_name("reference", sha256));
        if let Some(bytes) = read_file(&named)? {
            let found = sha256_hex(&bytes);
            if found != *sha256 {
                let what = format!("its sha256 is {found}, and the gate names {sha256}");
                return Err(HarnessError::file(&named, what));
            }
            return Summary::parse(&bytes, &named).map(Some);
        }
        // Before 2026-11-30, the last gate's summary was kept under this name.
        let last = self.path.join("reference.json");
        match read_file(&last)? {
            Some(bytes) if sha256_hex(&bytes) == *sha256 => Summary::parse(&bytes, &last).map(Some),
            _ => Ok(None),
        }
    }

    /// Adds a quality record, with the files that it names; gives its path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add_quality(&self, outcome: &Outcome) -> Result<PathBuf, HarnessError> {
        outcome.write(&self.path)
    }
}

/// Returns the name of a kept copy.
fn kept_name(name: &str, sha256: &str) -> String {
    format!("{name}-{}.json", sha256.get(..8).unwrap_or("unnamed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Probe, Target};

    fn folder(results: &Path) -> RunFolder {
        RunFolder::open(results, &Probe::new(Target::Cpu).environment("a processor")).unwrap()
    }

    /// The copy is whole whatever its source: itself, a link to it, a file beside it.
    #[test]
    fn a_copy_that_is_there_already_stays_whole() {
        let results = tempfile::tempdir().unwrap();
        let folder = folder(results.path());
        let (bytes, sha256) = (b"what was said", sha256_hex(b"what was said"));
        let kept = folder.path.join(kept_name("control", &sha256));
        let is_kept = |from: &Path| {
            folder.keep(from, "control", &sha256).unwrap();
            assert!(!kept.symlink_metadata().unwrap().is_symlink());
            assert_eq!(std::fs::read(&kept).unwrap(), bytes);
        };
        let beside = folder.path.join("control.json");
        std::fs::write(&beside, bytes).unwrap();
        is_kept(&beside);
        is_kept(&kept);
        let link = folder.path.join("link.json");
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        is_kept(&link);
        // A link in the copy's place, even to the file that is copied.
        std::fs::remove_file(&kept).unwrap();
        std::os::unix::fs::symlink(&beside, &kept).unwrap();
        is_kept(&beside);
        std::fs::remove_file(&kept).unwrap();
        std::fs::hard_link(&beside, &kept).unwrap();
        is_kept(&beside);
        assert_eq!(std::fs::read(&beside).unwrap(), bytes);
    }

    #[test]
    fn another_file_of_the_same_name_is_not_replaced() {
        let results = tempfile::tempdir().unwrap();
        let folder = folder(results.path());
        let (from, sha256) = (results.path().join("c.json"), sha256_hex(b"what was said"));
        let kept = folder.path.join(kept_name("control", &sha256));
        std::fs::write(&from, "what was said").unwrap();
        std::fs::write(&kept, "something else").unwrap();
        let error = folder.keep(&from, "control", &sha256).unwrap_err().to_string();
        assert!(error.contains(&kept.display().to_string()), "{error}");
        assert!(error.contains(&from.display().to_string()), "{error}");
        assert_eq!(std::fs::read(&kept).unwrap(), b"something else");
    }

    #[test]
    fn only_the_file_that_the_record_names_is_kept() {
        let results = tempfile::tempdir().unwrap();
        let folder = folder(results.path());
        let (from, sha256) = (results.path().join("c.json"), sha256_hex(b"what was said"));
        let kept = folder.path.join(kept_name("control", &sha256));
        for text in ["", "changed since"] {
            std::fs::write(&from, text).unwrap();
            let error = folder.keep(&from, "control", &sha256).unwrap_err().to_string();
            assert!(error.contains("c.json") && error.contains(&sha256), "{error}");
        }
        std::fs::remove_file(&from).unwrap();
        assert!(folder.keep(&from, "control", &sha256).is_err());
        assert!(!kept.exists());
    }

    #[test]
    fn runs_of_one_day_are_numbered() {
        let results = tempfile::tempdir().unwrap();
        let first = Probe::new(Target::Cpu).environment("a processor");
        let second = Environment { run_id: "another".into(), ..first.clone() };
        let names = [&first, &second, &first]
            .map(|environment| RunFolder::open(results.path(), environment).unwrap().name);
        assert!(names[0].ends_with("-cpu-01") && names[1].ends_with("-cpu-02"), "{names:?}");
        assert_eq!(names[0], names[2]);
        assert_eq!(Index::read(results.path()).unwrap().runs.len(), 2);
    }
}
