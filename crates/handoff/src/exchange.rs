//! Slots of (value, epoch) units: publish and gather.

use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_turn};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Polls between two looks of a waiting block at the clock and the abort word.
const TURNS_PER_LOOK: u32 = 1024;

/// All slots of a step in one array of units.
#[derive(Debug)]
pub struct Exchange {
    units: Box<[AtomicU64]>,
}

/// How long a wait may last before it becomes a fault.
#[derive(Clone, Copy, Debug)]
pub struct Timeout(pub Duration);

/// Whether a gather had to wait, and for which unit last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Index, within the gathered range, of the unit that the gather waited for last.
    pub last_blocked: Option<usize>,
}

/// Why a wait ended before its value arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCause {
    /// The unit still held an earlier epoch at the timeout.
    TimedOut {
        /// The epoch that the unit held.
        seen: u32,
    },
    /// The unit held a later epoch: the reader was lapped, which the protocol rules out.
    Lapped {
        /// The epoch that the unit held.
        seen: u32,
    },
    /// Another block failed first.
    Aborted,
}

/// A wait that ended before its value arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// Index of the unit in the exchange.
    pub unit: usize,
    /// The expected epoch.
    pub expected: u32,
    /// Why the wait ended.
    pub cause: FaultCause,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { unit, expected, cause } = self;
        match cause {
            FaultCause::TimedOut { seen } => {
                write!(out, "timed out on unit {unit}: expected epoch {expected}, saw {seen}")
            }
            FaultCause::Lapped { seen } => {
                write!(out, "lapped on unit {unit}: expected epoch {expected}, saw {seen}")
            }
            FaultCause::Aborted => {
                write!(out, "another block failed during the wait for unit {unit}")
            }
        }
    }
}

/// The word that a failing block sets to abort the other blocks' waits.
#[derive(Debug)]
pub struct Abort(AtomicU32);

impl Default for Abort {
    fn default() -> Abort {
        Abort(AtomicU32::new(0))
    }
}

impl Abort {
    /// Aborts every wait.
    pub fn raise(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// Whether a block has aborted the waits.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

impl Exchange {
    /// `units` units, all with epoch 0; steps count from 1.
    pub fn new(units: usize) -> Exchange {
        Exchange { units: (0..units).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Number of units.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether there are no units.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Which copy of the final slot a step uses.
    pub fn parity(epoch: u32) -> usize {
        (epoch % 2) as usize
    }

    /// Publishes `value` in `unit` for the step `epoch`.
    ///
    /// Release: a block that gathers the unit also sees what this block wrote before (logits, KV
    /// rows). On x86 this costs no more than a relaxed store.
    pub fn publish(&self, unit: usize, value: u32, epoch: u32) {
        let word = (u64::from(epoch) << 32) | u64::from(value);
        self.units[unit].store(word, Ordering::Release);
    }

    /// The value in `unit` and the epoch it belongs to, without waiting.
    pub fn peek(&self, unit: usize) -> (u32, u32) {
        let word = self.units[unit].load(Ordering::Acquire);
        (word as u32, (word >> 32) as u32)
    }

    /// Calls `put(index, value)` with each value of `range` as it arrives.
    ///
    /// # Errors
    /// The [`Fault`] of the first unit that did not arrive within `timeout`, that already had a
    /// later epoch, or during whose wait another block raised `abort`.
    pub fn gather(
        &self,
        range: Range<usize>,
        epoch: u32,
        timeout: Timeout,
        abort: &Abort,
        mut put: impl FnMut(usize, u32),
    ) -> Result<Arrival, Fault> {
        let mut arrival = Arrival::default();
        let first = range.start;
        for (index, unit) in self.units[range].iter().enumerate() {
            let mut word = unit.load(Ordering::Acquire);
            if (word >> 32) as u32 != epoch {
                arrival.last_blocked = Some(index);
                word = wait_for(unit, epoch, timeout, abort).map_err(|cause| Fault {
                    unit: first + index,
                    expected: epoch,
                    cause,
                })?;
            }
            put(index, word as u32);
        }
        Ok(arrival)
    }
}

/// Polls until the unit has this epoch.
#[cold]
fn wait_for(
    unit: &AtomicU64,
    epoch: u32,
    Timeout(timeout): Timeout,
    abort: &Abort,
) -> Result<u64, FaultCause> {
    let mut deadline = None;
    for turns in 1u32.. {
        let word = unit.load(Ordering::Acquire);
        let seen = (word >> 32) as u32;
        if seen == epoch {
            return Ok(word);
        }
        if seen > epoch {
            return Err(FaultCause::Lapped { seen });
        }
        if cfg!(feature = "loom") && abort.is_raised() {
            return Err(FaultCause::Aborted);
        }
        if turns.is_multiple_of(TURNS_PER_LOOK) {
            if abort.is_raised() {
                return Err(FaultCause::Aborted);
            }
            let now = Instant::now();
            if now > *deadline.get_or_insert(now + timeout) {
                return Err(FaultCause::TimedOut { seen });
            }
        }
        spin_turn(turns);
    }
    unreachable!("the deadline ends the loop long before the turns run out")
}
