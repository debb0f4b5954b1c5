//! The variant table: every kernel is a row of it.

use crate::{Arch, KernelError, Shape};
use monolith_abi::WeightFormat;

/// How one phase's output becomes visible to the next phase's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handoff {
    /// Value and epoch in one store; consumers poll the flagged word itself.
    FlagInData,
}

/// A row: the compile-time constants, and the instructions that the machine code must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name used in every file, table and chart.
    pub name: &'static str,
    /// How the layers' matrices are encoded.
    pub format: WeightFormat,
    /// How the LM head and the embedding are encoded.
    pub head_format: WeightFormat,
    /// How a hand-off works.
    pub handoff: Handoff,
    /// Whether spans are recorded.
    pub xray: bool,
    /// Consumer warps, on sm_90a and on sm_120a; one more warp loads. With 16, a thread has 96
    /// registers, with which ptxas spills on sm_120a.
    pub consumer_warps: [u32; 2],
    /// Teams of consumer warps, on sm_90a and on sm_120a: each stage belongs to one team.
    pub teams: [u32; 2],
    /// Bytes of a ring slot.
    pub stage_bytes: u32,
    /// Ring slots on sm_90a and on sm_120a.
    pub stages: [u32; 2],
    /// Positions of the KV cache in a chunk.
    pub kv_chunk: u32,
    /// Number of splits of a head's KV range.
    pub kv_splits: u32,
    /// Positions whose keys and values a warp loads before it uses the first.
    pub kv_ahead: u32,
    /// Machine instructions that the variant must have.
    pub instructions: &'static [&'static str],
}

/// Shared memory besides the ring, the activation and the warps' sums, rounded up: heads,
/// barriers and so on (loading a kernel checks its own figure).
const FIXED_BYTES: u32 = 5 << 10;
/// Bytes of a warp's sums of two batches of 128 rows.
const WARP_SUM_BYTES: u32 = 2 * 4 * 128;

/// The basic bf16 row; the other rows are derived from it.
const BF16_FLAG: Variant = Variant {
    name: "bf16-flag",
    format: WeightFormat::Bf16,
    head_format: WeightFormat::Bf16,
    handoff: Handoff::FlagInData,
    xray: false,
    consumer_warps: [16, 8],
    teams: [4, 1],
    stage_bytes: 16_384,
    stages: [8, 3],
    kv_chunk: 64,
    kv_splits: 16,
    kv_ahead: 3,
    // Tensor cores; the bulk copies of the weight stream; the mbarriers of its ring.
    instructions: &["HMMA", "UBLKCP", "SYNCS"],
};

/// Weights of half the size: a tile of 1,024 columns is one stage, and all warps multiply it. On an
/// H200 a token took 551 us with four teams, 543 us with two, 537 us with one (notes/fp8.md).
const FP8_FLAG: Variant = Variant {
    name: "fp8-flag",
    format: WeightFormat::Fp8,
    head_format: WeightFormat::Fp8,
    teams: [1, 1],
    ..BF16_FLAG
};

/// The LM head stays in bf16. Its matvec is a second piece of code; with three positions loaded
/// ahead, the recording build would spill on sm_90a.
const FP8_HEAD_BF16: Variant = Variant {
    name: "fp8-head-bf16-flag",
    head_format: WeightFormat::Bf16,
    kv_ahead: 2,
    ..FP8_FLAG
};

/// Every variant. A row that records spans follows the row whose time they show.
pub const TABLE: &[Variant] = &[
    BF16_FLAG,
    Variant { name: "bf16-flag-xray", xray: true, ..BF16_FLAG },
    FP8_FLAG,
    Variant { name: "fp8-flag-xray", xray: true, ..FP8_FLAG },
    FP8_HEAD_BF16,
    Variant { name: "fp8-head-bf16-flag-xray", xray: true, ..FP8_HEAD_BF16 },
];

