//! The ends of the help texts: examples that work, and what a script needs to know.

/// What `monolith --help` ends with.
pub fn overview(exit_codes: &str) -> String {
    format!("{OVERVIEW}\n\n{exit_codes}\n\n{ENVIRONMENT}")
}

const OVERVIEW: &str = "Examples:
  monolith pull                           download Qwen/Qwen3-0.6B (1.5 GB)
  monolith run -p 'The capital of France is' -n 32
  monolith run --chat -p 'Why is the sky blue?'
  monolith doctor                         what this machine can run
  monolith gate --help                    from a model to a speed, in five commands
  monolith run --help                     every option of a command, with examples

Data goes to stdout, everything else to stderr.";

/// The variables that change what the program does.
pub const ENVIRONMENT: &str = "Environment:
  MONOLITH_CACHE  folder for packs [default: monolith in the user's cache folder]
  HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE
                  as the hub's Python tools read them
  NO_COLOR        no colours";

/// `monolith run`
pub const RUN: &str = "Examples:
  monolith run -p 'The capital of France is' -n 32
  monolith run --chat --no-think -p 'Write a haiku about memory bandwidth'
  monolith run -f notes.txt --temperature 0.7 --top-p 0.9 --seed 1
  echo 'Once upon a time' | monolith run -m data/tiny
  monolith run -p 'Hello' --json | jq .tok_s
  monolith run -p 'Hello' --xray step.json.gz

Ctrl-C ends the text after the current token and prints the statistics; a second one ends the
program at once.";

/// `monolith pack`
pub const PACK: &str = "Examples:
  monolith pack -o qwen3.pack
  monolith pack -m data/tiny -o tiny.pack

A pack holds the weights only. To run one, keep the model's tokenizer.json, tokenizer_config.json
and generation_config.json beside it. `monolith run` packs a model by itself and keeps the pack in
its cache.";

/// `monolith inspect`
pub const INSPECT: &str = "Examples:
  monolith inspect tiny.pack
  monolith inspect qwen3.pack --gb-s 1792 --position 1000
  monolith inspect qwen3.pack --json | jq .roofline_tok_s";

/// `monolith synth`
pub const SYNTH: &str = "Examples:
  monolith synth -o synthetic
  monolith synth --shape tiny --seed 7 -o small
  monolith diff -m small

A synthetic model has no tokenizer: `diff` and `pack` take it, `run` wants one beside it.";

/// `monolith pull`
pub const PULL: &str = "Examples:
  monolith pull
  monolith pull Qwen/Qwen3-0.6B --revision main
  monolith run -m \"$(monolith pull -q)\" -p Hello

The folder is printed on stdout. Files that are there already are not downloaded again.";

/// `monolith diff`
pub const DIFF: &str = "Examples:
  monolith diff -m data/tiny
  monolith diff -m data/tiny --layers 1 --stop-after qkv
  monolith diff -m data/tiny --tolerance 0    where the arithmetic first differs at all

The reference computes in f32 from the model folder; the exit code is 1 if an element differs.";

/// `monolith ids`
pub const IDS: &str = "Examples:
  monolith ids -o ids.json
  monolith ids -m synthetic -o ids.json

The model's tokenizer makes the ids. A model without one gets ids by a rule that the file states.";

/// `monolith gate`
pub const GATE: &str = "Examples:
  monolith synth -o synthetic             or `monolith pull`
  monolith ids -m synthetic -o ids.json
  python3 tools/reference.py --model synthetic --ids ids.json --out reference
  monolith gate -m synthetic --reference reference
  monolith bench -m synthetic --ids ids.json

These lead from a model to a speed. The record goes into the measuring run's folder and its path
to stdout; the exit code is 5 if a check fails. The context is the reference's. The engine is
chosen once: one that cannot be loaded is an error, not replaced by another.";

/// `monolith bench`
pub const BENCH: &str = "Examples:
  monolith bench --ids ids.json
  monolith bench --ids ids.json -d 16,1024 -r 10 -n 128 -o csv
  monolith bench --ids ids.json --bandwidth-gb-s 4100 --bandwidth-source 'the probe, same run'

Greedy decoding, prefill excluded, argmax included. Without a passed gate of the same run (one
boot of one GPU), build, weights, prompts and engine options nothing is measured, and the exit
code is 5. The rows go to stdout and into the run's folder. Hand-off, compute and argmax left at 0
predict what reading the bytes alone would take.";

/// `monolith report`
pub const REPORT: &str = "Examples:
  monolith report
  cargo xtask report                      the same, into the README

Only rows that a gate record in their own folder allows have a speed; tables never mix GPUs.";

/// `monolith kernels`
pub const KERNELS: &str = "Examples:
  monolith kernels list
  monolith kernels build --arch sm_90a --shape qwen3-0.6b --out kernels";

/// `monolith kernels build`
pub const KERNELS_BUILD: &str = "Examples:
  monolith kernels build --out kernels
  monolith kernels build --arch sm_120a --shape model/config.json --out kernels
  MONOLITH_KERNELS_DIR=kernels cargo build --release -p monolith    embeds them";

/// `monolith doctor`
pub const DOCTOR: &str = "Examples:
  monolith doctor
  monolith doctor --engine cuda || echo 'no GPU here'
  monolith doctor --json | jq '.engines[] | select(.usable)'";

/// `monolith completions`
pub const COMPLETIONS: &str = "Examples:
  monolith completions bash > ~/.local/share/bash-completion/completions/monolith
  monolith completions zsh > ~/.zfunc/_monolith";

/// `monolith man`
pub const MAN: &str = "Examples:
  monolith man | man -l -
  monolith man > ~/.local/share/man/man1/monolith.1";
