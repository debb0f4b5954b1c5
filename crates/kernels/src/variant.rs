//! The variant table: every kernel that is built is a row of it.

use crate::{Arch, KernelError, Shape};
use monolith_abi::WeightFormat;

/// How one phase's output becomes visible to the next phase's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handoff {
    /// Value and epoch in one store; consumers poll the data itself.
    FlagInData,
}

/// A row: what is compiled in, and which instructions its machine code must have.
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
    /// Warps that compute, on sm_90a and on sm_120a; one more loads. 16 leave a thread 96
    /// registers, with which ptxas spills on the latter.
    pub consumer_warps: [u32; 2],
    /// Teams of consumer warps, on sm_90a and on sm_120a: each stage belongs to one team.
    pub teams: [u32; 2],
    /// Bytes of a ring slot.
    pub stage_bytes: u32,
    /// Ring slots on sm_90a and on sm_120a.
    pub stages: [u32; 2],
    /// Positions of the KV cache that a warp takes at a time.
    pub kv_chunk: u32,
    /// Parts that the KV range of a head is split into.
    pub kv_splits: u32,
    /// Positions whose keys and values a warp loads before it uses the first.
    pub kv_ahead: u32,
    /// Machine instructions that the variant must have.
    pub instructions: &'static [&'static str],
}

/// Shared memory besides the ring, the activation and the warps' sums, rounded up: heads,
/// barriers and the like (the kernel's own figure is checked when it is loaded).
const FIXED_BYTES: u32 = 5 << 10;
/// A warp's sums of two batches of 128 rows.
const WARP_SUM_BYTES: u32 = 2 * 4 * 128;

/// The plain form in bf16; the other rows are this one with something changed.
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

/// Weights of half the size: a tile of 1,024 columns is one stage, and all warps take part in it.
/// With four teams a token took 551 us on an H200, with two 543, with one 537 (notes/fp8.md).
const FP8_FLAG: Variant = Variant {
    name: "fp8-flag",
    format: WeightFormat::Fp8,
    head_format: WeightFormat::Fp8,
    teams: [1, 1],
    ..BF16_FLAG
};

/// The LM head stays in bf16. Its matvec is a second piece of code, and with three positions ahead
/// the recording build would spill on sm_90a.
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
    /// The row of this name.
    ///
    /// # Errors
    /// There is none; the names there are, are listed.
    pub fn find(name: &str) -> Result<&'static Variant, KernelError> {
        TABLE
            .iter()
            .find(|variant| variant.name == name)
            .ok_or_else(|| KernelError::UnknownVariant { name: name.into() })
    }

    /// Threads of a block.
    pub const fn threads(&self, arch: Arch) -> u32 {
        (self.consumer_warps[arch as usize] + self.other_warps()) * 32
    }

    /// Warps of a block behind those that compute: the loader's, and where spans are recorded the
    /// observer's and the watcher's.
    pub const fn other_warps(&self) -> u32 {
        1 + 2 * self.xray as u32
    }

    /// The row that records this one's spans, if there is one.
    pub fn recorded(&self) -> Option<&'static Variant> {
        let alike =
            |other: &&Variant| Variant { name: other.name, xray: other.xray, ..*self } == **other;
        TABLE.iter().filter(|other| other.xray).find(alike)
    }

    /// The row whose time this one's spans show: itself, unless it records.
    pub fn headline(&self) -> Option<&'static Variant> {
        let alike =
            |other: &&Variant| Variant { name: other.name, xray: other.xray, ..*self } == **other;
        TABLE.iter().filter(|other| !other.xray).find(alike)
    }

    /// Slots of the ring for a model: those of the row, or as many as its wide activation leaves
    /// room for, by whole rounds of the teams.
    pub fn stages_for(&self, arch: Arch, shape: &Shape) -> u32 {
        let (wanted, teams) = (self.stages[arch as usize], self.teams[arch as usize]);
        let sums = self.consumer_warps[arch as usize] * WARP_SUM_BYTES;
        let taken = shape.activation_bytes() + sums + FIXED_BYTES;
        let room = arch.shared_bytes_max().saturating_sub(taken);
        let fit = room / self.stage_bytes / teams * teams;
        wanted.min(fit.max(teams))
    }

    /// The formats in words: one, or the layers' and the head's.
    pub fn formats(&self) -> String {
        let (layers, head) = (self.format.name(), self.head_format.name());
        if layers == head { layers.into() } else { format!("{layers}, head {head}") }
    }

    /// The row of a format that is not recorded, the first in the table.
    pub fn of_formats(layers: WeightFormat, head: WeightFormat) -> Option<&'static Variant> {
        let fits =
            |row: &&Variant| (row.format, row.head_format, row.xray) == (layers, head, false);
        TABLE.iter().find(fits)
    }

    /// The row as the kernels' sources call it.
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
