//! The variant table: every kernel is a row of it.

use crate::source::{ENTRY, ENTRY_OF_PHASES, KERNELS, KERNELS_OF_PHASES};
use crate::{Arch, KernelError, Shape};
use monolith_abi::formats::FormatMap;
use monolith_abi::step::{Step, Tuning, shared_bytes};
use monolith_abi::{Attention, Handoff, Launch, WeightFormat};

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
    /// Whether attention is a phase of its own.
    pub attention: Attention,
    /// How the blocks are launched.
    pub launch: Launch,
    /// Whether spans are recorded.
    pub xray: bool,
    /// Machine instructions that the variant must have.
    pub instructions: &'static [&'static str],
}

/// Static shared memory, rounded up: the failed waits, and in X-ray builds the watcher's words
/// (loading a kernel checks its own figure).
const STATIC_BYTES: usize = 1 << 10;

/// The basic bf16 row; the other rows are derived from it.
const BF16_FLAG: Variant = Variant {
    name: "bf16-flag",
    format: WeightFormat::Bf16,
    head_format: WeightFormat::Bf16,
    handoff: Handoff::FlagInData,
    attention: Attention::Fused,
    launch: Launch::Cooperative,
    xray: false,
    // Tensor cores; the bulk copies of the weight stream; the mbarriers of its ring.
    instructions: &["HMMA", "UBLKCP", "SYNCS"],
};

const FP8_FLAG: Variant = Variant {
    name: "fp8-flag",
    format: WeightFormat::Fp8,
    head_format: WeightFormat::Fp8,
    ..BF16_FLAG
};

/// The LM head stays in bf16.
const FP8_HEAD_BF16: Variant =
    Variant { name: "fp8-head-bf16-flag", head_format: WeightFormat::Bf16, ..FP8_FLAG };

impl Variant {
    const fn apart(self, name: &'static str) -> Variant {
        Variant { name, attention: Attention::Apart, ..self }
    }

    const fn handed(self, name: &'static str, handoff: Handoff) -> Variant {
        Variant { name, handoff, ..self }
    }

    const fn by_phase(self, name: &'static str, launch: Launch) -> Variant {
        Variant { name, handoff: Handoff::Boundary, launch, ..self }
    }

    const fn recording(self, name: &'static str) -> Variant {
        Variant { name, xray: true, ..self }
    }
}

/// The rows that the ablation measures besides a basic one, for a format: the same arithmetic with
/// other hand-offs, and with attention apart. Each has a row that records it, unless every phase is
/// a kernel.
macro_rules! ablation {
    ($base:expr, $format:literal) => {
        [
            $base.apart(concat!($format, "-flag-apart")),
            $base.apart("").recording(concat!($format, "-flag-apart-xray")),
            $base.handed(concat!($format, "-counter"), Handoff::Counter),
            $base.handed("", Handoff::Counter).recording(concat!($format, "-counter-xray")),
            $base.handed(concat!($format, "-barrier"), Handoff::Barrier),
            $base.handed("", Handoff::Barrier).recording(concat!($format, "-barrier-xray")),
            $base.by_phase(concat!($format, "-graph"), Launch::Graph),
            $base.by_phase("", Launch::Graph).apart(concat!($format, "-graph-apart")),
            $base.by_phase(concat!($format, "-dependent"), Launch::Dependent),
            $base.by_phase("", Launch::Dependent).apart(concat!($format, "-dependent-apart")),
            $base.by_phase(concat!($format, "-dependent-graph"), Launch::DependentGraph),
            $base
                .by_phase("", Launch::DependentGraph)
                .apart(concat!($format, "-dependent-graph-apart")),
        ]
    };
}

const RELEASED: [Variant; 6] = [
    BF16_FLAG,
    BF16_FLAG.recording("bf16-flag-xray"),
    FP8_FLAG,
    FP8_FLAG.recording("fp8-flag-xray"),
    FP8_HEAD_BF16,
    FP8_HEAD_BF16.recording("fp8-head-bf16-flag-xray"),
];
const ABLATION: [[Variant; 12]; 2] = [ablation!(BF16_FLAG, "bf16"), ablation!(FP8_FLAG, "fp8")];

/// Every variant: the released ones, then those that only the ablation measures.
pub const TABLE: &[Variant] = &ALL;

