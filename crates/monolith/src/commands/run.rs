//! `monolith run`: prompt in, text out.

use crate::exit::{Code, Exit};
use crate::file_out::write_file;
use crate::kinds::{Kind, check_output};
use crate::options::{EngineArgs, FormatArgs, ModelArgs};
use crate::progress::{Progress, Unit};
use crate::text_out::{put, say};
use crate::{engine, interrupt, source, values};
use monolith_abi::dump::Dump;
use monolith_engine::{Engine, EngineError};
use monolith_pack::Pack;
use monolith_text::{StopTokens, StreamDecoder};
use monolith_xray::{Analysis, dump_file, page, trace_from_dump};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod overhead;
mod prompt;
mod sample;

use overhead::Recorded;
use sample::{Sampler, Sampling};

/// Continue a prompt: stream text to stdout, statistics to stderr
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The prompt [default: standard input]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<OsString>,
    /// Read the prompt from a file, including the newline at its end
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Read special tokens in the prompt (<|im_end|>) as text; a chat template still writes its own
    #[arg(long)]
    pub literal: bool,
    /// Largest number of tokens to generate
    #[arg(short, long = "tokens", value_name = "N", default_value_t = 256)]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub n: usize,
    /// Do not stop at the model's end-of-text tokens
    #[arg(long)]
    pub ignore_eos: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    pub json: bool,
    /// Print no statistics
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub chat: ChatArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub xray: XrayArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith run -p 'The capital of France is' -n 32
  monolith run --chat --no-think -p 'Write a haiku about memory bandwidth'
  monolith run -f notes.txt --temperature 0.7 --top-p 0.9 --seed 1
  echo 'Once upon a time' | monolith run -m data/tiny
  monolith run -p 'Hello' --json | jq .tok_s
  monolith run -p 'Hello' --xray step.json.gz     for the page; .xray: for `monolith xray`

Ctrl-C ends the text after the current token and prints the statistics; a second one ends the
program at once.";

/// How the prompt is passed to a chat model.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Chat")]
pub struct ChatArgs {
    /// Wrap the prompt in the model's chat template
    #[arg(long)]
    pub chat: bool,
    /// System message of the chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Ask the chat template to turn the model's thinking off
    #[arg(long, requires = "chat")]
    pub no_think: bool,
}

/// How the next token is chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Sampling temperature; 0 is greedy, and the other sampling options then have no effect
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    #[arg(value_parser = values::temperature)]
    pub temperature: f32,
    /// Nucleus sampling: keep the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    #[arg(value_parser = values::share)]
    pub top_p: f32,
    /// Keep only the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: usize,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// Which step is recorded, and into which file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "X-ray")]
pub struct XrayArgs {
    /// Record one step and write its trace for the page, or its dump if FILE ends in .xray
    #[arg(id = "xray", long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Number of the generated token whose step is recorded, from 1; if the text ends earlier, the
    /// last step is recorded
    #[arg(long = "xray-at", value_name = "N", default_value_t = 16, requires = "xray")]
    #[arg(value_parser = values::at_least_1(), allow_negative_numbers = true)]
    pub at: usize,
}

