//! Token streams: the tokens of some prompts with the time of each, for the page's race.
//!
//! They are measured in a pass of its own, after the timed runs: the same test again, with an event
//! after each step (on a GPU) or a look at the clock (on a CPU). What that costs is in the record,
//! as the pass's speed beside the row's. The pass must give the row's tokens. The prompts whose
//! streams are kept run a few times more, and of each the run of median length is kept.

use super::{Bench, Row};
use crate::adapters::{Contender, TimedAnswer};
use crate::files::{read_file, write_whole};
use crate::gate::plain_name;
use crate::identity::{sha256_hex, short};
use crate::subject::Ours;
use crate::{HarnessError, Progress};
use monolith_text::Tokenizer;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Format and version, first in the record.
const SCHEMA: &str = "monolith-stream/1";
/// The prompts whose stream is kept: of the benchmark's, an English story, a technical text, a
/// dialogue and a poem. They were chosen before any was timed.
const KEPT: [usize; 4] = [0, 3, 8, 16];
/// Runs of each of them, as many as the benchmark's.
const RUNS: usize = 5;
/// Largest number of streams, and the longest time of one, an hour.
const STREAMS_MAX: usize = 64;
const STREAM_NS_MAX: u64 = 3_600_000_000_000;

/// The streams of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The engine, build and weights, as in the row.
    pub subject: Ours,
    /// `gpu` or `cpu`.
    pub kind: String,
    /// The model's name.
    pub model: String,
    /// When the pass ended, UTC.
    pub date: String,
    /// The test that the pass repeats: `tg256 @ prompts`.
    pub test: String,
    /// Tokens of each stream.
    pub n_gen: usize,
    /// Hash of all prompts' ids.
    pub prompt_ids_sha256: String,
    /// Hash of all prompts' tokens, those of the row.
    pub tokens_sha256: String,
    /// Whether the gate passed, as in the row.
    pub gate_passed: Option<bool>,
    /// Hash of the gate's record, as in the row.
    pub gate_sha256: Option<String>,
    /// The clock that times are read from.
    pub clock: String,
    /// The whole pass.
    pub pass: Pass,
    /// Some prompts' streams, in order of the prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
}

/// The pass in which every token was timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Prompts that it decoded after.
    pub prompts: usize,
    /// Tokens per second, all prompts together.
    pub tok_s: f64,
    /// The row's median, whose runs read the clock only before the first token and after the last.
    pub headline_tok_s: f64,
}

impl Pass {
    /// How much longer a token took than in the row, as a share; negative if it was quicker.
    pub fn cost(&self) -> f64 {
        self.headline_tok_s / self.tok_s - 1.0
    }
}

/// The tokens after one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Number of the prompt in its set, from 0.
    pub prompt: usize,
    /// The prompt.
    pub prompt_text: String,
    /// Its ids.
    pub prompt_ids: Vec<u32>,
    /// The token that the prompt itself gives, which is not timed.
    pub first: First,
    /// The tokens after it.
    pub tokens: Vec<u32>,
    /// The text that each of them completes: whole characters, and nothing for a token that ends
    /// inside one.
    pub pieces: Vec<String>,
    /// Nanoseconds of each of them: from the token before (from the begin) until it was there.
    pub ns: Vec<u64>,
    /// Nanoseconds of all of them together, in each run; the stream is of the median one.
    pub runs_ns: Vec<u64>,
}

/// A prompt's own token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// Its id.
    pub token: u32,
    /// Its text, as in [`Stream::pieces`].
    pub piece: String,
}

