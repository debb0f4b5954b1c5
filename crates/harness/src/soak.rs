//! The soak: the same texts again and again in one process. Every repetition must give the same
//! tokens, and memory must not grow; the pace is recorded and not judged.

use crate::adapters::{Contender, Monolith};
use crate::bench::Bench;
use crate::environment::Memory;
use crate::files::write_whole;
use crate::identity::sha256_hex;
use crate::subject::Ours;
use crate::{HarnessError, Progress};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Version of the record's layout.
pub const SCHEMA_VERSION: u32 = 1;
/// How much this process may grow after the first text, in bytes: far less than 1 KB a token of a
/// soak of 100,000.
const HOST_GROWTH_MAX: u64 = 32 << 20;
/// How much the GPU's used memory may grow. Memory is granted in pieces of 2 MiB, and other
/// programs may use the GPU a little.
const GPU_GROWTH_MAX: u64 = 16 << 20;

/// How long to soak.
#[derive(Clone, Copy, Debug)]
pub struct SoakOptions {
    /// Tokens to decode, rounded up to a whole text.
    pub tokens: usize,
    /// Tokens of a text, fewer if the context ends.
    pub steps: usize,
    /// Time after which no text is begun.
    pub limit: Option<Duration>,
}

/// A text whose tokens differ from the first time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differing {
    /// Number of the pass, from 1.
    pub pass: usize,
    /// Number of the prompt, from 1.
    pub prompt: usize,
    /// The first token that differs, from 0.
    pub token: usize,
}

/// Speeds of the passes over all texts, tok/s; a last pass that was cut short counts too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Paces {
    /// The first pass.
    pub first: f64,
    /// The last one.
    pub last: f64,
    /// The slowest one.
    pub least: f64,
    /// The fastest one.
    pub most: f64,
}

/// A soak's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakRecord {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was soaked.
    pub subject: Ours,
    /// The model.
    pub model: String,
    /// When it began, UTC.
    pub date: String,
    /// Tokens that were asked for.
    pub asked: usize,
    /// Tokens that were decoded.
    pub tokens: usize,
    /// Tokens of prompts that were fed.
    pub prompt_tokens: usize,
    /// Texts that were finished.
    pub texts: usize,
    /// Different texts.
    pub prompts: usize,
    /// Whether all tokens that were asked for were decoded; false: the time limit came first.
    pub complete: bool,
    /// Seconds from the first prompt to the last token.
    pub seconds: f64,
    /// The time limit, seconds.
    pub limit_s: Option<f64>,
    /// Hash of the texts' tokens.
    pub tokens_sha256: String,
    /// Texts that differed from the first time.
    pub differing: Vec<Differing>,
    /// Speed.
    pub pace: Paces,
    /// Memory after the first text and at the end.
    pub memory: [Memory; 2],
    /// Every reason why the soak failed.
    pub failures: Vec<String>,
    /// Whether nothing failed.
    pub passed: bool,
}

impl SoakRecord {
    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// A folder that is not writable.
    pub fn write(&self, path: &Path) -> Result<(), HarnessError> {
        let text = serde_json::to_string_pretty(self).expect("records are JSON") + "\n";
        write_whole(path, &text)
    }
}

/// What has been seen so far.
#[derive(Default)]
struct Seen {
    /// Tokens of each text, the first time.
    texts: Vec<Vec<u32>>,
    differing: Vec<Differing>,
    tokens: usize,
    prompt_tokens: usize,
    finished: usize,
    /// Tokens and seconds of each pass.
    passes: Vec<(usize, f64)>,
    memory: Vec<Memory>,
}

/// Decodes the texts in turn until there are as many tokens as asked, or the time is over.
///
/// # Errors
/// A step that fails, or no prompt that fits the context.
pub fn soak(
    soaked: &mut Bench,
    options: &SoakOptions,
    progress: &mut Progress,
) -> Result<SoakRecord, HarnessError> {
    let (date, begin) = (crate::now(), Instant::now());
    let subject = Ours::of(soaked.engine.info(), soaked.pack, &soaked.environment.run_id)?;
    let context = soaked.engine.info().context;
    let fits = |ids: &&Vec<u32>| !ids.is_empty() && ids.len() < context;
    let prompts: Vec<Vec<u32>> = soaked.prompts.ids.iter().filter(fits).cloned().collect();
    if prompts.is_empty() {
        return Err(HarnessError::Soak(format!(
            "no prompt is shorter than the context of {context} positions: load with a larger one"
        )));
    }
    let is_over = || options.limit.is_some_and(|limit| begin.elapsed() >= limit);
    let mut seen = Seen::default();
    for at in (0..prompts.len()).cycle() {
        if seen.tokens >= options.tokens || is_over() {
            break;
        }
        text(soaked, &prompts, at, options, &mut seen, progress)?;
    }
    Ok(record(soaked, options, subject, (date, begin.elapsed()), prompts.len(), seen))
}

