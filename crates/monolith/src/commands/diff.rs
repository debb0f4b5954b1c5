//! `monolith diff`: an engine against the reference, phase by phase.

use crate::exit::{Code, Exit, OrExit};
use crate::options::{EngineArgs, ModelArgs};
use crate::packing::AskedPack;
use crate::progress::{Progress, Unit};
use crate::text_out::put;
use crate::{engine, source, values};
use anyhow::Context;
use monolith_abi::Phase;
use monolith_engine::Engine;
use monolith_model::{Config, Weights};
use monolith_reference::{Intermediates, KvFormat, Place, Reference, Stop, first_difference};

/// Compare an engine with the reference phase by phase; show the first element that differs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Token ids to run, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', default_value = "1,2,3,4")]
    pub tokens: Vec<u32>,
    /// Layers to compare [default: all]
    #[arg(long, value_name = "N", value_parser = values::at_least_1())]
    #[arg(allow_negative_numbers = true)]
    pub layers: Option<usize>,
    /// The last phase to compare [default: lm_head after all layers, down after fewer]
    #[arg(long, value_name = "PHASE")]
    #[arg(value_parser = ["qkv", "attention", "o_proj", "gate_up", "down", "lm_head"])]
    pub stop_after: Option<String>,
    /// Largest difference that counts as equal, relative to the row's largest value; one bf16
    /// rounding of a key or value is 0.004
    #[arg(long, value_name = "X", default_value_t = 1e-2, allow_negative_numbers = true)]
    #[arg(value_parser = values::tolerance)]
    pub tolerance: f32,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const EXAMPLES: &str = "Examples:
  monolith diff -m data/tiny
  monolith diff -m data/tiny --layers 1 --stop-after qkv
  monolith diff -m data/tiny --tolerance 0    the first difference of any size

The reference computes in f32 from the model folder; the exit code is 1 if an element differs.";

/// Runs the tokens through both and shows the first element that differs.
///
/// # Errors
/// Code 1 if an element differs; code 2 for a phase or layer that does not exist.
pub fn run(args: &Args) -> Result<(), Exit> {
    let options = engine::options(&args.engine)?;
    let model = source::find(&args.model.model)?;
    let checkpoint = model.checkpoint()?;
    let stop = stop(args, checkpoint.config())?;
    let mut engine = engine::load(&options, model.pack(AskedPack::default())?)?;
    check_tokens(args, engine.as_ref())?;
    let mut reference = Reference::new(&checkpoint, KvFormat::Bf16);
    let progress = Progress::of("diff", Unit::Of("tokens"));
    for (position, &token) in args.tokens.iter().enumerate() {
        progress.at(position as u64, args.tokens.len() as u64);
        let wanted = reference.trace(&[token], stop)?;
        reference.advance(&[token])?;
        engine.step(token, position)?;
        let seen = intermediates(engine.as_ref(), stop);
        if let Some(difference) = first_difference(&wanted, &seen, args.tolerance) {
            let name = engine.info().engine;
            let what = format!("position {position}: {difference} (reference, then {name})");
            return Err(Exit::message(Code::Failure, what));
        }
    }
    drop(progress);
    put(&format!(
        "{} tokens, layers 0 to {}, up to {}: no element differs by more than {}\n",
        args.tokens.len(),
        stop.layers - 1,
        stop.after.name(),
        args.tolerance
    ))?;
    Ok(())
}

/// Returns the last place to compare.
fn stop(args: &Args, config: &Config) -> Result<Stop, Exit> {
    let layers = args.layers.unwrap_or(config.layers);
    let after = match &args.stop_after {
        Some(name) => Phase::from_name(name).context("no such phase").or_exit(Code::Usage)?,
        None if layers == config.layers => Phase::LmHead,
        None => Phase::Down,
    };
    let stop = Stop { layers, after };
    stop.check(config.layers).or_exit(Code::Usage)?;
    if after == Phase::LmHead && layers != config.layers {
        let what = "--stop-after lm_head compares after all layers: omit --layers";
        return Err(Exit::message(Code::Usage, what));
    }
    Ok(stop)
}

fn check_tokens(args: &Args, engine: &dyn Engine) -> Result<(), Exit> {
    let (vocab, context) = (engine.config().vocab, engine.info().context);
    if let Some(token) = args.tokens.iter().find(|&&token| token as usize >= vocab) {
        let what = format!("--tokens: {token} is not in the vocabulary of {vocab}");
        return Err(Exit::message(Code::Usage, what));
    }
    if args.tokens.len() > context {
        let what = format!("--tokens: {} tokens, the context has {context}", args.tokens.len());
        return Err(Exit::message(Code::Usage, what));
    }
    Ok(())
}

/// Returns the compared outputs of the engine's last step.
fn intermediates(engine: &dyn Engine, stop: Stop) -> Intermediates {
    let mut seen = Intermediates::default();
    for layer in 0..stop.layers {
        for phase in Phase::LAYER {
            if let Some(values) = engine.intermediate(layer, phase) {
                seen.insert(Place { layer: Some(layer), phase }, 1, values);
            }
        }
    }
    let mut logits = Vec::new();
    engine.logits(&mut logits);
    seen.insert(Place::LM_HEAD, 1, logits);
    seen
}
