//! `--help`, `man`, `completions`, `doctor`.

use crate::support::{Place, outcome};

/// Returns the names of the commands, as the help lists them.
fn commands() -> Vec<String> {
    let text = Place::new().succeeds(&["--help"]);
    let list = text.split("Commands:\n").nth(1).unwrap().lines();
    // A line that goes on is indented further.
    let list = list.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names =
        list.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn help_lists_commands_and_exit_codes() {
    let text = Place::new().succeeds(&["--help"]);
    let commands = commands();
    assert!(commands.len() >= 17 && commands[0] == "run", "{commands:?}");
    for code in [
        "0  success",
        "1  failure",
        "2  wrong",
        "3  no usable",
        "4  the model",
        "5  a gate",
        "6  the remote end",
    ] {
        assert!(text.contains(code), "{code}: {text}");
    }
}

#[test]
fn every_command_has_examples_and_describes_every_option() {
    for command in commands() {
        let text = Place::new().succeeds(&[&command, "--help"]);
        assert!(text.contains("Examples:\n"), "{text}");
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 100, "{command}: a line of {longest}");
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].trim_start().starts_with("--")) {
            let described = pair[0].trim_start().contains("  ") || pair[1].starts_with("      ");
            assert!(described, "{command}: {}", pair[0]);
        }
    }
}

#[test]
fn the_manual_has_every_command_and_every_exit_code() {
    let page = Place::new().succeeds(&["man"]);
    assert!(page.contains(".TH monolith 1"));
    for command in commands() {
        let title = format!(".SH MONOLITH {}\n", command.to_uppercase());
        assert!(page.contains(&title), "{title}");
    }
    assert!(page.contains(".SH MONOLITH KERNELS BUILD\n"), "a command below a command");
    let codes = &page[page.find(".SH EXIT STATUS").unwrap()..];
    for code in 0..=7 {
        assert!(codes.contains(&format!("\n  {code}  ")), "{code}: {codes}");
    }
    for name in ["MONOLITH_CACHE", "HF_HOME", "NO_COLOR"] {
        assert!(page.contains(name), "{name}");
    }
}

#[test]
fn completions_know_the_options_in_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Place::new().succeeds(&["completions", shell]);
        for word in ["doctor", "xray-at", "top-p", "stop-after", "bandwidth-source", "kernels"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn doctor_tells_what_can_run_and_why_not() {
    let text = Place::new().succeeds(&["doctor"]);
    assert!(text.contains("cpu    can run: ") && text.contains("scalar"), "{text}");
    assert!(text.contains("cuda   cannot run: "), "{text}");
    assert!(text.contains("monolith pull Qwen/Qwen3-0.6B"), "{text}");
}

#[test]
fn doctor_speaks_json() {
    let text = Place::new().succeeds(&["doctor", "--json", "--engine", "cpu"]);
    let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(seen["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(seen["engines"][0]["engine"], "cpu");
    assert_eq!(seen["engines"][0]["usable"], true);
    assert!(seen["engines"][0]["threads"].as_u64().unwrap() > 0);
    assert_eq!(seen["engines"][1]["engine"], "cuda");
    assert_eq!(seen["engines"][1]["usable"], false);
    assert!(seen["engines"][1]["reason"].is_string());
    assert_eq!(seen["default_model"]["here"], false);
}

#[test]
fn doctor_fails_for_an_engine_that_cannot_run_and_still_reports() {
    for args in [&["doctor", "--engine", "cuda"][..], &["doctor", "--json", "--engine", "cuda"]] {
        let seen = Place::new().run(args);
        assert_eq!(seen.code, 3);
        assert!(seen.stdout.contains("cuda") && seen.stderr.contains("GPU"));
    }
}

#[test]
fn doctor_has_nothing_to_probe_without_a_gpu() {
    for args in [&["doctor", "--probe"][..], &["doctor", "--probe", "--json"]] {
        let seen = Place::new().run(args);
        assert_eq!(seen.code, 3, "{}", seen.stderr);
        assert!(seen.stdout.is_empty() && !seen.stderr.is_empty());
    }
    Place::new().fails(&["doctor", "--out", "x.json"], 2, "--probe");
}

#[test]
fn errors_have_no_colours_even_where_they_are_forced_off() {
    let place = Place::new();
    outcome(place.command(&["rnu"]).env("NO_COLOR", "1")).is_failure(2, "unrecognized");
}

#[test]
fn the_version_is_the_packages() {
    let text = Place::new().succeeds(&["--version"]);
    assert_eq!(text, format!("monolith {}\n", env!("CARGO_PKG_VERSION")));
}
