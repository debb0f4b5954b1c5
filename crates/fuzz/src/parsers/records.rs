//! Run records, as `report` reads them, and the inputs of gates: references, controls, prompts.

use super::{Parser, Scratch};
use crate::corpus::{self, RUN, shortened};
use crate::mutate::mutated;
use crate::random::Random;
use anyhow::{Context, Result};
use monolith_harness::bench::StreamRecord;
use monolith_harness::gate::GateRecord;
use monolith_harness::identity::ids_sha256;
use monolith_harness::prompts::{PromptIds, read_prompts};
use monolith_harness::quality::{ControlFile, QualityRecord, Wanted};
use monolith_harness::reference::Reference;
use monolith_harness::report::{self, PageRaces};
use monolith_harness::runs::RunFolder;
use serde_json::{Value, json};

pub const PARSERS: &[Parser] = &[
    Parser {
        name: "rows",
        about: "rows.jsonl, reported",
        weight: 6,
        corpus: || Ok(vec![rows()?]),
        mutate: lines_mutated,
        prepare: |scratch| prepare(scratch, "gate"),
        run: |bytes, scratch| takes(bytes, scratch, "run/rows.jsonl", is_reported),
    },
    Parser {
        name: "commands",
        about: "commands.jsonl, reported",
        weight: 4,
        corpus: || Ok(vec![first_lines(&corpus::file(&format!("{RUN}/commands.jsonl"))?, 3)]),
        mutate: lines_mutated,
        prepare: |scratch| prepare(scratch, ""),
        run: |bytes, scratch| takes(bytes, scratch, "run/commands.jsonl", is_reported),
    },
    Parser {
        name: "gate",
        about: "gate-*.json, sealed, reported",
        weight: 8,
        corpus: || corpus::files(RUN, "gate-", ".json"),
        mutate: |input, other, random| {
            sealed(input, other, random, |record: GateRecord| record.sealed())
        },
        prepare: |scratch| prepare(scratch, "gate"),
        run: |bytes, scratch| takes(bytes, scratch, "run/gate-input.json", is_reported),
    },
    Parser {
        name: "quality",
        about: "quality-*.json, sealed, reported",
        weight: 4,
        corpus: || corpus::files(RUN, "quality-", ".json"),
        mutate: |input, other, random| {
            sealed(input, other, random, |record: QualityRecord| record.sealed())
        },
        prepare: |scratch| prepare(scratch, "gate"),
        run: |bytes, scratch| takes(bytes, scratch, "run/quality-input.json", is_reported),
    },
    Parser {
        name: "streams",
        about: "stream-*.json, raced and reported",
        weight: 4,
        corpus: streams,
        mutate: mutated,
        prepare: |scratch| prepare(scratch, "gate"),
        run: |bytes, scratch| takes(bytes, scratch, "run/stream-input.json", is_raced),
    },
    Parser {
        name: "environment",
        about: "environment.json, reported",
        weight: 6,
        corpus: || Ok(vec![corpus::file(&format!("{RUN}/environment.json"))?]),
        mutate: mutated,
        prepare: |scratch| prepare(scratch, ""),
        run: |bytes, scratch| takes(bytes, scratch, "run/environment.json", is_reported),
    },
    Parser {
        name: "index",
        about: "index.json, reported",
        weight: 20,
        corpus: || Ok(vec![INDEX.into()]),
        mutate: mutated,
        prepare: |scratch| prepare(scratch, ""),
        run: |bytes, scratch| takes(bytes, scratch, "index.json", is_reported),
    },
    Parser {
        name: "control",
        about: "control-*.json",
        weight: 20,
        corpus: controls,
        mutate: mutated,
        prepare: super::nothing,
        run: |bytes, scratch| {
            takes(bytes, scratch, "control.json", |scratch| {
                let (prompts, tensors_sha256) = (&prompts(), &"0".repeat(64));
                let wanted = Wanted { tensors_sha256, prompts, new: NEW };
                ControlFile::read(&scratch.path("control.json"), wanted).is_ok()
            })
        },
    },
    Parser {
        name: "reference",
        about: "reference.json (the safetensors parser covers its tensors)",
        weight: 20,
        corpus: || {
            corpus::files(RUN, "reference-", ".json")?
                .iter()
                .map(|text| shortened(text, 8))
                .collect()
        },
        mutate: mutated,
        prepare: super::nothing,
        // The tensors are missing, so no input is accepted: the error comes after the checks.
        run: |bytes, scratch| {
            let refuses = |scratch: &Scratch| Reference::open(scratch.dir()).is_err();
            takes(bytes, scratch, "reference.json", refuses)
        },
    },
    Parser {
        name: "prompts",
        about: "a prompt set, one JSON object a line",
        weight: 60,
        corpus: || Ok(vec![first_lines(&corpus::file("data/prompts/bench.jsonl")?, 3)]),
        mutate: lines_mutated,
        prepare: super::nothing,
        run: |bytes, scratch| {
            let reads = |scratch: &Scratch| read_prompts(&scratch.path("prompts")).is_ok();
            takes(bytes, scratch, "prompts", reads)
        },
    },
    Parser {
        name: "ids",
        about: "ids.json",
        weight: 60,
        corpus: || {
            let ids = json!({ "rule": "none", "prompt_set_sha256": "0", "ids": [[1, 2, 3], [4]] });
            Ok(vec![serde_json::to_vec(&ids)?])
        },
        mutate: mutated,
        prepare: super::nothing,
        run: |bytes, scratch| {
            takes(bytes, scratch, "ids.json", |scratch| {
                PromptIds::read(&scratch.path("ids.json"))
                    .is_ok_and(|ids| ids.ids_sha256().len() == 64 && ids.cycled(100).len() <= 100)
            })
        },
    },
];

