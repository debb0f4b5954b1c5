//! Every probe's kernels for every architecture: needs NVRTC.

#![allow(clippy::unwrap_used, reason = "a test, helpers and all")]

#[path = "../../kernels/tests/common/harness.rs"]
mod harness;

use harness::tests;
use monolith_kernels::nvrtc::Nvrtc;
use monolith_kernels::{Arch, CubinInfo};
use monolith_probes::kernels::{Module, compile};

fn main() {
    let with_nvrtc = tests![
        every_kernel_compiles_and_lives_in_registers
        a_folder_of_kernels_holds_every_one_and_nothing_else
    ];
    harness::run(&with_nvrtc, &[]);
}

fn every_kernel_compiles_and_lives_in_registers() {
    let nvrtc = Nvrtc::for_tests();
    for arch in Arch::ALL {
        for module in Module::ALL {
            let cubin = compile(&nvrtc, module, arch).unwrap();
            let info = CubinInfo::read(&cubin).unwrap();
            assert_eq!(info.capability, arch.capability(), "{module}");
            let mut names: Vec<&str> = module.kernels().to_vec();
            names.sort_unstable();
            let kernels = info.functions.iter().filter(|function| function.is_kernel);
            let mut found: Vec<&str> = kernels.map(|kernel| kernel.name.as_str()).collect();
            found.sort_unstable();
            assert_eq!(found, names, "{module} on {arch}");
            for name in names {
                let kernel = info.kernel(name).unwrap();
                assert_eq!(kernel.frame_bytes, 0, "{name} on {arch}: {kernel:?}");
                let threads = kernel.threads_max.unwrap();
                assert!(kernel.registers <= arch.registers_max(threads), "{kernel:?}");
                // With the dynamic memory that keeps a second block out.
                let shared = kernel.static_shared_bytes + arch.shared_bytes_max() / 2 + 4096;
                assert!(shared <= arch.shared_bytes_max(), "{name} on {arch}: {kernel:?}");
            }
        }
    }
}

fn a_folder_of_kernels_holds_every_one_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    monolith_probes::kernels::write(folder.path()).unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names.len(), Module::ALL.len() * Arch::ALL.len(), "{names:?}");
    for part in ["convert.sm_90a.cubin", "handoff.sm_120a.cubin"] {
        assert!(names.iter().any(|name| name == part), "{names:?}");
    }
}
