//! The protocol under every schedule that loom can think of.
//! `cargo test -p monolith-handoff --features loom --release --test model`
#![cfg(feature = "loom")]

use loom::sync::Arc;
use loom::thread;
use monolith_handoff::{Abort, Doorbell, Exchange, Fault, FaultCause, Patience, STOPPED};
use std::time::Duration;

const PATIENCE: Patience = Patience(Duration::from_secs(600));

/// Explores schedules with at most this many preemptions: enough for every known bug of the
/// protocol (a test below proves that a planted one is found), and it ends.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    // Three workers have more schedules than minutes: the first of them, in loom's order.
    builder.max_permutations = Some(60_000);
    builder.check(model);
}

/// One step of a worker: posts its unit of phase 0 if it owns one, reads all of phase 0, posts to
/// the final slot, reads all of the final slot.
struct Step {
    workers: usize,
    /// Workers below this contribute to phase 0, the others do not.
    contributors: usize,
    /// Copies of the final slot: 2 is the protocol, 1 is the planted bug.
    copies: usize,
}

impl Step {
    fn exchange(&self) -> Exchange {
        Exchange::new(self.contributors + self.copies * self.workers)
    }

    fn run(
        &self,
        exchange: &Exchange,
        abort: &Abort,
        worker: usize,
        epoch: u32,
    ) -> Result<(), Fault> {
        let value = |unit: usize| epoch * 100 + unit as u32;
        if worker < self.contributors {
            exchange.post(worker, value(worker), epoch);
        }
        exchange.gather(0..self.contributors, epoch, PATIENCE, abort, |unit, seen| {
            assert_eq!(seen, value(unit), "phase 0 of epoch {epoch}");
        })?;
        let last = self.contributors + (epoch as usize % self.copies) * self.workers;
        exchange.post(last + worker, value(worker), epoch);
        exchange.gather(last..last + self.workers, epoch, PATIENCE, abort, |unit, seen| {
            assert_eq!(seen, value(unit), "final slot of epoch {epoch}");
        })?;
        Ok(())
    }
}

/// Every worker free-runs `steps` steps; whether any schedule led to a fault.
///
/// A worker that meets a fault leaves and takes the others with it: a panic inside the model
/// would end the process instead of the test.
fn meets_a_fault(preemptions: usize, step: Step, steps: u32) -> bool {
    let step = std::sync::Arc::new(step);
    let met = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let met_inside = met.clone();
    explore(preemptions, move || {
        let exchange = Arc::new(step.exchange());
        let abort = Arc::new(Abort::default());
        let worker = |id: usize| {
            let (step, exchange, abort) = (step.clone(), exchange.clone(), abort.clone());
            let met = met_inside.clone();
            move || {
                for epoch in 1..=steps {
                    if step.run(&exchange, &abort, id, epoch).is_err() {
                        met.store(true, std::sync::atomic::Ordering::Relaxed);
                        abort.raise();
                        return;
                    }
                }
            }
        };
        let others: Vec<_> = (1..step.workers).map(|id| thread::spawn(worker(id))).collect();
        worker(0)();
        for other in others {
            other.join().expect("the worker ends well");
        }
    });
    met.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn two_workers_exchange_everything() {
    assert!(!meets_a_fault(3, Step { workers: 2, contributors: 2, copies: 2 }, 3));
}

#[test]
fn a_worker_that_contributes_nothing_is_not_lapped() {
    assert!(!meets_a_fault(3, Step { workers: 2, contributors: 1, copies: 2 }, 3));
}

#[test]
fn nobody_contributes_to_the_phase() {
    assert!(!meets_a_fault(3, Step { workers: 2, contributors: 0, copies: 2 }, 3));
}

#[test]
fn three_workers_one_idle() {
    assert!(!meets_a_fault(1, Step { workers: 3, contributors: 2, copies: 2 }, 2));
}

/// The checker sees what it is there to see: with one copy of the final slot, a fast worker laps
/// one that contributes nothing.
#[test]
fn one_copy_of_the_final_slot_is_found_out() {
    assert!(meets_a_fault(3, Step { workers: 2, contributors: 1, copies: 1 }, 3));
}

/// The host's loop as the engine runs it: ring, take part, read the final slot, ring again.
#[test]
fn the_doorbell_loses_no_ring_and_stops() {
    explore(2, || {
        let bell = Arc::new(Doorbell::new(1));
        let exchange = Arc::new(Exchange::new(2));
        let abort = Arc::new(Abort::default());
        let worker = {
            let (bell, exchange) = (bell.clone(), exchange.clone());
            thread::spawn(move || {
                let mut last = 0;
                loop {
                    last = bell.wait(0, last);
                    if last == STOPPED {
                        return;
                    }
                    exchange.post(Exchange::parity(last as u32), last as u32, last as u32);
                }
            })
        };
        for step in 1..=2u32 {
            bell.ring(u64::from(step));
            let unit = Exchange::parity(step);
            let arrival = exchange.gather(unit..unit + 1, step, PATIENCE, &abort, |_, value| {
                assert_eq!(value, step);
            });
            arrival.expect("no fault");
        }
        bell.ring(STOPPED);
        worker.join().expect("the worker goes home");
    });
}

/// A block that gives up takes the others with it.
#[test]
fn an_abort_ends_every_wait() {
    explore(3, || {
        let exchange = Arc::new(Exchange::new(1));
        let abort = Arc::new(Abort::default());
        let waiter = {
            let (exchange, abort) = (exchange.clone(), abort.clone());
            thread::spawn(move || exchange.gather(0..1, 1, PATIENCE, &abort, |_, _| ()))
        };
        abort.raise();
        let fault = waiter.join().expect("no panic").expect_err("nothing is ever posted");
        assert_eq!(fault, Fault { unit: 0, expected: 1, cause: FaultCause::Aborted });
    });
}
