//! `monolith diff`: an engine against the reference, phase by phase.

use crate::args::DiffArgs;
use crate::exit::{Code, Exit, OrExit};
use crate::text_out::put;
use crate::{engine, source};
use monolith_abi::Phase;
use monolith_engine::Engine;
use monolith_reference::{Intermediates, KvFormat, Place, Reference, Stop, first_difference};

/// Runs the tokens through both and shows the first element that differs.
///
/// # Errors
/// Code 1 if an element differs; code 2 for a phase or layer that does not exist.
pub fn run(args: &DiffArgs) -> Result<(), Exit> {
    let model = source::find(&args.model)?;
    let checkpoint = model.checkpoint()?;
    let mut engine = engine::load(&args.engine, model.pack()?)?;
    let layers = args.layers.unwrap_or(engine.config().layers);
    let after = Phase::from_name(&args.stop_after)
        .filter(|phase| phase.is_per_layer() || *phase == Phase::LmHead)
        .ok_or_else(|| anyhow::anyhow!("--stop-after {}: no such phase", args.stop_after))
        .or_exit(Code::Usage)?;
    let stop = Stop { layers, after };
    stop.check(engine.config().layers).or_exit(Code::Usage)?;
    if after == Phase::LmHead && layers != engine.config().layers {
        return Err(Exit::message(Code::Usage, "lm_head is compared after all layers only"));
    }
    let mut reference = Reference::new(&checkpoint, KvFormat::Bf16);
    for (position, &token) in args.tokens.iter().enumerate() {
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
    put(&format!(
        "{} tokens, {layers} layers, up to {}: no element differs by more than {}\n",
        args.tokens.len(),
        after.name(),
        args.tolerance
    ))?;
    Ok(())
}

/// The engine's outputs of its last step, as far as they are compared.
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
