//! `run`: what is generated, and how it is reported.

use crate::support::{PROMPT, Place, ids, outcome, run_json, tiny};
use safetensors::SafeTensors;

/// A tensor of the goldens, and the prompt they are of.
fn golden(name: &str) -> Vec<i64> {
    let path = tiny().join("../golden/tiny.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["prompt"], PROMPT);
    let data = SafeTensors::deserialize(&bytes).unwrap().tensor(name).unwrap().data().to_vec();
    data.as_chunks::<8>().0.iter().map(|id| i64::from_le_bytes(*id)).collect()
}

#[test]
fn greedy_tokens_are_those_of_transformers() {
    let seen = run_json(&Place::new(), &["-n", "64", "-p", PROMPT]);
    assert_eq!(ids(&seen["prompt_tokens"]), golden("tokens"));
    assert_eq!(ids(&seen["tokens"]), golden("greedy"));
    assert_eq!(seen["stopped"], "length");
}

#[test]
fn any_number_of_threads_gives_the_same_tokens() {
    for threads in ["1", "2", "3"] {
        let seen = run_json(&Place::new(), &["-n", "64", "-p", PROMPT, "--threads", threads]);
        assert_eq!(ids(&seen["tokens"]), golden("greedy"), "{threads} threads");
        assert_eq!(seen["blocks"].to_string(), threads);
    }
}

#[test]
fn every_simd_level_gives_the_same_tokens() {
    let place = Place::new();
    let doctor: serde_json::Value =
        serde_json::from_str(&place.succeeds(&["doctor", "--json"])).unwrap();
    let levels = doctor["engines"][0]["simd"].as_array().unwrap();
    assert!(levels.iter().any(|level| level == "scalar"));
    for level in levels {
        let level = level.as_str().unwrap();
        let seen = run_json(&place, &["-n", "64", "-p", PROMPT, "--simd", level]);
        assert_eq!(ids(&seen["tokens"]), golden("greedy"), "{level}");
        assert!(seen["variant"].as_str().unwrap().ends_with(level));
    }
}

#[test]
fn text_is_streamed_to_stdout_and_statistics_to_stderr() {
    let (place, model) = (Place::new(), tiny());
    let base = ["run", "-n", "12", "-p", PROMPT, "-m", model.to_str().unwrap()];
    let seen = place.run(&base);
    let json = run_json(&place, &base[1..5]);
    assert_eq!(seen.stdout, format!("{}\n", json["text"].as_str().unwrap()));
    for part in ["loaded in ", "prompt of 30 tokens", "first token after ", "12 tokens generated"] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    assert!(seen.stderr.contains("11 steps after the prompt"), "{}", seen.stderr);
    assert!(seen.stderr.contains("tok/s") && seen.stderr.contains("stopped: length"));
    let quiet = place.run(&[&base[..], &["--quiet"]].concat());
    assert_eq!((quiet.stdout, quiet.stderr), (seen.stdout, String::new()));
}

#[test]
fn json_tells_what_was_run_and_how_long_it_took() {
    let seen = run_json(&Place::new(), &["-n", "5", "-p", "My fellow", "--context", "100"]);
    for name in ["model", "variant", "device", "text", "scope", "stopped"] {
        assert!(seen[name].is_string(), "{name}: {seen}");
    }
    for name in ["load_s", "prefill_s", "ttft_s", "prompt_tok_s", "decode_s", "tok_s", "gb_s"] {
        assert!(seen[name].as_f64().unwrap() > 0.0, "{name}: {seen}");
    }
    assert_eq!(seen["model"], "tiny");
    assert_eq!(seen["engine"], "cpu");
    assert_eq!(seen["context"], 100);
    assert_eq!(seen["n_prompt"], ids(&seen["prompt_tokens"]).len());
    assert_eq!(seen["n_gen"], 5);
    assert_eq!(seen["decode_steps"], 4, "the first token comes with the prompt");
    assert!(seen["ttft_s"].as_f64().unwrap() >= seen["prefill_s"].as_f64().unwrap());
    for (rate, count, seconds) in
        [("tok_s", "decode_steps", "decode_s"), ("prompt_tok_s", "n_prompt", "prefill_s")]
    {
        let number = |name: &str| seen[name].as_f64().unwrap();
        let wanted = number(count) / number(seconds);
        assert!((number(rate) / wanted - 1.0).abs() < 1e-6, "{rate}: {seen}");
    }
    assert_eq!(seen["step_us"].as_array().unwrap().len(), 4);
    assert_eq!(ids(&seen["tokens"]).len(), 5);
}

#[test]
fn one_token_needs_no_step() {
    let seen = run_json(&Place::new(), &["-n", "1", "-p", PROMPT]);
    assert_eq!(ids(&seen["tokens"]), golden("greedy")[..1]);
    assert_eq!((&seen["n_gen"], &seen["decode_steps"]), (&1.into(), &0.into()));
    assert_eq!(seen["tok_s"], 0.0);
}

#[test]
fn the_text_ends_where_the_context_does() {
    let seen = run_json(&Place::new(), &["-p", PROMPT, "--context", "34", "--ignore-eos"]);
    assert_eq!(seen["stopped"], "context full");
    assert_eq!(ids(&seen["tokens"]), golden("greedy")[..5], "30 + 4 positions, and one to come");
}

#[test]
fn end_of_text_ends_it_unless_ignored() {
    let place = Place::new();
    let ended = run_json(&place, &["-p", "x"]);
    assert_eq!(ended["stopped"], "end of text");
    let on = run_json(&place, &["-p", "x", "--ignore-eos", "-n", "60"]);
    assert_eq!(on["stopped"], "length");
    // The step that gave the stop token ran, and none after it.
    let (count, steps) =
        (ended["n_gen"].as_u64().unwrap(), ended["decode_steps"].as_u64().unwrap());
    assert_eq!(steps, count, "the first token took no step, and the stop token one");
    assert_eq!(ended["step_us"].as_array().unwrap().len() as u64, steps);
    let (ended, on) = (ids(&ended["tokens"]), ids(&on["tokens"]));
    assert_eq!(ended.len() as u64, count);
    assert_eq!(on[..ended.len()], ended);
    assert!([4093, 4095].contains(&on[ended.len()]), "{on:?}");
}

#[test]
fn a_seed_gives_the_same_text_every_time() {
    let place = Place::new();
    let sampled = |seed: &str, threads: &str| {
        let sampling = ["--temperature", "0.9", "--top-p", "0.95", "--top-k", "50"];
        let rest = ["-n", "40", "-p", "My fellow", "--ignore-eos", "--seed", seed, "-t", threads];
        ids(&run_json(&place, &[&sampling[..], &rest].concat())["tokens"])
    };
    assert_eq!(sampled("1", "1"), sampled("1", "3"));
    assert_ne!(sampled("1", "2"), sampled("2", "2"));
}

#[test]
fn sampling_from_one_token_is_greedy() {
    let args = ["-n", "64", "-p", PROMPT, "--temperature", "1.5", "--top-k", "1", "--seed", "7"];
    assert_eq!(ids(&run_json(&Place::new(), &args)["tokens"]), golden("greedy"));
}

#[test]
fn chat_wraps_the_prompt_in_the_models_template() {
    let place = Place::new();
    let plain = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    let tokens = |args: &[&str]| ids(&run_json(&place, args)["prompt_tokens"]);
    assert_eq!(tokens(&["-n", "1", "--chat", "-p", "Hello"]), tokens(&["-n", "1", "-p", plain]));
    let system = tokens(&["-n", "1", "--chat", "--system", "Be brief.", "-p", "Hello"]);
    let plain = format!("<|im_start|>system\nBe brief.<|im_end|>\n{plain}");
    assert_eq!(system, tokens(&["-n", "1", "-p", &plain]));
}

#[test]
fn a_prompt_comes_from_an_argument_a_file_or_a_pipe() {
    let (place, model) = (Place::new(), tiny());
    let base = ["run", "-q", "-n", "8", "-m", model.to_str().unwrap()];
    let demo = model.join("demo-prompt.txt");
    let text = std::fs::read_to_string(&demo).unwrap();
    let by_argument = place.succeeds(&[&base[..], &["-p", &text]].concat());
    let by_file = place.succeeds(&[&base[..], &["-f", demo.to_str().unwrap()]].concat());
    let by_pipe = outcome(place.command(&base).write_stdin(text));
    assert!(by_argument.len() > 8);
    assert_eq!((&by_file, &by_pipe.stdout), (&by_argument, &by_argument));
}