/// Writes the input to a file and calls `reads`; true if the file was accepted.
fn takes(bytes: &[u8], scratch: &Scratch, file: &str, read: fn(&Scratch) -> bool) -> bool {
    scratch.put(file, bytes) && read(scratch)
}

/// An index with one run: the one that the records belong to.
const INDEX: &str =
    r#"{"runs":[{"folder":"run","gpu":"NVIDIA H200","date":"2026-11-30","kind":"gpu"}]}"#;

/// A results folder with one run: its environment, some rows, and a gate if `gate` is not empty.
fn prepare(scratch: &Scratch, gate: &str) -> Result<()> {
    std::fs::create_dir_all(scratch.path("run"))?;
    let put = |name: &str, bytes: &[u8]| scratch.need(name, bytes);
    put("index.json", INDEX.as_bytes())?;
    put("run/environment.json", &corpus::file(&format!("{RUN}/environment.json"))?)?;
    put("run/rows.jsonl", &rows()?)?;
    if !gate.is_empty() {
        let gates = corpus::files(RUN, "gate-", ".json")?;
        put("run/gate-input.json", &gates[0])?;
    }
    Ok(())
}

fn rows() -> Result<Vec<u8>> {
    Ok(first_lines(&corpus::file(&format!("{RUN}/rows.jsonl"))?, 4))
}

fn first_lines(text: &[u8], most: usize) -> Vec<u8> {
    text.split_inclusive(|&byte| byte == b'\n').take(most).collect::<Vec<_>>().concat()
}

fn is_reported(scratch: &Scratch) -> bool {
    let tables = report::render(scratch.dir());
    let readme = report::run_readme(&RunFolder::named(scratch.dir(), "run"));
    let reports = [tables, readme];
    for text in reports.iter().flatten() {
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(steers), "the report holds a control character");
    }
    reports.iter().all(Result::is_ok)
}

fn is_raced(scratch: &Scratch) -> bool {
    is_reported(scratch);
    let races = PageRaces::of(scratch.dir()).map(|races| serde_json::to_string(&races));
    races.is_ok_and(|text| text.is_ok())
        && StreamRecord::read(&scratch.path("run/stream-input.json")).is_ok()
}

/// Committed streams, cut to eight tokens each and of the run whose rows are beside them.
fn streams() -> Result<Vec<Vec<u8>>> {
    const SUBJECT: [&str; 12] = [
        "engine",
        "variant",
        "format",
        "gpu",
        "blocks",
        "build",
        "kernels",
        "cubin_sha256",
        "nvrtc",
        "commit",
        "weights_sha256",
        "run_id",
    ];
    const OF_ROW: [&str; 7] =
        ["kind", "model", "test", "prompt_ids_sha256", "tokens_sha256", "clock", "gate_passed"];
    let rows = rows()?;
    let row = rows.split(|&byte| byte == b'\n').next().context("a row")?;
    let row: Value = serde_json::from_slice(row)?;
    let cut = |text: &Vec<u8>| -> Result<Vec<u8>> {
        let mut record: Value = serde_json::from_slice(&shortened(text, NEW)?)?;
        for key in SUBJECT {
            record["subject"][key] = row[key].clone();
        }
        for key in OF_ROW {
            record[key] = row[key].clone();
        }
        record["n_gen"] = json!(NEW);
        for stream in record["streams"].as_array_mut().context("streams")? {
            let ns = stream["ns"].as_array().context("ns")?;
            let total: u64 = ns.iter().filter_map(Value::as_u64).sum();
            stream["runs_ns"] = json!([total]);
        }
        Ok(serde_json::to_vec(&record)?)
    };
    corpus::files(STREAMS, "stream-", ".json")?.iter().map(cut).collect()
}

/// Mutates one of the lines, as JSON; or all of them, as bytes.
fn lines_mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> =
        input.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    if random.one_in(4) || lines.is_empty() {
        return mutated(input, other, random);
    }
    let at = random.below(lines.len());
    lines[at] = mutated(&lines[at], other, random);
    if random.below(8) > 0 {
        lines[at].push(b'\n');
    }
    lines.concat()
}

/// Recomputes the record's hash, so that the code behind the hash check is reached.
fn sealed<T: serde::de::DeserializeOwned + serde::Serialize>(
    input: &[u8],
    other: &[u8],
    random: &mut Random,
    seal: fn(T) -> T,
) -> Vec<u8> {
    let text = mutated(input, &other[..other.len().min(512)], random);
    let record = if random.one_in(8) { None } else { serde_json::from_slice(&text).ok() };
    record.and_then(|record| serde_json::to_vec(&seal(record)).ok()).unwrap_or(text)
}

const NEW: usize = 8;

/// The run whose token streams are seed inputs.
const STREAMS: &str = "results/2026-11-30-cpu-04";

fn prompts() -> Vec<Vec<u32>> {
    (0..NEW as u32).map(|id| vec![id]).collect()
}

/// Committed controls, cut to eight prompts of eight tokens each, with matching hashes.
fn controls() -> Result<Vec<Vec<u8>>> {
    let cut = |text: &Vec<u8>| -> Result<Vec<u8>> {
        let mut control: Value = serde_json::from_slice(&shortened(text, NEW)?)?;
        let own = control.as_object_mut().context("an object")?;
        own.insert("tensors_sha256".into(), json!("0".repeat(64)));
        own.insert("prompt_ids_sha256".into(), json!(ids_sha256(&prompts())));
        Ok(serde_json::to_vec(&control)?)
    };
    corpus::files(RUN, "control-", ".json")?.iter().map(cut).collect()
}
