//! The record of a step that did not end: who waited for what.

use crate::dump::NO_BLOCK;
use crate::{Phase, Role, WaitKind};

/// What one role of one block waited for when the step aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockWait {
    /// Who waited.
    pub block: u16,
    /// Which role of the block.
    pub role: Role,
    /// Which of the role's warps.
    pub warp: u32,
    /// For what.
    pub kind: WaitKind,
    /// Of which phase.
    pub phase: Phase,
    /// Of which layer; `None` for a phase that occurs once a step.
    pub layer: Option<u16>,
    /// Whose value it was: for an exchange another block, for the ring the block itself; `NO_BLOCK`
    /// for a count that lacks nobody in particular.
    pub producer: u16,
    /// Exchange: the unit. Ring: the stage.
    pub unit: u32,
    /// Epoch, count or parity waited for.
    pub expected: u32,
    /// Epoch, count or parity seen.
    pub seen: u32,
}

/// A step that did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultDump {
    /// Row of the variant table.
    pub variant: String,
    /// What the step ran on, in the machine's own words.
    pub device: String,
    /// Model whose step it was.
    pub model: String,
    /// Number of blocks.
    pub blocks: u16,
    /// Position of the step.
    pub position: u32,
    /// The waits' timeout, in nanoseconds.
    pub timeout_ns: u64,
    /// The wait that was found to be the cause.
    pub cause: BlockWait,
    /// The waits of all roles that were waiting, the cause included, by block and role.
    pub waits: Vec<BlockWait>,
}

impl BlockWait {
    /// What it waited for, and on whom, in words.
    pub fn what(&self) -> String {
        let name = self.phase.name();
        let place = match self.layer {
            Some(layer) => format!("{name} of layer {layer}"),
            None => name.to_owned(),
        };
        let BlockWait { unit, expected, seen, producer, .. } = self;
        match self.kind {
            WaitKind::Exchange if *producer == NO_BLOCK => format!(
                "{place} from nobody in particular (counter at unit {unit}: expected a count of \
                 {expected}, saw {seen})"
            ),
            WaitKind::Exchange => format!(
                "{place} from block {producer} (unit {unit}: expected epoch {expected}, saw {seen})"
            ),
            WaitKind::RingFull => format!(
                "the weights of {place} in ring stage {unit} (parity {expected}): its loader or \
                 the copy engine"
            ),
            WaitKind::RingEmpty => format!(
                "ring stage {unit} to be released for {place} (parity {expected}): its own \
                 consumer warps"
            ),
        }
    }
}
