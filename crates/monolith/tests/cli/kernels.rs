//! `kernels list`, and what `kernels build` refuses; `tests/nvrtc.rs` builds some.

use crate::support::Place;

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

#[test]
fn what_no_kernel_is_for() {
    let place = Place::new();
    let build = |option: &[&str], message: &str| {
        place.fails(&[&["kernels", "build", "--out", "x"], option].concat(), 2, message);
        assert!(!place.path("x").exists());
    };
    let all = monolith_kernels::Arch::ALL.map(|arch| arch.name()).join(", ");
    build(&["--arch", "sm_90"], &format!("there are for: {all}"));
    build(&["--shape", "huge"], "--shape huge: neither a named shape");
    place.fails(&["kernels", "build"], 2, "--out");
    place.fails(&["kernels"], 2, "list");
}
