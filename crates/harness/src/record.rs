//! Run records: `results/<date>-<gpu>-<nn>/`, one folder a measuring run.
//!
//! A measuring run is one boot of one GPU and may span commands: each adds to the folder, and
//! nothing in it is changed afterwards. Its README is written from the other files.

use crate::bench::{Output, Row, rendered};
use crate::environment::{Environment, slug};
use crate::gate::GateRecord;
use crate::quality::{Kept, Outcome};
use crate::{HarnessError, report};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// `results/index.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Every run, the newest last.
    pub runs: Vec<IndexEntry>,
}

/// One run in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Name of the folder.
    pub folder: String,
    /// Name of the GPU (or of the CPU, for one).
    pub gpu: String,
    /// Day on which it began.
    pub date: String,
    /// `gpu` or `cpu`.
    pub kind: String,
}

impl Index {
    /// Reads `index.json` in a results folder; a missing one is empty.
    ///
    /// # Errors
    /// A file that is no index.
    pub fn read(results: &Path) -> Result<Index, HarnessError> {
        let path = results.join("index.json");
        match std::fs::read(&path) {
            Ok(text) => {
                let index: Index = serde_json::from_slice(&text)
                    .map_err(|error| HarnessError::file(&path, error))?;
                index.checked(&path)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Index::default()),
            Err(error) => Err(HarnessError::io(&path)(error)),
        }
    }

    /// An index that a stranger made must not make us read files elsewhere.
    fn checked(self, path: &Path) -> Result<Index, HarnessError> {
        let plain = |name: &str| Path::new(name).file_name().is_some_and(|file| file == name);
        match self.runs.iter().find(|entry| !plain(&entry.folder)) {
            Some(entry) => {
                let what = format!("folder {:?} is not a plain name", entry.folder);
                Err(HarnessError::file(path, what))
            }
            None => Ok(self),
        }
    }

    fn write(&self, results: &Path) -> Result<(), HarnessError> {
        write_json(&results.join("index.json"), self)
    }
}

/// A command that was part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// When it was recorded, UTC.
    pub date: String,
    /// As it was typed.
    pub command: String,
    /// Versions that matter: of this program, CUDA, NVRTC, torch and so on.
    pub versions: Vec<String>,
}

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    /// Where it is.
    pub path: PathBuf,
    /// Its name in the index.
    pub name: String,
}

impl RunFolder {
    /// The folder of the run that the environment is of: an earlier command's, or a new one.
    ///
    /// # Errors
    /// A results folder that cannot be read or written.
    pub fn open(results: &Path, environment: &Environment) -> Result<RunFolder, HarnessError> {
        std::fs::create_dir_all(results).map_err(HarnessError::io(results))?;
        let mut index = Index::read(results)?;
        for entry in index.runs.iter().rev() {
            let folder = RunFolder::named(results, &entry.folder);
            let found = folder.environment().is_ok_and(|own| own.run_id == environment.run_id);
            if found {
                return Ok(folder);
            }
        }
        let date = environment.date[..10].to_owned();
        let stem = format!("{date}-{}", slug(&environment.kind, &environment.gpu));
        let name = (1..)
            .map(|number| format!("{stem}-{number:02}"))
            .find(|name| !results.join(name).exists())
            .expect("numbers do not end");
        let folder = RunFolder::named(results, &name);
        std::fs::create_dir_all(&folder.path).map_err(HarnessError::io(&folder.path))?;
        write_json(&folder.path.join("environment.json"), environment)?;
        let (gpu, kind) = (environment.gpu.clone(), environment.kind.clone());
        index.runs.push(IndexEntry { folder: name, gpu, date, kind });
        index.write(results)?;
        folder.write_readme()?;
        Ok(folder)
    }

    /// A folder that is in the index.
    pub fn named(results: &Path, name: &str) -> RunFolder {
        RunFolder { path: results.join(name), name: name.into() }
    }

    /// The environment that the run began with.
    ///
    /// # Errors
    /// A file that is missing or something else.
    pub fn environment(&self) -> Result<Environment, HarnessError> {
        read_json(&self.path.join("environment.json"))
    }

