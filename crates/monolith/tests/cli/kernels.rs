//! `kernels list` and `kernels build`.

use crate::support::{Place, outcome};

#[test]
fn the_list_has_every_variant_on_every_architecture() {
    let text = Place::new().succeeds(&["kernels", "list"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for arch in monolith_kernels::Arch::ALL {
        for variant in monolith_kernels::variant::TABLE {
            let named =
                |row: &&Vec<&str>| row.first() == Some(&variant.name) && row.contains(&arch.name());
            let row = rows.iter().find(named).unwrap_or_else(|| panic!("{arch}: {text}"));
            assert!(row.contains(&&*variant.threads(arch).to_string()), "{text}");
        }
    }
}

/// The kernel needs NVRTC, which `cargo xtask kernels` installs; its absence is an error in CI.
#[test]
fn a_folder_of_kernels_has_a_manifest() {
    let place = Place::new();
    let args = ["kernels", "build", "--arch", "sm_90a", "--shape", "tiny", "--out", "kernels"];
    let mut command = place.command(&args);
    for name in ["MONOLITH_NVRTC", "CUDA_HOME", "VIRTUAL_ENV"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let seen = outcome(&mut command);
    if seen.stderr.contains("NVRTC, which would compile it, was not found") {
        assert_eq!(seen.code, 1);
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{}", seen.stderr);
        eprintln!("SKIPPED: {}; `cargo xtask kernels` installs it", seen.stderr);
        return;
    }
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    let text = std::fs::read(place.path("kernels/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let kernels = manifest["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), monolith_kernels::variant::TABLE.len());
    let file = kernels[0]["file"].as_str().unwrap();
    assert!(place.path("kernels").join(file).is_file());
    assert!(seen.stdout.contains(file) && kernels[0]["arch"] == "sm_90a", "{}", seen.stdout);
}

#[test]
fn what_no_kernel_is_for() {
    let place = Place::new();
    let build = |option: &[&str], message: &str| {
        place.fails(&[&["kernels", "build", "--out", "x"], option].concat(), 2, message);
        assert!(!place.path("x").exists());
    };
    build(&["--arch", "sm_90"], "there are for: sm_90a, sm_120a");
    build(&["--shape", "huge"], "--shape huge: neither a named shape");
    place.fails(&["kernels", "build"], 2, "--out");
    place.fails(&["kernels"], 2, "list");
}
