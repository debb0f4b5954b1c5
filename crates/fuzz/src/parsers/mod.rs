//! The parsers, each with its seed inputs and with what the program does to an accepted input.

mod hub;
mod injected;
mod model;
mod records;
mod text;
mod xray;

use crate::random::Random;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A fuzz target: the parser of one kind of file.
pub struct Parser {
    /// The name on the command line.
    pub name: &'static str,
    /// What the parser reads.
    pub about: &'static str,
    /// The parser's share of all inputs: cheap parsers get more.
    pub weight: u64,
    /// Seed inputs.
    pub corpus: fn() -> Result<Vec<Vec<u8>>>,
    /// Mutates an input, perhaps with a piece of another.
    pub mutate: fn(&[u8], &[u8], &mut Random) -> Vec<u8>,
    /// Writes the files that the parser needs beside the input.
    pub prepare: fn(&Scratch) -> Result<()>,
    /// Parses an input and uses it as the program does; true if the input was accepted.
    pub run: fn(&[u8], &Scratch) -> bool,
}

/// A temporary folder, in memory where the system has `/dev/shm`.
pub struct Scratch(TempDir);

impl Scratch {
    /// An empty folder.
    pub fn new() -> Result<Scratch> {
        let memory = Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        Ok(Scratch(dir.context("no temporary folder")?))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file into the folder; false if that fails.
    pub fn put(&self, name: &str, bytes: &[u8]) -> bool {
        std::fs::write(self.path(name), bytes).is_ok()
    }

    /// Writes a file that the parser needs beside its input.
    pub fn need(&self, name: &str, bytes: &[u8]) -> Result<()> {
        anyhow::ensure!(self.put(name, bytes), "could not write {name}");
        Ok(())
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn nothing(_: &Scratch) -> Result<()> {
    Ok(())
}

/// Every parser.
pub fn all() -> Vec<&'static Parser> {
    let lists = [model::PARSERS, text::PARSERS, records::PARSERS, xray::PARSERS, hub::PARSERS];
    lists.into_iter().flatten().collect()
}

/// The parser with this name.
pub fn find(name: &str) -> Result<&'static Parser> {
    let names = || all().iter().map(|parser| parser.name).collect::<Vec<_>>().join(", ");
    all()
        .into_iter()
        .chain(injected::PARSERS)
        .find(|parser| parser.name == name)
        .with_context(|| format!("there is no parser {name:?}; the parsers are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::input;

    /// Every parser accepts its seed inputs, so the code behind the parser is reached; and some of
    /// the first mutated inputs run without a panic.
    #[test]
    fn every_parser_takes_what_it_begins_with() {
        for parser in all() {
            let scratch = Scratch::new().unwrap();
            (parser.prepare)(&scratch).unwrap();
            let corpus = (parser.corpus)().unwrap();
            assert!(!corpus.is_empty(), "{}", parser.name);
            for (index, bytes) in corpus.iter().enumerate() {
                assert!((parser.run)(bytes, &scratch), "{}: input {index}", parser.name);
            }
            for number in 0..10 {
                (parser.run)(&input(parser, &corpus, 0, number), &scratch);
            }
        }
    }
}
