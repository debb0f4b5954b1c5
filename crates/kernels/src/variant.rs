//! The variant table: every kernel that is built is a row of it.

use crate::{Arch, KernelError};

/// How the weights are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// As in the checkpoint.
    Bf16,
}

/// How one phase's output becomes visible to the next phase's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handoff {
    /// Value and epoch in one store; consumers poll the data itself.
    FlagInData,
}

/// A row: what is compiled in, and what its machine code must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name used in every file, table and chart.
    pub name: &'static str,
    /// How the weights are encoded.
    pub format: Format,
    /// How a hand-off works.
    pub handoff: Handoff,
    /// Whether spans are recorded.
    pub xray: bool,
    /// Warps that compute, on sm_90a and on sm_120a; one more loads. 16 leave a thread 96
    /// registers, with which ptxas spills on the latter.
    pub consumer_warps: [u32; 2],
    /// Teams that the warps form, on sm_90a and on sm_120a: a stage is one team's.
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
    /// Machine instructions without which it would not be what it says.
    pub instructions: &'static [&'static str],
}

/// Every variant.
pub const TABLE: &[Variant] = &[Variant {
    name: "bf16-flag",
    format: Format::Bf16,
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
}];

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

    /// Threads of a block: the consumers' and the loader's.
    pub const fn threads(&self, arch: Arch) -> u32 {
        (self.consumer_warps[arch as usize] + 1) * 32
    }

    /// Slots of the ring.
    pub const fn stages_on(&self, arch: Arch) -> u32 {
        match arch {
            Arch::Sm90a => self.stages[0],
            Arch::Sm120a => self.stages[1],
        }
    }

    /// The row as the kernels' sources call it.
    pub fn defines(&self, arch: Arch) -> [(&'static str, u32); 9] {
        [
            ("ML_CONSUMER_WARPS", self.consumer_warps[arch as usize]),
            ("ML_TEAMS", self.teams[arch as usize]),
            ("ML_STAGE_BYTES", self.stage_bytes),
            ("ML_STAGES", self.stages_on(arch)),
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
                let ring = variant.stage_bytes * variant.stages_on(arch);
                assert!(ring < arch.shared_bytes_max(), "{} on {arch}", variant.name);
            }
        }
    }
}
