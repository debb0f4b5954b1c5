//! Token streams side by side, as the page's race replays them.
//!
//! A race is of one measuring run, one processor, one model, and one test with the same prompts:
//! [`Race::join`] refuses every other stream. A stream races only if the report shows the row that
//! it repeats, whose gate is recomputed.

use super::speeds::gate_words;
use super::{Run, runs};
use crate::HarnessError;
use crate::bench::{Row, Stream, StreamRecord};
use crate::subject::Subject;
use serde::Serialize;
use std::path::Path;

/// Format and version, first in the data.
pub const SCHEMA: &str = "monolith-race/1";

/// Every processor's races.
#[derive(Clone, Debug, Serialize)]
pub struct PageRaces {
    schema: &'static str,
    /// Of each processor and model, the race with the most lanes; the newest among equals. GPUs
    /// first.
    races: Vec<Race>,
    /// Processors that have speeds but no race, with the reason.
    missing: Vec<String>,
    /// Records that are missing, damaged or contradictory.
    pub problems: Vec<String>,
}

/// What may race together: everything here is the same for all lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Course {
    run_id: String,
    kind: String,
    gpu: String,
    model: String,
    test: String,
    prompt_ids_sha256: String,
    clock: String,
}

/// Streams of one measuring run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Race {
    /// Folder in `results/`.
    run: String,
    date: String,
    #[serde(flatten)]
    course: Course,
    lanes: Vec<Lane>,
    prompts: Vec<RacePrompt>,
    /// Engines of the same run and model whose single tokens were not timed, or may not be shown.
    absent: Vec<String>,
}

/// One engine in a race.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Lane {
    engine: String,
    variant: String,
    format: String,
    gate: String,
    commit: Option<String>,
    /// Of the whole pass, in which every token was timed.
    pass_tok_s: f64,
    /// The row's median.
    headline_tok_s: f64,
    /// Prompts of the pass.
    pass_prompts: usize,
}

/// One prompt, with a stream for each lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct RacePrompt {
    prompt: usize,
    text: String,
    streams: Vec<LaneStream>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LaneStream {
    /// Text of the token that the prompt gives.
    first: String,
    pieces: Vec<String>,
    ns: Vec<u64>,
    /// The whole time of each run, of which this is the median.
    runs_ns: Vec<u64>,
    /// Tokens from the first on that are the first lane's, its prompt's own included.
    agrees: usize,
    #[serde(skip)]
    tokens: Vec<u32>,
}

/// Why a stream cannot join a race.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaceError {
    /// It is of another run, processor, model or test.
    #[error("it is of another {what}: {theirs}, not {own}")]
    Apart {
        /// What differs.
        what: &'static str,
        /// The race's.
        own: String,
        /// The stream's.
        theirs: String,
    },
    /// It has other prompts.
    #[error("it has other prompts")]
    Prompts,
    /// No row that is shown has its tokens and its build.
    #[error("no speed that is shown has its build and its tokens")]
    NoRow,
}

impl PageRaces {
    /// Reads every run with token streams.
    ///
    /// # Errors
    /// A results folder, an index or a record that cannot be read.
    pub fn of(results: &Path) -> Result<PageRaces, HarnessError> {
        let (found, mut problems) = runs(results)?;
        let mut races: Vec<Race> = Vec::new();
        for run in &found {
            let (records, others) = run.folder.streams()?;
            problems.extend(others);
            for race in races_of(run, &records) {
                let is_same = |other: &&mut Race| race.is_of_the_same(other);
                match races.iter_mut().find(is_same) {
                    None => races.push(race),
                    Some(newer) if race.lanes.len() > newer.lanes.len() => *newer = race,
                    Some(_) => {}
                }
            }
        }
        races.sort_by_key(|race| race.course.kind != "gpu");
        let missing = missing(&found, &races);
        Ok(PageRaces { schema: SCHEMA, races, missing, problems })
    }
}

/// A run's races: one for each model, test and set of prompts.
fn races_of(run: &Run, records: &[StreamRecord]) -> Vec<Race> {
    let mut races: Vec<Race> = Vec::new();
    let mut refused: Vec<(&StreamRecord, RaceError)> = Vec::new();
    for record in records {
        let row = match shown_row(run, record) {
            Ok(row) => row,
            Err(error) => {
                refused.push((record, error));
                continue;
            }
        };
        if !races.iter_mut().any(|race| race.join(record, row).is_ok()) {
            races.push(Race::begin(run, record, row));
        }
    }
    for race in &mut races {
        race.absent = absent(run, race, &refused);
    }
    races
}

/// The shown row that a record repeats.
fn shown_row<'a>(run: &'a Run, record: &StreamRecord) -> Result<&'a Row, RaceError> {
    let (own, theirs) = (&run.environment, &record.subject);
    let facts = [("run", &own.run_id, &theirs.run_id), ("processor", &own.gpu, &theirs.gpu)];
    if let Some((what, own, theirs)) = facts.into_iter().find(|(_, own, theirs)| own != theirs) {
        return Err(RaceError::Apart { what, own: own.clone(), theirs: theirs.clone() });
    }
    let subject = Subject::of_fields(theirs.clone());
    let is_repeated = |row: &&Row| {
        row.subject() == subject
            && row.gate_passed == Some(true)
            && (&row.model, &row.test) == (&record.model, &record.test)
            && row.prompt_ids_sha256 == record.prompt_ids_sha256
            && row.tokens_sha256 == record.tokens_sha256
    };
    run.rows.shown.iter().find(is_repeated).ok_or(RaceError::NoRow)
}

