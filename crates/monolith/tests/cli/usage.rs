//! Wrong usage: code 2, a message that names the option, before anything is computed.

use crate::support::{Place, tiny};

fn refused(args: &[&str], message: &str) {
    Place::new().fails(args, 2, message);
}

/// `run` with an option that cannot be, on a model that is not even there.
fn run_refused(option: &[&str], named: &str) {
    let args = [&["run", "-m", "/nowhere", "-p", "x"], option].concat();
    let seen = Place::new().run(&args);
    seen.is_failure(2, named);
}

#[test]
fn numbers_that_cannot_be() {
    for value in ["0", "-1", "4097", "many", "99999999999999999999999"] {
        run_refused(&["--threads", value], "--threads");
    }
    for value in ["0", "-1", "1.5"] {
        run_refused(&["--context", value], "--context");
        run_refused(&["-n", value], "--tokens");
        run_refused(&["--xray", "x.gz", "--xray-at", value], "--xray-at");
    }
    for value in ["-1", "nan", "inf", "1e99", "warm", ""] {
        run_refused(&["--temperature", value], "--temperature");
    }
    for value in ["0", "-0.5", "1.01", "nan", "inf"] {
        run_refused(&["--top-p", value], "--top-p");
    }
    run_refused(&["--top-k", "x"], "--top-k");
    run_refused(&["--seed", "x"], "--seed");
}

#[test]
fn a_context_beyond_the_models() {
    let model = tiny();
    let args = ["run", "-m", model.to_str().unwrap(), "-p", "x", "--context", "4097"];
    refused(&args, "a context of 4097 positions was requested; this model supports 1 to 4096");
}

#[test]
fn names_that_do_not_exist() {
    run_refused(&["--simd", "nope"], "--simd");
    run_refused(&["--engine", "tpu"], "possible values: auto, cuda, cpu");
    refused(&["completions", "tcsh"], "possible values: bash, elvish, fish, powershell, zsh");
    refused(&["rnu"], "unrecognized subcommand 'rnu'");
    refused(&["run", "--promt", "x"], "--prompt");
    refused(&["pull", "a/b/c"], "expected organisation/name");
    refused(&["pull", "org/name", "--revision", "a..b"], "expected a branch");
    refused(&["run", "-m", "org/name@", "-p", "x"], "expected a branch");
}

#[test]
fn a_simd_level_of_another_processor() {
    let other = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
    run_refused(&["--simd", other], "this processor has");
}

#[test]
fn no_command_shows_the_help() {
    refused(&[], "Usage: monolith <COMMAND>");
}

#[test]
fn cuda_without_a_gpu_is_refused_before_anything_is_read() {
    let model = tiny();
    let message = "GPU";
    Place::new().fails(&["run", "--engine", "cuda", "-m", "/nowhere", "-p", "x"], 3, message);
    let diff = ["diff", "--engine", "cuda", "-m", model.to_str().unwrap()];
    Place::new().fails(&diff, 3, message);
}
