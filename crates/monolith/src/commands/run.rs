//! `monolith run`: prompt in, text out.

use crate::args::{RunArgs, SamplingArgs};
use crate::exit::{Code, Exit};
use crate::sample::{Sampler, Sampling};
use crate::text_out::{Kind, check_output, put, say, write_file};
use crate::{engine, interrupt, prompt, source};
use monolith_abi::dump::Dump;
use monolith_engine::Engine;
use monolith_pack::Pack;
use monolith_text::{StopTokens, StreamDecoder};
use monolith_xray::{Analysis, dump_file, page, trace_from_dump};
use std::path::Path;
use std::time::{Duration, Instant};

/// Continues a prompt.
///
/// # Errors
/// A model that is missing or damaged, an engine that cannot run, a prompt that is empty or does
/// not fit.
pub fn run(args: &RunArgs) -> Result<(), Exit> {
    let options = engine::options(&args.engine)?;
    let options = if args.xray.file.is_some() { options.recording() } else { options };
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
    let outcome = decode.run(&prompt)?;
    let (streamed, dump) = decode.finish()?;
    report(args, &outcome, &streamed, engine.as_ref(), &pack)?;
    match (&args.xray.file, dump) {
        (Some(path), Some(dump)) => write_trace(args, path, &dump),
        (Some(path), None) => {
            say(&format!("monolith: no step ended, so {} was not written", path.display()));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// What a decode did.
#[derive(Debug)]
struct Outcome {
    prompt: Vec<u32>,
    generated: Vec<u32>,
    prefill: Duration,
    /// One a decode step: the first generated token comes with the prompt's last step.
    steps: Vec<Duration>,
    why_stopped: &'static str,
}

struct Decode<'a> {
    args: &'a RunArgs,
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
        let mut outcome = Outcome {
            prompt: prompt.to_vec(),
            generated: Vec::new(),
            prefill: Duration::ZERO,
            steps: Vec::new(),
            why_stopped: "length",
        };
        let Some(next) = self.prefill(prompt)? else {
            let seconds = begin.elapsed().as_secs_f64();
            let (done, all) = (self.engine.cached(), prompt.len());
            let what =
                format!("interrupted after {done} of the prompt's {all} tokens, {seconds:.3} s");
            return Err(Exit::message(Code::Interrupted, what));
        };
        let next = self.choose(next);
        outcome.prefill = begin.elapsed();
        self.generate(next, &mut outcome)?;
        Ok(outcome)
    }

    /// The prompt, at once where the engine likes that, else so that it can be interrupted.
    fn prefill(&mut self, prompt: &[u32]) -> Result<Option<u32>, Exit> {
        if self.engine.info().steps_ahead > 1 {
            return Ok(Some(self.engine.prefill(prompt)?));
        }
        let mut next = None;
        for (position, &token) in prompt.iter().enumerate() {
            if interrupt::raised() {
                return Ok(None);
            }
            next = Some(self.engine.step(token, position)?);
        }
        Ok(next)
    }

    /// From the first generated token on.
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

    /// One step, or as many as the engine likes at once; the step that the X-ray is to show is
    /// recorded.
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
        let info = self.engine.info();
        let room = (self.args.n - count).min(info.context - position);
        let ahead = info.steps_ahead.min(room);
        if ahead > 1 && self.args.sampling.temperature == 0.0 {
            let decoded = self.engine.decode(token, position, ahead)?;
            let each = Duration::from_secs_f64(decoded.seconds / ahead as f64);
            outcome.steps.extend(std::iter::repeat_n(each, ahead));
            return Ok(decoded.tokens);
        }
        let greedy = self.engine.step(token, position)?;
        outcome.steps.push(begin.elapsed());
        Ok(vec![self.choose(greedy)])
    }

    /// Where the text ended before the step to be recorded: the last step, once more.
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

    /// Emits what is left of a character; gives the text and the recorded step.
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

fn report(
    args: &RunArgs,
    outcome: &Outcome,
    text: &str,
    engine: &dyn Engine,
    pack: &Pack,
) -> Result<(), Exit> {
    // Not by `sum`: of nothing it is -0.
    let seconds = outcome.steps.iter().fold(0.0, |sum, step| sum + step.as_secs_f64());
    let steps = outcome.steps.len();
    let first = outcome.prompt.len();
    let bytes: u64 = (first..first + steps).map(|at| pack.header().bytes_at(at)).sum();
    let rate = |count: f64, seconds: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let (tok_s, gb_s) = (rate(steps as f64, seconds), rate(bytes as f64 / 1e9, seconds));
    let info = engine.info();
    let prefill = outcome.prefill.as_secs_f64();
    if args.json {
        let step_us: Vec<f64> = outcome.steps.iter().map(|step| step.as_secs_f64() * 1e6).collect();
        let value = serde_json::json!({
            "model": pack.source().model,
            "engine": info.engine,
            "variant": info.variant,
            "device": info.device,
            "blocks": info.blocks,
            "context": info.context,
            "scope": "decode only, argmax included",
            "prompt_tokens": outcome.prompt,
            "tokens": outcome.generated,
            "text": text,
            "stopped": outcome.why_stopped,
            "prefill_s": prefill,
            "n_gen": steps,
            "decode_s": seconds,
            "tok_s": tok_s,
            "gb_s": gb_s,
            "step_us": step_us,
        });
        put(&format!("{value}\n"))?;
    } else if !args.quiet {
        say(&format!(
            "{} on {} x{}: prompt {first} tokens in {prefill:.3} s; {steps} steps in \
             {seconds:.3} s: {tok_s:.1} tok/s, {gb_s:.1} GB/s (decode only, argmax included); \
             stopped: {}",
            info.variant, info.device, info.blocks, outcome.why_stopped
        ));
    }
    Ok(())
}

/// Whether the file is to hold the dump as it is, and not the page's trace.
fn is_dump(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "xray")
}

/// Writes the dump or the page's trace; shows the analysis on stderr.
fn write_trace(args: &RunArgs, path: &Path, dump: &Dump) -> Result<(), Exit> {
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
