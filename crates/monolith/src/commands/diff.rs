//! `monolith diff`: an engine against the reference, phase by phase.

use crate::args::DiffArgs;
use crate::exit::{Code, Exit, OrExit};
use crate::packing::AskedPack;
use crate::progress::{Progress, Unit};
use crate::text_out::put;
use crate::{engine, source};
use anyhow::Context;
use monolith_abi::Phase;
use monolith_engine::Engine;
use monolith_model::{Config, Weights};
use monolith_reference::{Intermediates, KvFormat, Place, Reference, Stop, first_difference};

/// Runs the tokens through both and shows the first element that differs.
///
/// # Errors
/// Code 1 if an element differs; code 2 for a phase or layer that does not exist.
pub fn run(args: &DiffArgs) -> Result<(), Exit> {
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
fn stop(args: &DiffArgs, config: &Config) -> Result<Stop, Exit> {
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

fn check_tokens(args: &DiffArgs, engine: &dyn Engine) -> Result<(), Exit> {
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