impl Variant {
    /// Returns the row of this name.
    ///
    /// # Errors
    /// There is no such row; the message lists the names.
    pub fn find(name: &str) -> Result<&'static Variant, KernelError> {
        TABLE
            .iter()
            .find(|variant| variant.name == name)
            .ok_or_else(|| KernelError::UnknownVariant { name: name.into() })
    }

    /// Returns the threads of a block.
    pub const fn threads(&self, arch: Arch) -> u32 {
        (self.consumer_warps[arch as usize] + self.other_warps()) * 32
    }

    /// Returns the warps of a block after the consumer warps: the loader's, and in recording builds
    /// the observer's and the watcher's.
    pub const fn other_warps(&self) -> u32 {
        1 + 2 * self.xray as u32
    }

    /// Returns the row that records this row's spans, if there is one.
    pub fn recorded(&self) -> Option<&'static Variant> {
        let alike =
            |other: &&Variant| Variant { name: other.name, xray: other.xray, ..*self } == **other;
        TABLE.iter().filter(|other| other.xray).find(alike)
    }

    /// Returns the row whose time this row's spans show: itself, unless it records.
    pub fn headline(&self) -> Option<&'static Variant> {
        let alike =
            |other: &&Variant| Variant { name: other.name, xray: other.xray, ..*self } == **other;
        TABLE.iter().filter(|other| !other.xray).find(alike)
    }

    /// Returns the number of ring slots for a model: the row's number, or fewer if the model's
    /// activation is wide, but whole rounds of the teams.
    pub fn stages_for(&self, arch: Arch, shape: &Shape) -> u32 {
        let (wanted, teams) = (self.stages[arch as usize], self.teams[arch as usize]);
        let sums = self.consumer_warps[arch as usize] * WARP_SUM_BYTES;
        let taken = shape.activation_bytes() + sums + FIXED_BYTES;
        let room = arch.shared_bytes_max().saturating_sub(taken);
        let fit = room / self.stage_bytes / teams * teams;
        wanted.min(fit.max(teams))
    }

    /// Names the formats: one, or the layers' and the head's.
    pub fn formats(&self) -> String {
        let (layers, head) = (self.format.name(), self.head_format.name());
        if layers == head { layers.into() } else { format!("{layers}, head {head}") }
    }

    /// Returns the first row of a format that does not record.
    pub fn of_formats(layers: WeightFormat, head: WeightFormat) -> Option<&'static Variant> {
        let fits =
            |row: &&Variant| (row.format, row.head_format, row.xray) == (layers, head, false);
        TABLE.iter().find(fits)
    }

    /// Returns the row's constants under the names in the kernels' sources.
    pub fn defines(&self, arch: Arch, shape: &Shape) -> [(&'static str, u32); 11] {
        [
            ("ML_FORMAT", self.format as u32),
            ("ML_HEAD_FORMAT", self.head_format as u32),
            ("ML_CONSUMER_WARPS", self.consumer_warps[arch as usize]),
            ("ML_TEAMS", self.teams[arch as usize]),
            ("ML_STAGE_BYTES", self.stage_bytes),
            ("ML_STAGES", self.stages_for(arch, shape)),
            ("ML_KV_CHUNK", self.kv_chunk),
            ("ML_KV_SPLITS", self.kv_splits),
            ("ML_SHARED_BYTES_MAX", arch.shared_bytes_max()),
            ("ML_KV_AHEAD", self.kv_ahead),
            ("ML_XRAY", u32::from(self.xray)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_find_their_rows_and_are_unique() {
        let names: HashSet<_> = TABLE.iter().map(|variant| variant.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for variant in TABLE {
            assert_eq!(Variant::find(variant.name).unwrap(), variant);
        }
        let message = Variant::find("fp4").unwrap_err().to_string();
        assert!(message.contains("fp4") && message.contains(TABLE[0].name), "{message}");
    }

    #[test]
    fn every_row_fits_every_architecture() {
        for variant in TABLE {
            for arch in Arch::ALL {
                assert!(variant.threads(arch) <= 1024, "{} on {arch}", variant.name);
                let ring = variant.stage_bytes * variant.stages[arch as usize];
                assert!(ring < arch.shared_bytes_max(), "{} on {arch}", variant.name);
            }
        }
    }
}