static ALL: [Variant; RELEASED.len() + ABLATION.as_flattened().len()] = {
    let mut all = [BF16_FLAG; RELEASED.len() + ABLATION.as_flattened().len()];
    let (released, others) = all.split_at_mut(RELEASED.len());
    released.copy_from_slice(&RELEASED);
    others.copy_from_slice(ABLATION.as_flattened());
    all
};

/// The variants that a release embeds. The others are compiled where they run.
pub fn released() -> impl Iterator<Item = &'static Variant> {
    TABLE.iter().filter(|variant| variant.is_released())
}

impl Variant {
    /// Returns whether every phase is a kernel.
    pub fn is_by_phase(&self) -> bool {
        self.launch != Launch::Cooperative
    }

    /// Returns the path of the file that is compiled for the row.
    pub fn entry(&self) -> &'static str {
        if self.is_by_phase() { ENTRY_OF_PHASES } else { ENTRY }
    }

    /// Returns the names of the row's kernels.
    pub fn kernels(&self) -> &'static [&'static str] {
        if self.is_by_phase() { &KERNELS_OF_PHASES } else { &KERNELS }
    }

    /// Returns whether a release embeds the row.
    pub fn is_released(&self) -> bool {
        RELEASED.iter().any(|row| row.name == self.name)
    }

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
    pub fn threads(&self, arch: Arch) -> u32 {
        // The epilogue's and the loader's warps; in recording builds also the observer's and the
        // watcher's.
        let others = 2 + 2 * usize::from(self.xray);
        32 * (arch.tuning(self).consumer_warps + others) as u32
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

    /// Returns the step of a model on an architecture. The ring has as many stages as the
    /// architecture's row says, or fewer if the model's activation is wide.
    pub fn step(&self, arch: Arch, shape: &Shape) -> Step {
        let wanted = arch.tuning(self);
        // A loader that waited for the copy of more stages ago would wait for its own next.
        let with = |stages: usize| {
            let Tuning { flight, kv_flight, head_flight, .. } = wanted;
            let [flight, kv_flight, head_flight] =
                [flight, kv_flight, head_flight].map(|most| most.min(stages));
            Step::of(shape.dims(), Tuning { stages, flight, kv_flight, head_flight, ..wanted })
        };
        let room = (arch.shared_bytes_max() as usize).saturating_sub(STATIC_BYTES);
        let fewer = (1..=wanted.stages).rev().map(with);
        let mut steps = fewer.skip_while(|step| shared_bytes(step) > room);
        steps.next().unwrap_or_else(|| with(1))
    }

    /// Names the formats: one, or the layers' and the head's.
    pub fn formats(&self) -> String {
        let (layers, head) = (self.format.name(), self.head_format.name());
        if layers == head { layers.into() } else { format!("{layers}, head {head}") }
    }

    /// Returns whether the row's kernel multiplies by matrices of these formats: it has one for all
    /// matrices of the layers, and one for LM head and embedding.
    pub fn runs(&self, formats: FormatMap) -> bool {
        FormatMap::new(self.format, self.head_format) == formats
    }

    /// Returns the first row for these formats that does not record.
    pub fn of_formats(formats: FormatMap) -> Option<&'static Variant> {
        TABLE.iter().find(|row| row.runs(formats) && !row.xray)
    }

    /// Returns the constants of the row and the shape under the names in the kernels' sources.
    pub fn defines(&self, arch: Arch, shape: &Shape) -> Vec<(String, usize)> {
        let step = self.step(arch, shape);
        let mut defines = step.dims.defines();
        defines.extend(step.tuning.defines());
        defines.extend(
            [
                ("ML_FORMAT", self.format as usize),
                ("ML_HEAD_FORMAT", self.head_format as usize),
                ("ML_HANDOFF", self.handoff as usize),
                ("ML_ATTENTION", self.attention as usize),
                ("ML_LAUNCH", self.launch as usize),
                ("ML_SHARED_BYTES", shared_bytes(&step)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        defines
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
        let shape = Shape::of(&monolith_model::Config::qwen3_0_6b()).unwrap();
        for variant in TABLE {
            for arch in Arch::ALL {
                assert!(variant.threads(arch) <= 1024, "{} on {arch}", variant.name);
                let step = variant.step(arch, &shape);
                assert_eq!(step.tuning, arch.tuning(variant), "{} on {arch}: stages", variant.name);
                assert_eq!(step.sizes.threads as u32, variant.threads(arch));
            }
        }
    }
}
