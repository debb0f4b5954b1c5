//! The machine code of the CPU's kernels, as this test's own program holds it.
//!
//! An intrinsic that is called from outside of its set of instructions (from a closure that was
//! not inlined, say) becomes a function of its own: a call for each vector instruction, which
//! costs a factor of a hundred and changes no result. AVX-512 is compiled on every machine, so
//! its code is checked on every machine, too.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use common::{pack, random};
use monolith_engine::{CpuEngine, CpuOptions, Engine};
use monolith_model::Config;
use object::{Object, ObjectSymbol, SymbolKind};

/// The functions of this program, by their mangled names.
fn functions() -> Vec<String> {
    let program = std::env::current_exe().expect("a test is a program");
    let bytes = std::fs::read(program).expect("the program can be read");
    let file = object::File::parse(&*bytes).expect("the program is an ELF file");
    let functions = file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition());
    functions.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).collect()
}

/// The name of a vector intrinsic, if the function is one: of `core::arch`, or `pulp`'s form of it.
fn intrinsic(mangled: &str) -> Option<&str> {
    // A path's parts carry their lengths: `9core_arch3x864avx216_mm256_and_si256`.
    let (_, path) = mangled.split_once("9core_arch")?;
    let start = path.find("_mm")?;
    let end = path[start..].find("17h").map_or(path.len(), |hash| start + hash);
    Some(&path[start..end])
}

#[test]
fn no_vector_instruction_is_left_as_a_call() {
    // What nobody uses is not linked.
    let config = Config {
        hidden: 32,
        intermediate: 32,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        vocab: 32,
        max_positions: 4,
        ..Config::qwen3_0_6b()
    };
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let mut engine = CpuEngine::load(pack(&random(&config, 3)), &options).expect("loads");
    engine.step(1, 0).expect("the step runs");

    let functions = functions();
    for level in ["V3", "V4"] {
        let kernel = format!("{level}9vectorize");
        let count = functions.iter().filter(|name| name.contains(&kernel)).count();
        assert!(count >= 2, "{count} kernels for {level}: products and attention are wanted");
    }
    let calls: Vec<&str> = functions.iter().filter_map(|name| intrinsic(name)).collect();
    assert!(calls.is_empty(), "functions of their own, so calls: {calls:?}");
}

#[test]
fn intrinsics_are_known_by_their_names() {
    let of_core = "_ZN4core9core_arch3x864avx216_mm256_and_si25617h0123456789abcdefE";
    assert_eq!(intrinsic(of_core), Some("_mm256_and_si256"));
    let of_pulp = "_ZN4pulp9core_arch3x867avx512f7Avx512f16_mm512_sllv_epi3217h0123456789abcdefE";
    assert_eq!(intrinsic(of_pulp), Some("_mm512_sllv_epi32"));
    let other = "_ZN4core9core_arch3x865xsave7_xgetbv17h0123456789abcdefE";
    assert_eq!(intrinsic(other), None);
    assert_eq!(intrinsic("_ZN4pulp3x862v32V39vectorize12imp_fastcall17h0123456789abcdefE"), None);
}