impl Bench<'_> {
    /// Decodes after every prompt once more, timing each token, and keeps some prompts' streams.
    /// `row` is the row of that test, just measured. `None`: the engine does not say when a token
    /// was there.
    ///
    /// # Errors
    /// A step that fails; clocks that disagree; other tokens than the row's.
    pub fn streams(
        &mut self,
        row: &Row,
        tokenizer: &Tokenizer,
        progress: &mut Progress,
    ) -> Result<Option<StreamRecord>, HarnessError> {
        let (mut streams, mut all, mut total_ns) = (Vec::new(), Vec::new(), 0);
        let prompts = &self.prompts.ids;
        for (index, prompt) in prompts.iter().enumerate() {
            let what =
                format!("{}, token by token, prompt {} of {}", row.test, index + 1, prompts.len());
            progress(&what);
            let timed = self.contender().decode_timed(prompt, row.n_gen, &what, progress)?;
            let Some(timed) = timed else { return Ok(None) };
            all.extend(timed.tokens.iter().flat_map(|token| token.to_le_bytes()));
            total_ns += timed.at_ns.last().copied().unwrap_or(0);
            if KEPT.contains(&index) {
                let runs = self.repeated(row, (index, timed), &what, progress)?;
                streams.push(Stream::new(index, prompt, &runs, tokenizer));
            }
        }
        let tokens_sha256 = sha256_hex(&all);
        if tokens_sha256 != row.tokens_sha256 {
            return Err(HarnessError::Unsteady { test: format!("{}, token by token", row.test) });
        }
        let tokens = (prompts.len() * row.n_gen) as f64;
        Ok(Some(StreamRecord {
            schema: SCHEMA.into(),
            subject: self.subject()?,
            kind: row.kind.clone(),
            model: row.model.clone(),
            date: crate::now(),
            test: row.test.clone(),
            n_gen: row.n_gen,
            prompt_ids_sha256: row.prompt_ids_sha256.clone(),
            tokens_sha256,
            gate_passed: row.gate_passed,
            gate_sha256: row.gate_sha256.clone(),
            clock: row.clock.clone(),
            pass: Pass {
                prompts: prompts.len(),
                tok_s: tokens / (total_ns as f64 / 1e9),
                headline_tok_s: row.tok_s_median.unwrap_or(f64::NAN),
            },
            streams,
        }))
    }
}

impl Bench<'_> {
    /// [`RUNS`] runs of a prompt, the first of which is there: by length, the shortest first.
    fn repeated(
        &mut self,
        row: &Row,
        (index, first): (usize, TimedAnswer),
        what: &str,
        progress: &mut Progress,
    ) -> Result<Vec<TimedAnswer>, HarnessError> {
        let mut runs = vec![first];
        for _ in 1..RUNS {
            let prompt = &self.prompts.ids[index];
            let run = self.contender().decode_timed(prompt, row.n_gen, what, progress)?;
            runs.push(run.filter(|run| run.tokens == runs[0].tokens).ok_or_else(|| {
                HarnessError::Unsteady { test: format!("{}, token by token", row.test) }
            })?);
        }
        runs.sort_by_key(|run| run.at_ns.last().copied());
        Ok(runs)
    }
}

impl Stream {
    /// The stream of the median of these runs, which are in order.
    fn new(prompt: usize, ids: &[u32], runs: &[TimedAnswer], tokenizer: &Tokenizer) -> Stream {
        let timed = &runs[runs.len() / 2];
        let mut decoder = tokenizer.stream_decoder(false);
        let first =
            First { token: timed.first, piece: decoder.push(timed.first).unwrap_or_default() };
        let pieces = timed.tokens.iter().map(|&token| decoder.push(token).unwrap_or_default());
        let mut pieces: Vec<String> = pieces.collect();
        if let (Some(rest), Some(last)) = (decoder.finish(), pieces.last_mut()) {
            last.push_str(&rest);
        }
        let before = std::iter::once(&0).chain(&timed.at_ns);
        let ns = before.zip(&timed.at_ns).map(|(before, at)| at.saturating_sub(*before));
        Stream {
            prompt,
            prompt_text: tokenizer.decode(ids, false),
            prompt_ids: ids.to_vec(),
            first,
            tokens: timed.tokens.clone(),
            pieces,
            ns: ns.collect(),
            runs_ns: runs.iter().map(|run| run.at_ns.last().copied().unwrap_or(0)).collect(),
        }
    }

