//! The protocol on real threads: values, faults, and the unit that a gather waited for.
#![cfg(not(feature = "loom"))]

use monolith_handoff::{Abort, Arrival, Doorbell, Exchange, Fault, FaultCause, STOPPED, Timeout};
use std::thread;
use std::time::Duration;

const TIMEOUT: Timeout = Timeout(Duration::from_secs(60));
const SHORT_TIMEOUT: Timeout = Timeout(Duration::from_millis(20));

#[test]
fn a_value_and_its_epoch_travel_together() {
    let exchange = Exchange::new(3);
    exchange.publish(1, f32::to_bits(-0.5), 7);
    assert_eq!(exchange.peek(1), (f32::to_bits(-0.5), 7));
    assert_eq!(exchange.peek(2), (0, 0));
    exchange.publish(1, u32::MAX, u32::MAX);
    assert_eq!(exchange.peek(1), (u32::MAX, u32::MAX));
}

#[test]
fn a_gather_names_the_unit_it_waited_for_last() {
    let exchange = Exchange::new(4);
    let abort = Abort::default();
    for unit in [0, 1, 3] {
        exchange.publish(unit, 10 + unit as u32, 1);
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            exchange.publish(2, 12, 1);
        });
        let mut seen = Vec::new();
        let arrival = exchange.gather(1..4, 1, TIMEOUT, &abort, |_, value| seen.push(value));
        assert_eq!(arrival, Ok(Arrival { last_blocked: Some(1) }));
        assert_eq!(seen, [11, 12, 13]);
    });
    let arrival = exchange.gather(0..4, 1, TIMEOUT, &abort, |_, _| ());
    assert_eq!(arrival, Ok(Arrival { last_blocked: None }));
}

#[test]
fn a_missing_value_is_a_fault_after_the_timeout() {
    let exchange = Exchange::new(2);
    exchange.publish(0, 0, 3);
    exchange.publish(1, 0, 2);
    let fault = exchange.gather(0..2, 3, SHORT_TIMEOUT, &Abort::default(), |_, _| ()).unwrap_err();
    assert_eq!(fault, Fault { unit: 1, expected: 3, cause: FaultCause::TimedOut { seen: 2 } });
    assert!(fault.to_string().contains("unit 1: expected epoch 3, saw 2"), "{fault}");
}

#[test]
fn a_later_epoch_is_a_fault_at_once() {
    let exchange = Exchange::new(1);
    exchange.publish(0, 0, 5);
    let fault = exchange.gather(0..1, 4, TIMEOUT, &Abort::default(), |_, _| ()).unwrap_err();
    assert_eq!(fault.cause, FaultCause::Lapped { seen: 5 });
}

#[test]
fn workers_sleep_and_wake_through_many_rings() {
    let bell = Doorbell::new(2);
    let exchange = Exchange::new(4);
    let abort = Abort::default();
    thread::scope(|scope| {
        for worker in 0..2 {
            let (bell, exchange) = (&bell, &exchange);
            scope.spawn(move || {
                let mut last = 0;
                while last != STOPPED {
                    last = bell.wait(worker, last);
                    let unit = Exchange::parity(last as u32) * 2 + worker;
                    exchange.publish(unit, last as u32, last as u32);
                }
            });
        }
        for step in 1..=2000u32 {
            if step % 500 == 0 {
                // Long enough for both to be asleep.
                thread::sleep(Duration::from_millis(20));
            }
            bell.ring(u64::from(step));
            let first = Exchange::parity(step) * 2;
            let gathered = exchange.gather(first..first + 2, step, TIMEOUT, &abort, |_, value| {
                assert_eq!(value, step);
            });
            assert!(gathered.is_ok(), "{gathered:?}");
        }
        bell.ring(STOPPED);
    });
}
