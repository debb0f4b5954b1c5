//! The doorbell: one wake-up a step for a team of sleeping workers.

use crate::sync::{AtomicU64, Ordering, Thread, current, park, spin_turn};
use std::sync::OnceLock;

/// The ring that ends all workers.
pub const STOPPED: u64 = u64::MAX >> 1;

/// In a bell's word: the worker is asleep.
const ASLEEP: u64 = 1;

/// Polls before a worker goes to sleep: some tens of microseconds, longer than the host takes
/// between two tokens, so that a running decode needs no wake-up.
#[cfg(not(feature = "loom"))]
const TURNS_BEFORE_SLEEP: u32 = 1 << 13;
/// Under the model checker one poll covers both cases, awake and asleep.
#[cfg(feature = "loom")]
const TURNS_BEFORE_SLEEP: u32 = 1;

/// Rings `1, 2, 3, ...` wake the workers for that step; [`STOPPED`] ends them.
#[derive(Debug)]
pub struct Doorbell {
    bells: Box<[Bell]>,
}

/// One worker's bell. The ring number and the sleep bit share a word, so that one atomic operation
/// puts a worker to sleep and one wakes it, and a worker cannot sleep through a ring.
#[derive(Debug)]
struct Bell {
    /// `2 * ring + ASLEEP`.
    word: AtomicU64,
    sleeper: OnceLock<Thread>,
}

impl Doorbell {
    /// A doorbell for `workers` workers.
    pub fn new(workers: usize) -> Doorbell {
        let bell = || Bell { word: AtomicU64::new(0), sleeper: OnceLock::new() };
        Doorbell { bells: (0..workers).map(|_| bell()).collect() }
    }

    /// Starts step `ring`. The workers see everything that was written before.
    pub fn ring(&self, ring: u64) {
        for bell in &self.bells {
            let before = bell.word.swap(ring << 1, Ordering::AcqRel);
            if before & ASLEEP != 0
                && let Some(sleeper) = bell.sleeper.get()
            {
                sleeper.unpark();
            }
        }
    }

    /// Waits, as worker `worker`, for a ring other than `last`, and returns it.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn wait(&self, worker: usize, last: u64) -> u64 {
        let Bell { word, sleeper } = &self.bells[worker];
        for turns in 1..=TURNS_BEFORE_SLEEP {
            let now = word.load(Ordering::Acquire);
            if now != last << 1 {
                return now >> 1;
            }
            spin_turn(turns);
        }
        sleeper.get_or_init(current);
        let (awake, asleep) = (last << 1, (last << 1) | ASLEEP);
        if word.compare_exchange(awake, asleep, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            while word.load(Ordering::Acquire) == asleep {
                park();
            }
        }
        word.load(Ordering::Acquire) >> 1
    }
}
