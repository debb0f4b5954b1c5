//! Small models, and packs that are damaged and sealed again.

use monolith_abi::pack::PREAMBLE_BYTES;
use monolith_model::{Config, MemoryWeights, Weights};
use monolith_pack::{Formats, Pack, PackError, Source, pack_to_bytes_as};
use sha2::{Digest, Sha256};

pub fn config(dims: [usize; 7], tied: bool) -> Config {
    let [hidden, intermediate, layers, kv_heads, group, half_head, vocab] = dims;
    Config {
        hidden,
        intermediate,
        layers,
        heads: kv_heads * group,
        kv_heads,
        head_dim: 2 * half_head,
        vocab,
        max_positions: 64,
        tied,
        ..Config::qwen3_0_6b()
    }
}

pub fn small() -> Config {
    config([24, 20, 2, 1, 2, 4, 37], false)
}

/// Every element of every tensor is another bf16 value, as far as 16 bits go.
pub fn distinct(config: &Config) -> MemoryWeights {
    let mut bits = 0u16;
    MemoryWeights::from_fn(config, |_, _, _| {
        loop {
            bits = bits.wrapping_add(1);
            let value = f32::from_bits(u32::from(bits) << 16);
            if !value.is_nan() {
                break value;
            }
        }
    })
}

/// Weights as models have them: a spread of sizes within each row, none of them 0.
pub fn ordinary(config: &Config, seed: u64) -> MemoryWeights {
    let mut state = seed;
    MemoryWeights::from_fn(config, move |_, _, _| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let size = (bits >> 40) as f32 / 16_777_216.0 + 1e-3;
        let size = size * 2f32.powi(-((bits & 7) as i32));
        if bits & 8 == 0 { size } else { -size }
    })
}

pub fn source() -> Source {
    Source { model: "test".into(), revision: Some("abc".into()) }
}

pub fn packed(weights: &dyn Weights, formats: Formats) -> Vec<u8> {
    pack_to_bytes_as(weights, source(), formats).unwrap()
}

pub fn opened(weights: &dyn Weights, formats: Formats) -> Pack {
    Pack::from_bytes(packed(weights, formats), "the.pack").unwrap()
}

pub fn refused(bytes: Vec<u8>) -> PackError {
    Pack::from_bytes(bytes, "the.pack").expect_err("a damaged pack is refused")
}

/// Length of the header's text.
pub fn header_bytes(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize
}

/// The payload's place.
pub fn payload_at(bytes: &[u8]) -> usize {
    (PREAMBLE_BYTES + header_bytes(bytes)).next_multiple_of(4096)
}

/// Puts another header in, with the sha256 that belongs to it.
pub fn with_header(bytes: &mut [u8], header: &serde_json::Value) {
    let room = header_bytes(bytes);
    let mut text = serde_json::to_vec(header).unwrap();
    text.resize(room, b' ');
    bytes[32..64].copy_from_slice(&Sha256::digest(&text));
    bytes[PREAMBLE_BYTES..PREAMBLE_BYTES + room].copy_from_slice(&text);
}

pub fn header_of(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(&bytes[PREAMBLE_BYTES..][..header_bytes(bytes)]).unwrap()
}

/// Changes a byte of a section, and every sha256 so that they fit: what a foreign writer could
/// make.
pub fn forged(bytes: &mut [u8], section: usize, at: usize, byte: u8) {
    let mut header = header_of(bytes);
    let entry = &mut header["sections"][section];
    let number = |name: &str| entry[name].as_u64().unwrap() as usize;
    let (begin, length) = (payload_at(bytes) + number("offset"), number("bytes"));
    bytes[begin + at] = byte;
    let digest = Sha256::digest(&bytes[begin..begin + length]);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    entry["sha256"] = hex.into();
    with_header(bytes, &header);
}
