//! Compiling a small kernel: most of these tests need NVRTC.

#![allow(clippy::unwrap_used, reason = "a test, helpers and all")]

#[path = "common/harness.rs"]
mod harness;

use harness::tests;
use monolith_abi::WeightFormat;
use monolith_kernels::arch::ArchRow;
use monolith_kernels::cache::Cache;
use monolith_kernels::cubin::{SHARED_BYTES, THREADS};
use monolith_kernels::nvrtc::{Nvrtc, Search};
use monolith_kernels::source::{ENTRY, KERNEL, KERNELS, options};
use monolith_kernels::variant::{TABLE, released};
use monolith_kernels::{
    Arch, Cubin, CubinInfo, KernelError, Loader, Origin, Shape, Sources, bundle,
};
use monolith_model::synth;
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

fn main() {
    let with_nvrtc = tests![
        a_cubin_says_what_it_needs
        local_memory_is_seen
        compile_errors_name_file_and_line
        a_kernel_is_compiled_once_and_again_if_the_cache_is_damaged
        a_kernel_that_does_not_fit_is_refused
        the_same_sources_give_the_same_machine_code
        a_cache_that_cannot_be_written_is_a_warning
        a_folder_of_kernels_has_a_manifest_and_forgets_old_ones
        larger_dense_models_compile_with_as_many_stages_as_fit
        a_new_architecture_is_a_row
        the_rows_of_the_ablation_compile
    ];
    let anywhere = tests![
        without_compiler_and_cache_the_message_says_what_to_do
        a_mutated_cubin_never_panics
        arbitrary_bytes_never_panic
        an_elf_file_that_is_no_cubin_is_refused
    ];
    harness::run(&with_nvrtc, &anywhere);
}

const FIXTURE: [(&str, &str); 3] = [
    (ENTRY, include_str!("fixture/entry/megakernel.cu")),
    ("ptx.cuh", include_str!("fixture/ptx.cuh")),
    ("phases/product.cuh", include_str!("fixture/phases/product.cuh")),
];

fn fixture() -> Sources {
    changed("", "", "")
}

/// The fixture with a text replaced in one of its files.
fn changed(file: &str, from: &str, to: &str) -> Sources {
    Sources::new(FIXTURE.map(|(name, text)| {
        let text = if name == file { text.replace(from, to) } else { text.into() };
        (name.into(), text)
    }))
}

fn shape() -> Shape {
    Shape::of(&synth::shape("tiny").unwrap()).unwrap()
}

fn compile(sources: &Sources, arch: Arch) -> Result<Vec<u8>, KernelError> {
    let options = options(arch, &shape(), &TABLE[0]);
    Nvrtc::for_tests().compile(sources, arch, &options).map(|compiled| compiled.cubin)
}

fn a_cubin_says_what_it_needs() {
    for arch in Arch::ALL {
        let info = CubinInfo::read(&compile(&fixture(), arch).unwrap()).unwrap();
        assert_eq!(info.capability, arch.capability());
        assert!(info.compiler.as_ref().unwrap().starts_with("13."), "{info:?}");
        let tuning = TABLE[0].step(arch, &shape()).tuning;
        let ring = tuning.stages * tuning.stage_bytes;
        assert_eq!(info.constant(SHARED_BYTES).unwrap(), ring as u64);
        assert_eq!(info.constant(THREADS).unwrap(), u64::from(TABLE[0].threads(arch)));
        assert_eq!(info.constant("monolith_wide").unwrap(), 0x0123_4567_89ab_cdef);
        let missing = info.constant("monolith_none").unwrap_err().to_string();
        assert!(missing.contains("monolith_none"), "{missing}");
        assert_eq!(info.functions.len(), KERNELS.len());
        let kernel = info.kernel(KERNEL).unwrap();
        assert!((8..=64).contains(&kernel.registers), "{kernel:?}");
        assert_eq!((kernel.frame_bytes, kernel.stack_bytes), (0, 0));
        assert_eq!(kernel.threads_max, Some(TABLE[0].threads(arch)));
        assert!((136..=256).contains(&kernel.static_shared_bytes), "{kernel:?}");
        assert!(kernel.code_bytes > 0 && kernel.code_bytes < 10_000, "{kernel:?}");
        assert!(info.kernel("no_such_kernel").is_none());
    }
}

fn local_memory_is_seen() {
    let indexed = "float many[40]; for (int i = 0; i < 40; i++) many[i] = out[i * 7];\n\
                   out[0] = many[threadIdx.x % 40] + many[int(out[3]) % 40];\n  load(";
    for arch in Arch::ALL {
        let cubin = compile(&changed(ENTRY, "load(", indexed), arch).unwrap();
        let info = CubinInfo::read(&cubin).unwrap();
        assert!(info.kernel(KERNEL).unwrap().frame_bytes >= 160, "{info:?}");
    }
}

