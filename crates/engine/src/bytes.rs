//! How many bytes each phase of a step reads.

use monolith_abi::Phase;
use monolith_pack::Header;

/// Bytes by phase, all layers together: a phase's matrices, and for attention the KV cache.
/// The norms' weights, less than 0.02% of a step, are not counted.
pub(crate) fn by_phase(header: &Header, position: usize) -> Vec<(Phase, u64)> {
    let weights = header.bytes_by_kind();
    let of = |phase: Phase| {
        let kind = weights.iter().find(|(kind, _)| kind == phase.name());
        let cache = if phase == Phase::Attention {
            header.kv_bytes_per_position * position as u64
        } else {
            0
        };
        (phase, kind.map_or(0, |(_, bytes)| *bytes) + cache)
    };
    Phase::ALL.iter().map(|&phase| of(phase)).filter(|&(_, bytes)| bytes > 0).collect()
}