/// Decodes one text and compares it with the first time.
fn text(
    soaked: &mut Bench,
    prompts: &[Vec<u32>],
    at: usize,
    options: &SoakOptions,
    seen: &mut Seen,
    progress: &mut Progress,
) -> Result<(), HarnessError> {
    let (prompt, pass) = (&prompts[at], seen.finished / prompts.len() + 1);
    let what = format!(
        "pass {pass}, text {} of {}, {} of {} tokens",
        at + 1,
        prompts.len(),
        seen.tokens,
        options.tokens
    );
    progress(&what);
    let steps = options.steps.min(soaked.engine.info().context - prompt.len());
    let run_id = &soaked.environment.run_id;
    let mut ours = Monolith { engine: &mut *soaked.engine, pack: soaked.pack, run_id };
    let answer = ours.decode(prompt, steps, &what, progress)?;
    seen.tokens += answer.tokens.len();
    seen.prompt_tokens += prompt.len();
    seen.finished += 1;
    if pass > seen.passes.len() {
        seen.passes.push((0, 0.0));
    }
    if let Some((tokens, seconds)) = seen.passes.last_mut() {
        *tokens += answer.tokens.len();
        *seconds += answer.seconds;
    }
    match seen.texts.get(at) {
        None => seen.texts.push(answer.tokens),
        Some(first) => {
            let differs = first.iter().zip(&answer.tokens).position(|(a, b)| a != b);
            let shorter =
                (first.len() != answer.tokens.len()).then(|| first.len().min(answer.tokens.len()));
            let differing = differs.or(shorter);
            seen.differing.extend(differing.map(|token| Differing { pass, prompt: at + 1, token }));
        }
    }
    let memory = soaked.probe.memory();
    seen.memory.truncate(1);
    seen.memory.push(memory);
    Ok(())
}

fn record(
    soaked: &Bench,
    options: &SoakOptions,
    subject: Ours,
    (date, took): (String, Duration),
    prompts: usize,
    seen: Seen,
) -> SoakRecord {
    let first = seen.memory.first().copied().unwrap_or_default();
    let memory = [first, seen.memory.last().copied().unwrap_or(first)];
    let failures = failures(&seen.differing, &memory);
    let all: Vec<u8> = seen.texts.iter().flatten().flat_map(|token| token.to_le_bytes()).collect();
    SoakRecord {
        schema_version: SCHEMA_VERSION,
        subject,
        model: soaked.pack.header().source.model.clone(),
        date,
        asked: options.tokens,
        tokens: seen.tokens,
        prompt_tokens: seen.prompt_tokens,
        texts: seen.finished,
        prompts,
        complete: seen.tokens >= options.tokens,
        seconds: took.as_secs_f64(),
        limit_s: options.limit.map(|limit| limit.as_secs_f64()),
        tokens_sha256: sha256_hex(&all),
        differing: seen.differing,
        pace: paces(&seen.passes),
        memory,
        passed: failures.is_empty(),
        failures,
    }
}

fn paces(passes: &[(usize, f64)]) -> Paces {
    let speeds: Vec<f64> = passes
        .iter()
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(tokens, seconds)| *tokens as f64 / seconds)
        .collect();
    let (Some(&first), Some(&last)) = (speeds.first(), speeds.last()) else {
        return Paces::default();
    };
    let least = speeds.iter().copied().fold(first, f64::min);
    Paces { first, last, least, most: speeds.iter().copied().fold(first, f64::max) }
}

/// Returns every reason why a soak fails.
fn failures(differing: &[Differing], memory: &[Memory; 2]) -> Vec<String> {
    let mut failures = Vec::new();
    if let Some(Differing { pass, prompt, token }) = differing.first() {
        failures.push(format!(
            "tokens: {} texts differ from the first time; the first is prompt {prompt} in pass \
             {pass}, from token {token} on",
            differing.len()
        ));
    }
    let [first, last] = memory;
    let grown = |of: fn(&Memory) -> Option<u64>| {
        let (before, after) = (of(first)?, of(last)?);
        Some(after.saturating_sub(before))
    };
    for (name, grown, most) in [
        ("this process", grown(|memory| memory.host_bytes), HOST_GROWTH_MAX),
        ("the GPU", grown(|memory| memory.gpu_bytes), GPU_GROWTH_MAX),
    ] {
        if let Some(bytes) = grown.filter(|bytes| *bytes > most) {
            failures.push(format!(
                "memory: {name} has {bytes} bytes more than after the first text; at most {most} \
                 are allowed"
            ));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_tokens_and_growing_memory_fail() {
        let at = |host, gpu| Memory { host_bytes: host, gpu_bytes: gpu };
        let same = [at(Some(1 << 30), None), at(Some((1 << 30) + 1000), None)];
        assert_eq!(failures(&[], &same), [""; 0]);
        let grown = [at(Some(0), Some(0)), at(Some(1 << 30), Some(1 << 30))];
        let differing = [Differing { pass: 3, prompt: 7, token: 12 }];
        let all = failures(&differing, &grown);
        assert_eq!(all.len(), 3, "{all:?}");
        for (failure, part) in all.iter().zip(["prompt 7 in pass 3", "this process", "the GPU"]) {
            assert!(failure.contains(part), "{failure}");
        }
        // A shrinking one is no failure.
        assert_eq!(failures(&[], &[grown[1], grown[0]]), [""; 0]);
    }

    #[test]
    fn paces_are_of_whole_passes() {
        let pace = paces(&[(100, 1.0), (100, 0.5), (50, 1.0)]);
        assert_eq!(pace, Paces { first: 100.0, last: 50.0, least: 50.0, most: 200.0 });
        assert_eq!(paces(&[]), Paces::default());
    }
}