    /// Every row.
    ///
    /// # Errors
    /// A line that is no row; a missing file has none.
    pub fn rows(&self) -> Result<Vec<Row>, HarnessError> {
        read_lines(&self.path.join("rows.jsonl"))
    }

    /// Every command.
    ///
    /// # Errors
    /// A line that is no command; a missing file has none.
    pub fn commands(&self) -> Result<Vec<CommandRecord>, HarnessError> {
        read_lines(&self.path.join("commands.jsonl"))
    }

    /// Every gate record, by file name.
    ///
    /// # Errors
    /// A folder that cannot be listed. A file that is no record is left out.
    pub fn gates(&self) -> Result<Vec<GateRecord>, HarnessError> {
        let paths = self.records("gate-")?;
        Ok(paths.iter().filter_map(|path| GateRecord::read(path).ok()).collect())
    }

    /// Every quality record, by file name.
    ///
    /// # Errors
    /// A folder that cannot be listed. A file that is no record is left out.
    pub fn qualities(&self) -> Result<Vec<Kept>, HarnessError> {
        let paths = self.records("quality-")?;
        Ok(paths.iter().filter_map(|path| Kept::read(path).ok()).collect())
    }

    /// The JSON files whose names begin like this, in order.
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

    /// Adds rows.
    ///
    /// # Errors
    /// Rows of another run, or a file that cannot be written.
    pub fn add_rows(&self, rows: &[Row]) -> Result<(), HarnessError> {
        let own = self.environment()?.run_id;
        let path = self.path.join("rows.jsonl");
        if let Some(row) = rows.iter().find(|row| row.run_id != own) {
            let what = format!("a row of run {} does not belong to run {own}", row.run_id);
            return Err(HarnessError::file(&path, what));
        }
        append(&path, &rendered(rows, Output::Jsonl))?;
        self.write_readme()
    }

    /// Adds a command.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add_command(&self, command: &str, versions: &[String]) -> Result<(), HarnessError> {
        let record = CommandRecord {
            date: crate::now(),
            command: command.into(),
            versions: versions.to_vec(),
        };
        let line = serde_json::to_string(&record).expect("plain data is JSON") + "\n";
        append(&self.path.join("commands.jsonl"), &line)?;
        self.write_readme()
    }

    /// Adds a gate's record, and the reference's summary that it was compared with.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn add_gate(&self, record: &GateRecord, reference: &Path) -> Result<(), HarnessError> {
        record.write(&self.path)?;
        self.keep(&reference.join("reference.json"), "reference", &record.reference.sha256)?;
        self.write_readme()
    }

    /// Copies what a record was judged by, under a name of its own.
    fn keep(&self, from: &Path, name: &str, sha256: &str) -> Result<(), HarnessError> {
        let to = self.path.join(format!("{name}-{}.json", &sha256[..8]));
        std::fs::copy(from, &to).map_err(HarnessError::io(from))?;
        Ok(())
    }

    /// Adds a quality record, with the files that it names.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add_quality(&self, outcome: &Outcome) -> Result<(), HarnessError> {
        outcome.write(&self.path)?;
        self.write_readme()
    }

    /// Writes the folder's README from its other files.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn write_readme(&self) -> Result<(), HarnessError> {
        let path = self.path.join("README.md");
        write_whole(&path, &report::run_readme(self)?)
    }
}

fn append(path: &Path, text: &str) -> Result<(), HarnessError> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(HarnessError::io(path))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), HarnessError> {
    let text = serde_json::to_string_pretty(value).expect("plain data is JSON") + "\n";
    write_whole(path, &text)
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), HarnessError> {
    let part = path.with_extension("part");
    std::fs::write(&part, text).map_err(HarnessError::io(&part))?;
    std::fs::rename(&part, path).map_err(HarnessError::io(path))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, HarnessError> {
    let text = std::fs::read(path).map_err(HarnessError::io(path))?;
    serde_json::from_slice(&text).map_err(|error| HarnessError::file(path, error))
}

fn read_lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, HarnessError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HarnessError::io(path)(error)),
    };
    let parsed = text.lines().enumerate().map(|(index, line)| {
        serde_json::from_str(line)
            .map_err(|error| HarnessError::file(path, format!("line {}: {error}", index + 1)))
    });
    parsed.collect()
}
