//! `kernels build`, which needs NVRTC.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "../../kernels/tests/common/harness.rs"]
mod harness;
#[allow(dead_code, reason = "the other tests' helpers")]
#[path = "cli/support.rs"]
mod support;

use harness::tests;
use support::{Place, outcome};

fn main() {
    harness::run(&tests![a_folder_of_kernels_has_a_manifest], &[]);
}

fn a_folder_of_kernels_has_a_manifest() {
    let place = Place::new();
    let args = ["kernels", "build", "--arch", "sm_90a", "--shape", "tiny", "--out", "kernels"];
    let mut command = place.command(&args);
    for name in [
        "MONOLITH_NVRTC",
        "CUDA_HOME",
        "CUDA_PATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
    ] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let seen = outcome(&mut command);
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    let text = std::fs::read(place.path("kernels/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let kernels = manifest["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), monolith_kernels::variant::released().count());
    let file = kernels[0]["file"].as_str().unwrap();
    assert!(place.path("kernels").join(file).is_file());
    assert!(seen.stdout.contains(file) && kernels[0]["arch"] == "sm_90a", "{}", seen.stdout);
}