/// Continues a prompt.
///
/// # Errors
/// A model that is missing or damaged, an engine that cannot run, a prompt that is empty or does
/// not fit.
pub fn run(args: &Args) -> Result<(), Exit> {
    let begin = Instant::now();
    let headline = engine::options(&args.engine)?;
    let options = match &args.xray.file {
        Some(_) => headline.clone().recording(),
        None => headline.clone(),
    };
    if let Some(path) = &args.xray.file {
        check_output(path, if is_dump(path) { Kind::Dump } else { Kind::Trace })?;
    }
    let model = source::find(&args.model.model)?;
    let text = prompt::read(args)?;
    let tokenizer = model.tokenizer()?;
    let prompt = prompt::encode(text, args, &model, &tokenizer)?;
    let pack = model.pack((&args.format).into())?;
    let mut engine = engine::load(&options, pack.clone())?;
    prompt::check(&prompt, engine.as_ref())?;
    let stop = if args.ignore_eos { StopTokens::default() } else { model.stop_tokens(&pack)? };
    let _guard = interrupt::guard_result();
    let mut decode = Decode {
        args,
        engine: engine.as_mut(),
        stop,
        sampler: sampler(&args.sampling),
        text: tokenizer.stream_decoder(!args.json),
        streamed: String::new(),
        dump: None,
    };
    let load = begin.elapsed();
    let outcome = decode.run(&prompt)?;
    let (streamed, dump) = decode.finish()?;
    let report = Report { outcome: &outcome, load, engine: engine.as_ref(), pack: &pack };
    if args.json {
        put(&format!("{}\n", report.json(&streamed)))?;
    } else if !args.quiet {
        say(&report.line());
    }
    match (&args.xray.file, dump) {
        (Some(path), Some(dump)) => {
            let of_prompt = outcome.prefill / outcome.prompt.len().max(1) as u32;
            let step = outcome.steps.last().copied().unwrap_or(of_prompt);
            let tokens = [outcome.prompt, outcome.generated].concat();
            let recorded = Recorded { dump, tokens, step };
            write_trace(args, path, &recorded.with_pace(&headline, &pack, engine.as_mut()))
        }
        (Some(path), None) => {
            say(&format!("monolith: no step finished, so {} was not written", path.display()));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// The result of a decode.
#[derive(Debug)]
struct Outcome {
    prompt: Vec<u32>,
    /// The text's tokens, without the end-of-text token.
    generated: Vec<u32>,
    /// Time of the prompt's steps.
    prefill: Duration,
    /// Time until the first token was chosen.
    first_token: Duration,
    /// Times of the steps after the prompt; the prompt's last step gives the first token.
    steps: Vec<Duration>,
    why_stopped: &'static str,
}

struct Decode<'a> {
    args: &'a Args,
    engine: &'a mut dyn Engine,
    stop: StopTokens,
    sampler: Sampler,
    text: StreamDecoder<'a>,
    streamed: String,
    dump: Option<Dump>,
}

impl Decode<'_> {
    fn run(&mut self, prompt: &[u32]) -> Result<Outcome, Exit> {
        let begin = Instant::now();
        let next = self.prefill(prompt, begin)?;
        let prefill = begin.elapsed();
        let next = self.choose(next);
        let mut outcome = Outcome {
            prompt: prompt.to_vec(),
            generated: Vec::new(),
            prefill,
            first_token: begin.elapsed(),
            steps: Vec::new(),
            why_stopped: "length",
        };
        self.generate(next, &mut outcome)?;
        Ok(outcome)
    }

    /// Runs the prompt, shows its progress, and ends it on Ctrl-C.
    fn prefill(&mut self, prompt: &[u32], begin: Instant) -> Result<u32, Exit> {
        let progress = match self.args.quiet {
            true => Progress::hidden(),
            false => Progress::of("prompt", Unit::Of("tokens")),
        };
        let ran = self.engine.prefill_with(prompt, &mut |done| {
            progress.at(done as u64, prompt.len() as u64);
            if interrupt::raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        drop(progress);
        ran.map_err(|error| match error {
            EngineError::Interrupted { .. } => {
                let seconds = begin.elapsed().as_secs_f64();
                Exit::message(Code::Interrupted, format!("{error}, {seconds:.3} s"))
            }
            error => error.into(),
        })
    }

    /// Generates the text after the prompt, beginning with its first token.
    fn generate(&mut self, first: u32, outcome: &mut Outcome) -> Result<(), Exit> {
        let mut next = vec![first];
        loop {
            for token in next.drain(..) {
                if self.stop.contains(token) {
                    outcome.why_stopped = "end of text";
                    return self.record_late(outcome);
                }
                outcome.generated.push(token);
                self.stream(token)?;
            }
            let count = outcome.generated.len();
            let last = outcome.prompt.len() + count - 1;
            if count == self.args.n {
                break;
            }
            if last == self.engine.info().context {
                outcome.why_stopped = "context full";
                break;
            }
            if interrupt::raised() {
                outcome.why_stopped = "interrupted";
                break;
            }
            next = self.steps(outcome.generated[count - 1], last, count, outcome)?;
        }
        self.record_late(outcome)
    }

    /// Runs one step, or as many at once as the engine prefers. Records the step that `--xray-at`
    /// names.
    fn steps(
        &mut self,
        token: u32,
        position: usize,
        count: usize,
        outcome: &mut Outcome,
    ) -> Result<Vec<u32>, Exit> {
        let begin = Instant::now();
        if self.args.xray.file.is_some() && count == self.args.xray.at {
            let (greedy, dump) = self.engine.step_recorded(token, position)?;
            self.dump = Some(dump);
            outcome.steps.push(begin.elapsed());
            return Ok(vec![self.choose(greedy)]);
        }
        if self.args.sampling.temperature > 0.0 {
            let greedy = self.engine.step(token, position)?;
            outcome.steps.push(begin.elapsed());
            return Ok(vec![self.choose(greedy)]);
        }
        let info = self.engine.info();
        let mut ahead =
            info.steps_ahead.min(self.args.n - count).min(info.context - position).max(1);
        if self.args.xray.file.is_some() && count < self.args.xray.at {
            ahead = ahead.min(self.args.xray.at - count);
        }
        let decoded = self.engine.decode_until(token, position, ahead, self.stop.ids())?;
        let steps = decoded.tokens.len();
        let each = Duration::from_secs_f64(decoded.seconds / steps as f64);
        outcome.steps.extend(std::iter::repeat_n(each, steps));
        Ok(decoded.tokens)
    }

    /// Repeats and records the last step if the text ended before the step that `--xray-at` names.
    fn record_late(&mut self, outcome: &Outcome) -> Result<(), Exit> {
        if self.args.xray.file.is_none() || self.dump.is_some() {
            return Ok(());
        }
        let Some(position) = self.engine.cached().checked_sub(1) else { return Ok(()) };
        let tokens = [&outcome.prompt[..], &outcome.generated[..]].concat();
        let position = position.min(tokens.len() - 1);
        let (_, dump) = self.engine.step_recorded(tokens[position], position)?;
        self.dump = Some(dump);
        Ok(())
    }

    fn choose(&mut self, greedy: u32) -> u32 {
        if self.args.sampling.temperature == 0.0 {
            return greedy;
        }
        let mut logits = Vec::new();
        self.engine.logits(&mut logits);
        self.sampler.draw(&logits)
    }

    fn stream(&mut self, token: u32) -> anyhow::Result<()> {
        let Some(text) = self.text.push(token) else { return Ok(()) };
        if self.args.json {
            self.streamed.push_str(&text);
            return Ok(());
        }
        put(&text)
    }

    /// Writes the rest of an incomplete character; returns the text and the recorded step.
    fn finish(self) -> anyhow::Result<(String, Option<Dump>)> {
        let Decode { args, text, mut streamed, dump, .. } = self;
        let rest = text.finish().unwrap_or_default();
        if args.json {
            streamed.push_str(&rest);
        } else {
            put(&format!("{rest}\n"))?;
        }
        Ok((streamed, dump))
    }
}

fn sampler(args: &SamplingArgs) -> Sampler {
    let SamplingArgs { temperature, top_p, top_k, seed } = *args;
    Sampler::new(Sampling { temperature, top_p, top_k, seed })
}

/// The report after a decode.
struct Report<'a> {
    outcome: &'a Outcome,
    /// Time from the start of the command until the engine was loaded.
    load: Duration,
    engine: &'a dyn Engine,
    pack: &'a Pack,
}

/// Returns a rate per second, or 0 if no time was measured.
fn rate(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

impl Report<'_> {
    /// Returns the seconds of the steps after the prompt.
    fn decode_s(&self) -> f64 {
        // Not with `sum`, which gives -0 for an empty list.
        self.outcome.steps.iter().fold(0.0, |sum, step| sum + step.as_secs_f64())
    }

    fn prompt_tok_s(&self) -> f64 {
        rate(self.outcome.prompt.len() as f64, self.outcome.prefill.as_secs_f64())
    }

    fn tok_s(&self) -> f64 {
        rate(self.outcome.steps.len() as f64, self.decode_s())
    }

    fn gb_s(&self) -> f64 {
        let first = self.outcome.prompt.len();
        let steps = first..first + self.outcome.steps.len();
        let bytes: u64 = steps.map(|at| self.pack.header().bytes_at(at)).sum();
        rate(bytes as f64 / 1e9, self.decode_s())
    }

    fn json(&self, text: &str) -> serde_json::Value {
        let (outcome, info) = (self.outcome, self.engine.info());
        let step_us: Vec<f64> = outcome.steps.iter().map(|step| step.as_secs_f64() * 1e6).collect();
        serde_json::json!({
            "model": self.pack.source().model,
            "engine": info.engine,
            "variant": info.variant,
            "device": info.device,
            "blocks": info.blocks,
            "context": info.context,
            "scope": "decode only, argmax included: the steps after the prompt's",
            "prompt_tokens": outcome.prompt,
            "tokens": outcome.generated,
            "text": text,
            "stopped": outcome.why_stopped,
            "load_s": self.load.as_secs_f64(),
            "n_prompt": outcome.prompt.len(),
            "prefill_s": outcome.prefill.as_secs_f64(),
            "prompt_tok_s": self.prompt_tok_s(),
            "ttft_s": outcome.first_token.as_secs_f64(),
            "n_gen": outcome.generated.len(),
            "decode_steps": outcome.steps.len(),
            "decode_s": self.decode_s(),
            "tok_s": self.tok_s(),
            "gb_s": self.gb_s(),
            "step_us": step_us,
        })
    }

    fn line(&self) -> String {
        let (outcome, info) = (self.outcome, self.engine.info());
        format!(
            "{} on {} x{}: loaded in {:.3} s; prompt of {} tokens in {:.3} s: {:.1} tok/s, first \
             token after {:.3} s; {} tokens generated, {} steps after the prompt in {:.3} s: \
             {:.1} tok/s, {:.1} GB/s (decode only, argmax included); stopped: {}",
            info.variant,
            info.device,
            info.blocks,
            self.load.as_secs_f64(),
            outcome.prompt.len(),
            outcome.prefill.as_secs_f64(),
            self.prompt_tok_s(),
            outcome.first_token.as_secs_f64(),
            outcome.generated.len(),
            outcome.steps.len(),
            self.decode_s(),
            self.tok_s(),
            self.gb_s(),
            outcome.why_stopped
        )
    }
}

/// Returns whether the file's extension asks for the dump instead of the page's trace.
fn is_dump(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "xray")
}

/// Writes the dump or the page's trace, and the analysis to stderr.
fn write_trace(args: &Args, path: &Path, dump: &Dump) -> Result<(), Exit> {
    let trace = trace_from_dump(dump)?;
    let bytes = if is_dump(path) { dump_file::write(dump) } else { page::write(&trace) };
    write_file(path, &bytes)?;
    if !args.quiet && !args.json {
        say(&format!(
            "\nX-ray of position {} -> {}\n{}",
            dump.position,
            path.display(),
            Analysis::of(&trace)
        ));
    }
    Ok(())
}
