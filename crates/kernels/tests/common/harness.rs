//! Runs a file's tests by libtest-mimic: where NVRTC is missing, those that need it are reported as
//! ignored, and in CI they fail. `cargo xtask kernels` installs NVRTC.

use libtest_mimic::{Arguments, Trial};
use monolith_kernels::nvrtc::Nvrtc;

/// A test's name, and what it does.
pub type Test = (&'static str, fn());

/// Tests by the names of their functions.
macro_rules! tests {
    ($($name:ident)*) => { [$((stringify!($name), $name as fn())),*] };
}
pub(crate) use tests;

/// Runs the tests, and ends the process.
pub fn run(with_nvrtc: &[Test], anywhere: &[Test]) -> ! {
    let arguments = Arguments::from_args();
    let missing = Nvrtc::missing_for_tests();
    if let Some(why) = missing.as_ref().filter(|_| !arguments.list) {
        eprintln!("ignored: the tests that need NVRTC: {why}");
    }
    let trial = |&(name, run): &Test, ignored: bool| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
        .with_ignored_flag(ignored)
    };
    let with_nvrtc = with_nvrtc.iter().map(|test| trial(test, missing.is_some()));
    let trials = with_nvrtc.chain(anywhere.iter().map(|test| trial(test, false))).collect();
    libtest_mimic::run(&arguments, trials).exit()
}