fn compile_errors_name_file_and_line() {
    for (file, from, to, place) in [
        (ENTRY, "load(", "  unknown_name(", "entry/megakernel.cu:13: error: "),
        ("phases/product.cuh", "float c[4]", "flaot c[4]", "phases/product.cuh:26: error: "),
        ("ptx.cuh", "constexpr", "#include \"gone.cuh\"\nconstexpr", "ptx.cuh:3: "),
    ] {
        let error = compile(&changed(file, from, to), Arch::SM_90A).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(place), "{place} in: {message}");
    }
    let empty = compile(&Sources::new([]), Arch::SM_90A).unwrap_err().to_string();
    assert!(empty.contains(ENTRY), "{empty}");
}

fn loader(cache: &Path, sources: Sources) -> Loader {
    Loader { sources, cache: Some(Cache::new(cache)), search: Search::from_env() }
}

fn load(loader: &Loader, arch: Arch) -> Cubin {
    loader.load(arch, &shape(), &TABLE[0]).unwrap()
}

fn a_kernel_is_compiled_once_and_again_if_the_cache_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let ours = loader(folder.path(), fixture());
    let first = load(&ours, Arch::SM_90A);
    assert!(matches!(first.origin, Origin::Compiled(_)) && first.warnings.is_empty());
    let again = load(&ours, Arch::SM_90A);
    let Origin::Cached(path) = &again.origin else { panic!("{:?}", again.origin) };
    assert_eq!((&again.bytes, &again.info), (&first.bytes, &first.info));
    // What a run's record says of the machine code: the bytes' hash, and who made them.
    let hash: String = Sha256::digest(&first.bytes).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!((first.sha256(), again.sha256()), (hash.clone(), hash));
    let compiler = again.info.compiler.as_deref().unwrap();
    assert!(compiler.starts_with("13.") && compiler.split('.').count() == 3, "{compiler}");
    // Other sources and another architecture are other kernels.
    let other = loader(folder.path(), changed("ptx.cuh", "THREADS", "/**/ THREADS"));
    assert!(matches!(load(&other, Arch::SM_90A).origin, Origin::Compiled(_)));
    let elsewhere = load(&ours, Arch::SM_120A);
    assert!(matches!(elsewhere.origin, Origin::Compiled(_)));
    assert_ne!(elsewhere.sha256(), first.sha256());
    fs::write(path, "damaged").unwrap();
    assert!(matches!(load(&ours, Arch::SM_90A).origin, Origin::Compiled(_)));
    assert!(matches!(load(&ours, Arch::SM_90A).origin, Origin::Cached(_)));
    // Without a compiler the cached kernel does.
    let without = Loader { search: Search::default(), ..ours };
    assert!(matches!(load(&without, Arch::SM_90A).origin, Origin::Cached(_)));
}

fn a_kernel_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sources = changed(ENTRY, "ML_STAGES * ML_STAGE_BYTES", "101376");
    let loader = loader(folder.path(), sources);
    for _compiled_then_cached in 0..2 {
        let error = loader.load(Arch::SM_120A, &shape(), &TABLE[0]).unwrap_err().to_string();
        assert!(error.contains("needs 101632 bytes") && error.contains("has 101376"), "{error}");
    }
}

fn the_same_sources_give_the_same_machine_code() {
    for arch in Arch::ALL {
        let [first, again] = [(); 2].map(|()| compile(&fixture(), arch).unwrap());
        assert!(first == again, "{arch}");
    }
}

fn a_cache_that_cannot_be_written_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cubin = load(&loader(&file.join("kernels"), fixture()), Arch::SM_90A);
    assert!(matches!(cubin.origin, Origin::Compiled(_)));
    assert!(cubin.warnings[0].contains("could not be cached"), "{:?}", cubin.warnings);
}

fn without_compiler_and_cache_the_message_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let search = Search { named: Some(nowhere.clone()), ..Search::default() };
    let loader = Loader { search, ..loader(&folder.path().join("cache"), fixture()) };
    let message = loader.load(Arch::SM_90A, &shape(), &TABLE[0]).unwrap_err().to_string();
    for part in [TABLE[0].name, "sm_90a", &nowhere.display().to_string(), "pip install"] {
        assert!(message.contains(part), "{message}");
    }
}