    /// What is wrong with a stream of `n_gen` tokens, if anything is.
    fn fault(&self, n_gen: usize, prompts: usize) -> Option<String> {
        let Stream { prompt, tokens, pieces, ns, .. } = self;
        let lengths = [("tokens", tokens.len()), ("pieces", pieces.len()), ("ns", ns.len())];
        if let Some((field, length)) = lengths.iter().find(|(_, length)| *length != n_gen) {
            return Some(format!("{field}: {length} of them, and n_gen is {n_gen}"));
        }
        if *prompt >= prompts {
            return Some(format!("prompt: {prompt}, and the pass had {prompts}"));
        }
        let total = ns.iter().try_fold(0_u64, |sum, &own| sum.checked_add(own));
        match total {
            Some(total @ 1..=STREAM_NS_MAX) => {
                let mut runs = self.runs_ns.clone();
                runs.sort_unstable();
                let is_median = runs.get(runs.len() / 2) == Some(&total);
                (!is_median).then(|| format!("runs_ns: {total} ns are not their median"))
            }
            _ => Some("ns: together neither above 0 nor within an hour".into()),
        }
    }
}

impl StreamRecord {
    /// The record's file name in a run's folder: of the variant and the weights, as a gate's.
    pub fn file_name(&self) -> String {
        let Ours { variant, weights_sha256, .. } = &self.subject;
        format!("stream-{}-{}.json", plain_name(variant), short(weights_sha256))
    }

    /// Writes the record into a run's folder, whole or not at all; returns its path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, HarnessError> {
        let path = folder.join(self.file_name());
        write_whole(&path, &self.text())?;
        Ok(path)
    }

    /// The record as JSON, a line for each stream.
    pub fn text(&self) -> String {
        let head = StreamRecord { streams: Vec::new(), ..self.clone() };
        let head = serde_json::to_string_pretty(&head).expect("a record is JSON");
        let streams = self.streams.iter().map(|stream| {
            let text = serde_json::to_string(stream).expect("a stream is JSON");
            format!("    {text}")
        });
        let streams: Vec<String> = streams.collect();
        let head = head.trim_end_matches("\n}");
        format!("{head},\n  \"streams\": [\n{}\n  ]\n}}\n", streams.join(",\n"))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A file that is missing or is no record: the message names file and field.
    pub fn read(path: &Path) -> Result<StreamRecord, HarnessError> {
        let missing = || HarnessError::io(path)(std::io::ErrorKind::NotFound.into());
        let text = read_file(path)?.ok_or_else(missing)?;
        let mut reader = serde_json::Deserializer::from_slice(&text);
        let record: StreamRecord = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| HarnessError::file(path, error))?;
        reader.end().map_err(|error| HarnessError::file(path, error))?;
        match record.fault() {
            Some(fault) => Err(HarnessError::file(path, fault)),
            None => Ok(record),
        }
    }

    /// What is wrong with the record, if anything is: the field, and why.
    fn fault(&self) -> Option<String> {
        let Pass { prompts, tok_s, headline_tok_s } = self.pass;
        if self.schema != SCHEMA {
            return Some(format!("schema: {:?}, and {SCHEMA:?} is read", self.schema));
        }
        for (field, speed) in [("tok_s", tok_s), ("headline_tok_s", headline_tok_s)] {
            if !(speed > 0.0 && speed.is_finite()) {
                return Some(format!("pass.{field}: {speed} is no speed"));
            }
        }
        if !(1..=STREAMS_MAX).contains(&self.streams.len()) {
            return Some(format!("streams: {}, not 1 to {STREAMS_MAX}", self.streams.len()));
        }
        if !self.streams.is_sorted_by(|a, b| a.prompt < b.prompt) {
            return Some("streams: not in order of their prompts".into());
        }
        let faults = self
            .streams
            .iter()
            .enumerate()
            .find_map(|(index, stream)| Some((index, stream.fault(self.n_gen, prompts)?)));
        faults.map(|(index, fault)| format!("streams[{index}].{fault}"))
    }
}
