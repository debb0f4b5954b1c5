//! The protocol under the schedules that loom finds: all of them up to a number of preemptions,
//! except in the one test whose name says otherwise.
//! `cargo test -p monolith-handoff --features loom --release --test model`
#![cfg(feature = "loom")]

use loom::sync::Arc;
use loom::thread;
use monolith_handoff::{Abort, Doorbell, Exchange, Fault, FaultCause, STOPPED, Timeout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TIMEOUT: Timeout = Timeout(Duration::from_secs(600));

/// An exploration that is to be complete fails at this many schedules.
const COMPLETE_MAX: usize = 3_000_000;

/// Runs the model under loom's schedules with at most this many preemptions, until there is none
/// left or `schedules_max` were run. Gives how many were run: fewer than `schedules_max` are all.
fn explore(
    preemptions: usize,
    schedules_max: usize,
    model: impl Fn() + Sync + Send + 'static,
) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    // loom looks at the limit at each checkpoint only, and stops before it runs the last schedule.
    builder.checkpoint_interval = 1;
    builder.max_permutations = Some(schedules_max + 1);
    let schedules = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = schedules.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    schedules.load(Ordering::Relaxed)
}

/// Runs the model under every schedule with at most this many preemptions. Two or three are enough
/// for every known bug of the protocol: a test below proves that an injected one is found.
fn explore_all(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let schedules = explore(preemptions, COMPLETE_MAX, model);
    println!("{schedules} schedules, all with up to {preemptions} preemptions");
    assert!(schedules < COMPLETE_MAX, "{schedules} schedules were run, and there are more");
}

/// One step of a worker: publishes its unit of phase 0 if it owns one, reads all of phase 0,
/// publishes to the final slot, reads all of the final slot.
struct Step {
    workers: usize,
    /// Workers below this contribute to phase 0, the others do not.
    contributors: usize,
    /// Copies of the final slot: 2 is the protocol, 1 is the injected bug.
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
            exchange.publish(worker, value(worker), epoch);
        }
        exchange.gather(0..self.contributors, epoch, TIMEOUT, abort, |unit, seen| {
            assert_eq!(seen, value(unit), "phase 0 of epoch {epoch}");
        })?;
        let last = self.contributors + (epoch as usize % self.copies) * self.workers;
        exchange.publish(last + worker, value(worker), epoch);
        exchange.gather(last..last + self.workers, epoch, TIMEOUT, abort, |unit, seen| {
            assert_eq!(seen, value(unit), "final slot of epoch {epoch}");
        })?;
        Ok(())
    }
}

/// Every worker runs `steps` steps without a pause. Notes in `met` whether a schedule led to a
/// fault.
///
/// A worker that meets a fault leaves and takes the others with it: a panic inside the model
/// would end the process instead of the test.
fn free_run(step: Step, steps: u32, met: std::sync::Arc<AtomicUsize>) -> impl Fn() + Sync + Send {
    let step = std::sync::Arc::new(step);
    move || {
        let exchange = Arc::new(step.exchange());
        let abort = Arc::new(Abort::default());
        let worker = |id: usize| {
            let (step, exchange, abort) = (step.clone(), exchange.clone(), abort.clone());
            let met = met.clone();
            move || {
                for epoch in 1..=steps {
                    if step.run(&exchange, &abort, id, epoch).is_err() {
                        met.fetch_add(1, Ordering::Relaxed);
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
    }
}

/// Whether any schedule with up to three preemptions leads to a fault, of three steps.
fn meets_a_fault(step: Step) -> bool {
    let met = std::sync::Arc::new(AtomicUsize::new(0));
    explore_all(3, free_run(step, 3, met.clone()));
    met.load(Ordering::Relaxed) > 0
}

#[test]
fn two_workers_exchange_everything_under_every_schedule() {
    assert!(!meets_a_fault(Step { workers: 2, contributors: 2, copies: 2 }));
}

#[test]
fn a_worker_that_contributes_nothing_is_not_lapped_under_any_schedule() {
    assert!(!meets_a_fault(Step { workers: 2, contributors: 1, copies: 2 }));
}

#[test]
fn nobody_contributes_to_the_phase_under_any_schedule() {
    assert!(!meets_a_fault(Step { workers: 2, contributors: 0, copies: 2 }));
}

/// Three workers have more schedules than minutes even with one preemption. This is a sample: the
/// first schedules in loom's order.
#[test]
fn three_workers_meet_no_fault_in_the_first_60_000_schedules() {
    let met = std::sync::Arc::new(AtomicUsize::new(0));
    let step = Step { workers: 3, contributors: 2, copies: 2 };
    assert_eq!(explore(1, 60_000, free_run(step, 2, met.clone())), 60_000);
    assert_eq!(met.load(Ordering::Relaxed), 0);
}

/// The checker sees what it is there to see: with one copy of the final slot, a fast worker laps
/// one that contributes nothing.
#[test]
fn one_copy_of_the_final_slot_is_found_out() {
    assert!(meets_a_fault(Step { workers: 2, contributors: 1, copies: 1 }));
}

/// The host's loop as the engine runs it: ring, take part, read the final slot, ring again.
#[test]
fn the_doorbell_loses_no_ring_and_stops() {
    explore_all(2, || {
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
                    exchange.publish(Exchange::parity(last as u32), last as u32, last as u32);
                }
            })
        };
        for step in 1..=2u32 {
            bell.ring(u64::from(step));
            let unit = Exchange::parity(step);
            let arrival = exchange.gather(unit..unit + 1, step, TIMEOUT, &abort, |_, value| {
                assert_eq!(value, step);
            });
            arrival.expect("no fault");
        }
        bell.ring(STOPPED);
        worker.join().expect("the worker ends");
    });
}

/// A block that fails aborts the waits of the others.
#[test]
fn an_abort_ends_every_wait() {
    explore_all(3, || {
        let exchange = Arc::new(Exchange::new(1));
        let abort = Arc::new(Abort::default());
        let waiter = {
            let (exchange, abort) = (exchange.clone(), abort.clone());
            thread::spawn(move || exchange.gather(0..1, 1, TIMEOUT, &abort, |_, _| ()))
        };
        abort.raise();
        let fault = waiter.join().expect("no panic").expect_err("nothing is ever published");
        assert_eq!(fault, Fault { unit: 0, expected: 1, cause: FaultCause::Aborted });
    });
}
