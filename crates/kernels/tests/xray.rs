//! The X-ray is not in headline builds: their instructions are those of sources without its calls.

#![allow(clippy::unwrap_used, reason = "a test, helpers and all")]

#[path = "common/harness.rs"]
mod harness;

use harness::tests;
use monolith_kernels::nvrtc::Nvrtc;
use monolith_kernels::source::{KERNEL, options};
use monolith_kernels::variant::{TABLE, released};
use monolith_kernels::{Arch, CubinInfo, Shape, Sources, Variant};
use monolith_model::synth;
use object::{Object, ObjectSection};

fn main() {
    let with_nvrtc = tests![headline_builds_are_those_of_sources_without_the_xray];
    harness::run(&with_nvrtc, &tests![every_row_has_its_recording_row_and_back]);
}

/// The sources without the statements that begin with `xray::`, and how many those were.
fn without_calls(sources: &Sources) -> (Sources, usize) {
    let mut calls = 0;
    let files = sources.files().map(|(name, text)| {
        let is_xray = matches!(
            name,
            "xray.cuh" | "roles/idle.cuh" | "roles/observer.cuh" | "roles/watcher.cuh"
        );
        let mut inside = false;
        let kept = text.split_inclusive('\n').filter(|line| {
            let begins = !is_xray && line.trim_start().starts_with("xray::");
            calls += usize::from(begins);
            let drop = begins || inside;
            inside = drop && !line.trim_end().ends_with(';');
            !drop
        });
        (name.to_owned(), kept.collect::<String>())
    });
    let files: Vec<_> = files.collect();
    (Sources::new(files), calls)
}

/// An instruction is 16 bytes, the upper bits of which are scheduling: stall counts and barriers.
const OPERATION: u128 = (1 << 105) - 1;

/// What the kernel's instructions do, sorted (of two moves in a row the compiler may take either
/// first), and what the cubin says of itself.
fn code(nvrtc: &Nvrtc, sources: &Sources, arch: Arch, variant: &Variant) -> (Vec<u128>, CubinInfo) {
    let shape = Shape::of(&synth::shape("qwen3-0.6b").unwrap()).unwrap();
    let cubin = nvrtc.compile(sources, arch, &options(arch, &shape, variant)).unwrap().cubin;
    let elf = object::File::parse(&*cubin).unwrap();
    let text = elf.section_by_name(&format!(".text.{KERNEL}")).unwrap();
    let words = text.data().unwrap().as_chunks::<16>().0.iter();
    let mut instructions: Vec<u128> =
        words.map(|word| u128::from_le_bytes(*word) & OPERATION).collect();
    instructions.sort_unstable();
    (instructions, CubinInfo::read(&cubin).unwrap())
}

fn headline_builds_are_those_of_sources_without_the_xray() {
    let nvrtc = Nvrtc::for_tests();
    let sources = Sources::ours();
    let (without, calls) = without_calls(&sources);
    assert!(calls >= 20, "{calls} calls: are they still on lines of their own?");
    for arch in Arch::ALL {
        for variant in released().filter(|variant| !variant.xray) {
            let (with, info) = code(&nvrtc, &sources, arch, variant);
            let (stripped, stripped_info) = code(&nvrtc, &without, arch, variant);
            assert_eq!(info, stripped_info, "{} on {arch}", variant.name);
            assert!(with == stripped, "{} on {arch}: the instructions differ", variant.name);
            let recorded = recorded(variant);
            let (recording, _) = code(&nvrtc, &sources, arch, recorded);
            assert!(recording.len() > with.len(), "{} on {arch} records nothing", recorded.name);
        }
    }
}

fn recorded(variant: &Variant) -> &'static Variant {
    let missing = || panic!("{} has no row that records it (xray: true)", variant.name);
    variant.recorded().unwrap_or_else(missing)
}

fn headline(variant: &Variant) -> &'static Variant {
    let missing = || panic!("{} has no row whose time its spans show (xray: false)", variant.name);
    variant.headline().unwrap_or_else(missing)
}

fn every_row_has_its_recording_row_and_back() {
    // Nothing ties one kernel's records to the next one's.
    for variant in TABLE.iter().filter(|variant| !variant.is_by_phase()) {
        let (headline, recorded) = (headline(variant), recorded(variant));
        assert!(!headline.xray && recorded.xray);
        assert_eq!(headline.recorded(), Some(recorded));
        assert_eq!(recorded.headline(), Some(headline));
        assert!(variant == headline || variant == recorded);
    }
}
