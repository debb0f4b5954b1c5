//! Our engine as a contender.

use crate::{environment, load, pack, prompts};
use monolith_harness::adapters::{Contender, Monolith};
use monolith_harness::subject::Ours;

#[test]
fn our_engine_says_what_it_is_and_decodes_as_the_engine_does() {
    let (pack, run_id) = (pack(), environment().run_id);
    let mut engine = load(pack.clone(), 640).unwrap();
    let ours = Ours::of(engine.info(), &pack, &run_id).unwrap();
    let mut contender = Monolith { engine: &mut *engine, pack: &pack, run_id: &run_id };

    let about = contender.describe().unwrap();
    assert_eq!(about.subject.ours(), Some(&ours));
    assert_eq!((about.context, about.launches_per_token), (640, None));
    assert_eq!(about.clock, "monotonic clock");

    let (prompt, steps) = (&prompts().ids[0], 20);
    let answer = contender.decode(prompt, steps, "a prompt", &mut |_| ()).unwrap();
    let logits = contender.logits().unwrap();
    let mut expected = Vec::new();
    engine.logits(&mut expected);
    assert_eq!(logits, expected);
    let first = engine.prefill(prompt).unwrap();
    let decoded = engine.decode(first, prompt.len(), steps).unwrap();
    assert_eq!(answer.tokens, decoded.tokens);
    assert!(answer.seconds > 0.0);
    let mut contender = Monolith { engine: &mut *engine, pack: &pack, run_id: &run_id };
    let timed = contender.decode_timed(prompt, steps, "a prompt", &mut |_| ()).unwrap().unwrap();
    assert_eq!((timed.first, timed.tokens, timed.at_ns.len()), (first, answer.tokens, steps));
}
