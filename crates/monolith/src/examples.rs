//! The ends of the help texts: working examples, and what a script needs to know.

/// Returns the end of `monolith --help`.
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

/// The environment variables that the program reads.
pub const ENVIRONMENT: &str = "Environment:
  MONOLITH_CACHE  folder for packs [default: monolith in the user's cache folder]
  HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, XDG_CACHE_HOME, HF_ENDPOINT, HF_TOKEN,
  HUGGING_FACE_HUB_TOKEN, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
                  as huggingface_hub 2.4 reads them; token files are not read
  SSL_CERT_FILE, SSL_CERT_DIR
                  certificate authorities to trust in place of the system's
  NO_COLOR        no colours";

/// `monolith run`
pub const RUN: &str = "Examples:
  monolith run -p 'The capital of France is' -n 32
  monolith run --chat --no-think -p 'Write a haiku about memory bandwidth'
  monolith run -f notes.txt --temperature 0.7 --top-p 0.9 --seed 1
  echo 'Once upon a time' | monolith run -m data/tiny
  monolith run -p 'Hello' --json | jq .tok_s
  monolith run -p 'Hello' --xray step.json.gz     for the page; .xray: for `monolith xray`

Ctrl-C ends the text after the current token and prints the statistics; a second one ends the
program at once.";

/// `monolith pack`
pub const PACK: &str = "Examples:
  monolith pack -o qwen3.pack
  monolith pack -m data/tiny -o tiny.pack
  monolith pack --format fp8 -o qwen3-fp8.pack

FP8 is E4M3 with one scale per row, rounded to nearest even. The command prints the quantization
error, and the pack records it. With --scale-search mse a row's scale is the one with the least
squared error. The codes and scales of an FP8 checkpoint (compressed-tensors, one scale per row) are
copied. Weights in F32 and F16 are rounded to bf16 first.

A pack holds the weights and the end-of-text tokens. To run one, keep the model's tokenizer.json and
tokenizer_config.json beside it; the end-of-text tokens of a generation_config.json beside it
are used instead of the pack's. `monolith run` packs a model by itself and keeps the pack in its
cache.";

/// `monolith unpack`
pub const UNPACK: &str = "Examples:
  monolith unpack -m data/tiny --format fp8 -o tiny-fp8
  python3 tools/reference.py --model tiny-fp8 --ids ids.json --out reference

bf16 weights are copied; other weights are written as the f32 values of their codes and scales. The
folder is for tools/reference.py, which makes a gate's reference. It has no tokenizer.";

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
  monolith synth --deltas data/standin -o standin
  monolith run -m standin -p \"He opened the door and\"

A synthetic model has no tokenizer: `diff` and `pack` accept it, but `run` needs a tokenizer beside
it. A model rebuilt from deltas has one; it is kept only if its sha256 is the recorded one.";

/// `monolith pull`
pub const PULL: &str = "Examples:
  monolith pull
  monolith pull Qwen/Qwen3-0.6B --revision main
  monolith run -m \"$(monolith pull -q)\" -p Hello

The command prints the folder on stdout. It downloads only files that are missing.";

/// `monolith diff`
pub const DIFF: &str = "Examples:
  monolith diff -m data/tiny
  monolith diff -m data/tiny --layers 1 --stop-after qkv
  monolith diff -m data/tiny --tolerance 0    the first difference of any size

The reference computes in f32 from the model folder; the exit code is 1 if an element differs.";

/// `monolith ids`
pub const IDS: &str = "Examples:
  monolith ids -o ids.json
  monolith ids -m synthetic -o ids.json

The model's tokenizer makes the ids. Without one, the ids follow a rule that the file states.";

/// `monolith gate`
pub const GATE: &str = "Examples:
  monolith gate -m data/tiny              with the reference in data/golden
  monolith bench -m data/tiny             the speed, verified by that gate

Any other model, with a reference made by transformers (torch, transformers and safetensors):
  monolith ids -m synthetic -o ids.json
  python3 tools/reference.py --model synthetic --ids ids.json --out reference
  monolith gate -m synthetic --reference reference
  monolith bench -m synthetic

The record goes into the measuring run's folder and its path to stdout; the exit code is 5 if a
check fails. The engine's token may differ from the reference's only at a near tie. If the
reference's own f32 tokens break that rule, a token that equals the f32 token also passes. The
reference sets the context. If the engine cannot be loaded, the command fails: it never falls back
to another one.";

/// `monolith bench`
pub const BENCH: &str = "Examples:
  monolith bench -m data/tiny
  monolith bench -p 512 -n 128 -d 0 --no-prompts -o json
  monolith bench -d 16-4096*4 -n 64-256+64 -r 10 -o sql -oe md > rows.sql
  monolith bench --bandwidth-gb-s 4100 --bandwidth-source 'the probe, same run'

tg256 @ d16 decodes 256 tokens greedily with 16 positions cached: prefill excluded, argmax
included. pp512 feeds a prompt of 512 tokens, from an empty cache to the first token.

A speed is verified if `monolith gate` has passed before it in the same run (one boot of one GPU)
with the same build, weights, prompts and engine options. Verified rows also go into the run's
folder. All others are marked *unverified*, go to stdout only, and never enter a table. With
hand-off, compute and argmax at 0, the prediction is the time to read the bytes.";

/// `monolith quality`
pub const QUALITY: &str = "Examples:
  monolith quality -m data/tiny --candidate-format fp8
  monolith quality --candidate-format fp8 --text wikitext-2-test.txt --control control.json
  monolith quality --candidate qwen3-fp8.pack --text book.txt --limit-tokens 20000

WikiText-2's test split, as commonly scored:
  python3 -c 'from datasets import load_dataset as load
  rows = load(\"Salesforce/wikitext\", \"wikitext-2-raw-v1\", split=\"test\")[\"text\"]
  print(\"\\n\\n\".join(rows), end=\"\")' > wikitext-2-test.txt

The control: how far bf16 and f32 agree with nothing quantized (it changes no threshold):
  monolith ids --prompts data/prompts/quality.jsonl -o ids.json
  python3 tools/control.py --model CHECKPOINT --ids ids.json --out control.json

The model in bf16 is the reference. Both engines run over the same tokens, which gives the
perplexity of the text, the KL divergence of the next-token distributions and the agreement of
greedy tokens. The gate passes if the perplexity rises by at most 2% and 90% of the tokens agree
while each engine decodes by itself; the exit code is 5 if not. A second verdict stands beside it:
the same, but teacher-forced, with the candidate fed the reference's tokens. The record goes into
the measuring run's folder and its path to stdout. Finished windows and prompts are kept: after
Ctrl-C the same command continues from there.";

/// `monolith report`
pub const REPORT: &str = "Examples:
  monolith report
  cargo xtask report                      the same, into the README

A row has a speed only if its folder holds the passed gate; tables never mix GPUs.";

/// `monolith kernels`
pub const KERNELS: &str = "Examples:
  monolith kernels list
  monolith kernels build --arch sm_90a --shape qwen3-0.6b --out kernels";

/// `monolith kernels build`
pub const KERNELS_BUILD: &str = "Examples:
  monolith kernels build --out kernels
  monolith kernels build --arch sm_120a --shape model/config.json --out kernels
  MONOLITH_KERNELS_DIR=kernels cargo build --release -p monolith    embeds them";

/// `monolith xray`
pub const XRAY: &str = "Examples:
  monolith xray record --at 16            writes VARIANT-16.xray, such as bf16-flag-16.xray
  monolith run -p 'Hello' --xray step.xray
  monolith xray analyze step.xray
  monolith xray export step.xray --to perfetto";

/// `monolith xray analyze`
pub const XRAY_ANALYZE: &str = "Examples:
  monolith xray analyze step.xray
  monolith xray analyze step.json.gz      a page's trace: no loaders, no single copies
  monolith xray analyze step.xray --json | jq .path.totals

Every nanosecond of every block is work, a named wait, or unrecorded. The critical path is the
chain of work and hand-offs that ends in the argmax; its classes add up to the token.";

/// `monolith xray export`
pub const XRAY_EXPORT: &str = "Examples:
  monolith xray export step.xray --to perfetto        for ui.perfetto.dev: step.pftrace
  monolith xray export step.xray --to png -o step.png
  monolith xray export step.json.gz --to csv

The command prints the file's name on stdout. It replaces no file of another kind.";

/// `monolith xray record`
pub const XRAY_RECORD: &str = "Examples:
  monolith xray record -m data/tiny --at 16,128
  monolith xray record --engine cuda --at 16,2048 -o dumps

The recording and the headline build run the same loop alternately; the dump says how much slower
the recording build is. The files' names go to stdout.";

/// `monolith xray fault`
pub const XRAY_FAULT: &str = "Examples:
  monolith xray fault
  monolith xray fault last-fault.json

If a wait on the GPU times out, the step is aborted and a file keeps every wait of every block.";

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
