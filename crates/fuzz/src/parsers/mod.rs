//! The parsers, each with inputs to begin with and what is done with one that it takes.

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

/// What eats files of one kind.
pub struct Parser {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Its share of all inputs: what is cheap gets many.
    pub weight: u64,
    /// Inputs to begin with.
    pub corpus: fn() -> Result<Vec<Vec<u8>>>,
    /// Changes one, perhaps with a piece of another.
    pub mutate: fn(&[u8], &[u8], &mut Random) -> Vec<u8>,
    /// Writes what lies beside the input.
    pub prepare: fn(&Scratch) -> Result<()>,
    /// Reads an input, and goes on with it as the program does; whether it was taken.
    pub run: fn(&[u8], &Scratch) -> bool,
}

/// A folder of one's own, in memory where the system has such.
pub struct Scratch(TempDir);

impl Scratch {
    /// An empty one.
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

    /// Writes a file into it; false if the system does not let us.
    pub fn put(&self, name: &str, bytes: &[u8]) -> bool {
        std::fs::write(self.path(name), bytes).is_ok()
    }

    /// Writes a file that the parser needs beside its input.
    pub fn need(&self, name: &str, bytes: &[u8]) -> Result<()> {
        anyhow::ensure!(self.put(name, bytes), "{name} cannot be written");
        Ok(())
    }

    /// A file in it.
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

/// The parser of this name.
pub fn find(name: &str) -> Result<&'static Parser> {
    let names = || all().iter().map(|parser| parser.name).collect::<Vec<_>>().join(", ");
    all()
        .into_iter()
        .chain(injected::PARSERS)
        .find(|parser| parser.name == name)
        .with_context(|| format!("no parser {name:?}; there are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::input;

    /// What nobody changed is taken, so that what follows a parser is reached at all; and some of
    /// the first inputs run without a panic.
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
