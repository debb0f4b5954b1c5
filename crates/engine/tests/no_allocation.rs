//! A step allocates nothing, on any of its threads.

mod common;

use monolith_engine::{CpuEngine, CpuOptions, Engine};
use monolith_model::synth;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests to the system's allocator.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the system allocator's own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test in this file: the counter is the whole process's.
#[test]
fn a_step_allocates_nothing() {
    let config = synth::shape("tiny").expect("a named shape");
    let pack = common::pack(&common::random(&config, 3));
    for threads in [1, 2, 3] {
        let options = CpuOptions { threads, context: Some(128), ..CpuOptions::default() };
        let mut engine = CpuEngine::load(pack.clone(), &options).expect("the options suit");
        let mut token = engine.step(1, 0).expect("the step runs");
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for position in 1..100 {
            token = engine.step(token, position).expect("the step runs");
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(allocations, 0, "{threads} threads");
    }
    // The counter counts: a recorded step hands its records in.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let mut engine = CpuEngine::load(pack, &CpuOptions::default()).expect("the options suit");
    engine.step_recorded(1, 0).expect("the step runs");
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before);
}
