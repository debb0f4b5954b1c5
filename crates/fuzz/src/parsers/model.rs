//! Models: configuration, safetensors, packs.

use super::{Parser, Scratch, nothing};
use crate::corpus;
use crate::mutate::mutated;
use crate::random::Random;
use anyhow::Result;
use monolith_abi::pack::{MAGIC, PREAMBLE_BYTES, SECTION_ALIGN};
use monolith_model::{Checkpoint, Config, Tensor, Weights, checkpoint::parse_index, synth};
use monolith_pack::{Formats, Pack, Source, pack_to_bytes_as, padded};
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use std::path::Path;

pub const PARSERS: &[Parser] = &[
    Parser {
        name: "config",
        about: "config.json",
        weight: 200,
        corpus: configs,
        mutate: mutated,
        prepare: nothing,
        run: |bytes, _| {
            let config = Config::parse(bytes, Path::new("config.json"));
            config.is_ok_and(|config| {
                !config.to_json().is_empty() && config.kv_bytes_per_position() > 0
            })
        },
    },
    Parser {
        name: "safetensors",
        about: "a safetensors file of a small model",
        weight: 30,
        corpus: || Ok(vec![safetensors()?]),
        mutate: safetensors_mutated,
        prepare: |scratch| scratch.need("config.json", SMALL.as_bytes()),
        run: |bytes, scratch| scratch.put("model.safetensors", bytes) && is_whole(scratch),
    },
    Parser {
        name: "safetensors-index",
        about: "model.safetensors.index.json",
        weight: 60,
        corpus: || Ok(vec![index()?]),
        mutate: mutated,
        prepare: |scratch| {
            scratch.need("config.json", SMALL.as_bytes())?;
            scratch.need("a.safetensors", &safetensors()?)
        },
        run: |bytes, scratch| {
            let parsed = parse_index(bytes, Path::new("index.json")).is_ok();
            scratch.put("model.safetensors.index.json", bytes) && is_whole(scratch) && parsed
        },
    },
    Parser {
        name: "pack",
        about: "a pack: preamble, header, sections",
        weight: 20,
        corpus: packs,
        mutate: pack_mutated,
        prepare: nothing,
        run: |bytes, _| {
            let Ok(pack) = Pack::from_bytes(bytes.to_vec(), "input") else { return false };
            let (header, config) = (pack.header(), pack.config().clone());
            let kinds = header.bytes_by_kind().len();
            let tensors =
                Tensor::all(&config).into_iter().map(|tensor| pack.tensor_f32(tensor).len());
            header.bytes_at(config.max_positions) > 0 && kinds > 0 && tensors.sum::<usize>() > 0
        },
    },
];

/// A model of a few kilobytes.
const SMALL: &str = include_str!("../../corpus/config.json");

fn small() -> Result<Config> {
    Ok(Config::parse(SMALL.as_bytes(), Path::new("config.json"))?)
}

fn configs() -> Result<Vec<Vec<u8>>> {
    Ok(vec![corpus::file("data/tiny/config.json")?, SMALL.into()])
}

/// Opens the checkpoint and reads all of it; true if that succeeds.
fn is_whole(scratch: &Scratch) -> bool {
    let Ok(checkpoint) = Checkpoint::open_quantized(scratch.dir()) else { return false };
    let tensors = Tensor::all(checkpoint.config());
    tensors.into_iter().map(|tensor| checkpoint.stored(tensor).row_f32(0).len()).sum::<usize>() > 0
}

/// The small model's tensors: names, shapes and offsets, and the bytes of them all.
fn header() -> Result<(Map<String, serde_json::Value>, usize)> {
    let config = small()?;
    let (mut header, mut end) = (Map::new(), 0);
    for tensor in Tensor::all(&config) {
        let (rows, cols) = tensor.shape(&config);
        let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
        let begin = end;
        end += 2 * rows * cols;
        let info = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [begin, end] });
        header.insert(tensor.name(), info);
    }
    Ok((header, end))
}

fn safetensors() -> Result<Vec<u8>> {
    let (header, bytes) = header()?;
    Ok(with_length(&serde_json::to_vec(&header)?, &vec![0; bytes]))
}

fn with_length(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, data].concat()
}

/// Mutates mostly the header, then corrects its length.
fn safetensors_mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let length = input.first_chunk().map_or(0, |length| u64::from_le_bytes(*length)) as usize;
    if random.one_in(4) || input.len() < 8 + length {
        return mutated(input, other, random);
    }
    let (header, data) = input[8..].split_at(length);
    with_length(&mutated(header, b"{\"dtype\":\"F32\"}", random), data)
}

fn index() -> Result<Vec<u8>> {
    let (header, bytes) = header()?;
    let map: Map<String, serde_json::Value> =
        header.keys().map(|name| (name.clone(), json!("a.safetensors"))).collect();
    Ok(serde_json::to_vec(&json!({ "metadata": { "total_size": bytes }, "weight_map": map }))?)
}

fn packs() -> Result<Vec<Vec<u8>>> {
    let weights = synth::weights(&small()?, 1);
    let pack = |format: &str| -> Result<Vec<u8>> {
        let formats = Formats::from_name(format)
            .ok_or_else(|| anyhow::anyhow!("there is no format {format}"))?;
        let source = Source { model: "small".into(), revision: None };
        Ok(pack_to_bytes_as(&weights, source, formats)?)
    };
    Ok(vec![pack("bf16")?, pack("fp8")?])
}

/// Mutates mostly the header, then recomputes its sha256.
fn pack_mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let at = |from: usize| input.get(from..from + 8).and_then(|word| word.try_into().ok());
    let length = at(16).map_or(0, u64::from_le_bytes) as usize;
    let end = PREAMBLE_BYTES + length;
    if random.one_in(4) || end > input.len() || !input.starts_with(&MAGIC) {
        return mutated(input, &other[..other.len().min(256)], random);
    }
    let header = mutated(&input[PREAMBLE_BYTES..end], b"\"fp8\"", random);
    let payload = &input[padded(end, SECTION_ALIGN).min(input.len())..];
    let mut pack = input[..PREAMBLE_BYTES].to_vec();
    pack[16..24].copy_from_slice(&(header.len() as u64).to_le_bytes());
    pack[32..64].copy_from_slice(&Sha256::digest(&header));
    pack.extend(&header);
    pack.resize(padded(pack.len(), SECTION_ALIGN), 0);
    pack.extend(payload);
    pack
}