/// Says which engines of the race's run and model do not race.
fn absent(run: &Run, race: &Race, refused: &[(&StreamRecord, RaceError)]) -> Vec<String> {
    let mut absent: Vec<String> = Vec::new();
    let is_of = |row: &&Row| row.model == race.course.model;
    for row in run.rows.shown.iter().filter(is_of) {
        let races = race.lanes.iter().any(|lane| {
            (&lane.engine, &lane.variant, &lane.format) == (&row.engine, &row.variant, &row.format)
        });
        let is_own = |record: &&(&StreamRecord, RaceError)| {
            let subject = &record.0.subject;
            (&subject.engine, &subject.variant) == (&row.engine, &row.variant)
                && record.0.model == row.model
        };
        let why = match refused.iter().find(is_own) {
            Some((_, error)) => format!("its streams are not shown: {error}"),
            None => "its single tokens were not timed".into(),
        };
        let line = format!("{} {}: {why}", row.engine, row.variant);
        if !races && !absent.contains(&line) {
            absent.push(line);
        }
    }
    absent
}

/// The processors with speeds and without a race.
fn missing(found: &[Run], races: &[Race]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for run in found.iter().filter(|run| !run.rows.shown.is_empty()) {
        let (kind, gpu) = run.processor();
        let races = races.iter().any(|race| (&*race.course.kind, &*race.course.gpu) == (kind, gpu));
        let line = format!("{gpu}: no run so far has timed single tokens");
        if !races && !missing.contains(&line) {
            missing.push(line);
        }
    }
    missing
}

impl Course {
    fn of(record: &StreamRecord) -> Course {
        let subject = &record.subject;
        Course {
            run_id: subject.run_id.clone(),
            kind: record.kind.clone(),
            gpu: subject.gpu.clone(),
            model: record.model.clone(),
            test: record.test.clone(),
            prompt_ids_sha256: record.prompt_ids_sha256.clone(),
            clock: record.clock.clone(),
        }
    }

    fn facts(&self) -> [(&'static str, &String); 7] {
        [
            ("run", &self.run_id),
            ("kind of processor", &self.kind),
            ("processor", &self.gpu),
            ("model", &self.model),
            ("test", &self.test),
            ("set of prompts", &self.prompt_ids_sha256),
            ("clock", &self.clock),
        ]
    }
}

impl Race {
    /// A race with its first lane.
    fn begin(run: &Run, record: &StreamRecord, row: &Row) -> Race {
        let prompts = record.streams.iter().map(|stream| RacePrompt {
            prompt: stream.prompt,
            text: stream.prompt_text.clone(),
            streams: vec![LaneStream::of(stream, None)],
        });
        Race {
            run: run.folder.name.clone(),
            date: run.environment.day().to_owned(),
            course: Course::of(record),
            lanes: vec![Lane::of(record, row)],
            prompts: prompts.collect(),
            absent: Vec::new(),
        }
    }

    /// Adds a lane.
    ///
    /// # Errors
    /// A stream of another run, processor, model, test or clock, or after other prompts. The race
    /// is then as it was.
    fn join(&mut self, record: &StreamRecord, row: &Row) -> Result<(), RaceError> {
        let course = Course::of(record);
        let pairs = self.course.facts().into_iter().zip(course.facts());
        if let Some(((what, own), (_, theirs))) = pairs.into_iter().find(|(a, b)| a != b) {
            return Err(RaceError::Apart { what, own: own.clone(), theirs: theirs.clone() });
        }
        let ours = self.prompts.iter().map(|prompt| (prompt.prompt, &prompt.text));
        if !ours.eq(record.streams.iter().map(|stream| (stream.prompt, &stream.prompt_text))) {
            return Err(RaceError::Prompts);
        }
        for (prompt, stream) in self.prompts.iter_mut().zip(&record.streams) {
            let lane = LaneStream::of(stream, prompt.streams.first());
            prompt.streams.push(lane);
        }
        self.lanes.push(Lane::of(record, row));
        Ok(())
    }

    /// Whether both are of one processor and model.
    fn is_of_the_same(&self, other: &Race) -> bool {
        let (own, theirs) = (&self.course, &other.course);
        (&own.kind, &own.gpu, &own.model) == (&theirs.kind, &theirs.gpu, &theirs.model)
    }
}

impl Lane {
    fn of(record: &StreamRecord, row: &Row) -> Lane {
        Lane {
            engine: record.subject.engine.clone(),
            variant: record.subject.variant.clone(),
            format: record.subject.format.clone(),
            gate: gate_words(row).into(),
            commit: record.subject.commit.clone(),
            pass_tok_s: record.pass.tok_s,
            headline_tok_s: row.tok_s_median.unwrap_or(record.pass.headline_tok_s),
            pass_prompts: record.pass.prompts,
        }
    }
}

impl LaneStream {
    fn of(stream: &Stream, first_lane: Option<&LaneStream>) -> LaneStream {
        let tokens = std::iter::once(stream.first.token).chain(stream.tokens.iter().copied());
        let tokens: Vec<u32> = tokens.collect();
        let base = first_lane.map_or(&tokens, |lane| &lane.tokens);
        let agrees = tokens.iter().zip(base).take_while(|(own, other)| own == other).count();
        LaneStream {
            first: stream.first.piece.clone(),
            pieces: stream.pieces.clone(),
            ns: stream.ns.clone(),
            runs_ns: stream.runs_ns.clone(),
            agrees,
            tokens,
        }
    }
}