fn a_folder_of_kernels_has_a_manifest_and_forgets_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let build = |sources: &Sources, archs: &[Arch]| {
        let search = Search::from_env();
        let rows: Vec<_> = released().collect();
        bundle::build(sources, &search, &rows, archs, &[shape()], folder.path(), &mut |_, _, _| ())
            .unwrap()
    };
    let count = || fs::read_dir(folder.path()).unwrap().count();
    let built = build(&fixture(), &Arch::ALL);
    let all = Arch::ALL.len() * released().count();
    assert_eq!((built.len(), count()), (all, all + 1));
    let text = fs::read(folder.path().join(bundle::MANIFEST)).unwrap();
    let manifest: bundle::Manifest = serde_json::from_slice(&text).unwrap();
    for (row, built) in manifest.kernels.iter().zip(&built) {
        assert_eq!(*row, built.row);
        let cubin = fs::read(folder.path().join(&row.file)).unwrap();
        assert_eq!(CubinInfo::read(&cubin).unwrap(), built.info);
    }
    fs::write(folder.path().join("mine.txt"), "stays").unwrap();
    build(&changed("ptx.cuh", "THREADS", "/**/ THREADS"), &[Arch::SM_90A]);
    assert_eq!(count(), released().count() + 2);
}

/// The fixture's cubin, or some bytes where there is no compiler.
fn cubin_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| match Nvrtc::missing_for_tests() {
        None => compile(&fixture(), Arch::SM_120A).unwrap(),
        Some(_) => b"\x7fELF\x02\x01\x01".repeat(40),
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    fn a_mutated_cubin_never_panics(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = cubin_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        let _ = CubinInfo::read(&bytes);
    }

    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(CubinInfo::read(&bytes).is_err());
    }
}

fn an_elf_file_that_is_no_cubin_is_refused() {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let message = CubinInfo::read(&program).unwrap_err().to_string();
    assert!(message.contains("not for CUDA"), "{message}");
}

fn larger_dense_models_compile_with_as_many_stages_as_fit() {
    let nvrtc = Nvrtc::for_tests();
    for (hidden, intermediate, layers, heads) in
        [(2048, 6144, 28, 16), (2560, 9728, 36, 32), (4096, 12_288, 36, 32)]
    {
        let full = monolith_model::Config::qwen3_0_6b();
        let config = monolith_model::Config { hidden, intermediate, layers, heads, ..full };
        let shape = Shape::of(&config).unwrap();
        for variant in released().filter(|variant| !variant.xray) {
            let options = options(Arch::SM_90A, &shape, variant);
            let compiled = nvrtc.compile(&Sources::ours(), Arch::SM_90A, &options).unwrap();
            let info = CubinInfo::read(&compiled.cubin).unwrap();
            let bytes = info.shared_bytes(KERNEL);
            assert!(bytes <= u64::from(Arch::SM_90A.shared_bytes_max()), "{shape}: {bytes}");
            assert!(bytes > 180_000, "{shape}: {bytes}: a stage more would fit");
        }
    }
}

/// The rows that no release embeds.
fn the_rows_of_the_ablation_compile() {
    let nvrtc = Nvrtc::for_tests();
    let shape = Shape::of(&synth::shape("qwen3-0.6b").unwrap()).unwrap();
    let arch = Arch::SM_90A;
    let others = TABLE.iter().filter(|row| !row.is_released() && !row.xray);
    for variant in others.filter(|row| row.format == WeightFormat::Bf16) {
        let options = options(arch, &shape, variant);
        let compiled = nvrtc.compile(&Sources::ours().of(variant), arch, &options).unwrap();
        assert_eq!(compiled.log, "", "{}", variant.name);
        let info = CubinInfo::read(&compiled.cubin).unwrap();
        for kernel in variant.kernels() {
            let function = info.kernel(kernel).unwrap();
            let place = format!("{}, {kernel}: {function:?}", variant.name);
            assert_eq!(function.threads_max, Some(variant.threads(arch)), "{place}");
            // A few words where two blocks share a multiprocessor and its registers.
            let most = if arch.tuning(variant).residents > 1 { 48 } else { 0 };
            assert!(function.frame_bytes <= most, "{place}");
            assert!(info.shared_bytes(kernel) <= u64::from(arch.shared_bytes_max()), "{place}");
        }
    }
}

/// Everything that differs between GPUs is in a row: one for the B200 compiles all variants, with
/// the H200's numbers. (It is not in the table: nobody has tuned it or run it.)
fn a_new_architecture_is_a_row() {
    const SM_100A: ArchRow = ArchRow {
        name: "sm_100a",
        capability: 100,
        shared_bytes_max: 227 * 1024,
        has_e2m1: true,
        tuning: |variant| Arch::SM_90A.tuning(variant),
    };
    let nvrtc = Nvrtc::for_tests();
    let arch = Arch::of_row(&SM_100A);
    for variant in released() {
        let options = options(arch, &shape(), variant);
        let compiled = nvrtc.compile(&Sources::ours(), arch, &options).unwrap();
        let info = CubinInfo::read(&compiled.cubin).unwrap();
        assert_eq!(info.capability, 100, "{}", variant.name);
        assert!(info.shared_bytes(KERNEL) <= u64::from(arch.shared_bytes_max()));
    }
}
