//! Every fact that two languages share, written once: phase ids, event kinds, the dump record,
//! the pack's constants. `cargo xtask generate` writes them out for the other languages
//! ([`generate`]); `cargo xtask tidy` fails when a generated file is stale.

#[macro_use]
pub mod wire;
pub mod dump;
pub mod fault;
pub mod formats;
pub mod generate;
pub mod kernel;
pub mod pack;
pub mod step;
pub mod xray;

pub use formats::{MatrixKind, ProductPath, WeightFormat};
pub use xray::Moment;

wire_enum! {
    /// A named part of a step, in order of use. `Embed`, `LmHead` and `Argmax` occur once a step,
    /// the others once a layer.
    Phase {
        /// Token id to residual stream.
        Embed = 0, "embed";
        /// Input norm, then the q, k and v projections.
        Qkv = 1, "qkv";
        /// QK-norm, RoPE, KV write, attention over the cache.
        Attention = 2, "attention";
        /// Output projection, added to the residual stream.
        OProj = 3, "o_proj";
        /// Post-attention norm, gate and up projections, silu(gate) * up.
        GateUp = 4, "gate_up";
        /// Down projection, added to the residual stream.
        Down = 5, "down";
        /// Final norm, then one logit a vocabulary row.
        LmHead = 6, "lm_head";
        /// The lowest index of the largest logit.
        Argmax = 7, "argmax";
    }
}

impl Phase {
    /// The phases of one layer, in order.
    pub const LAYER: [Phase; 5] =
        [Phase::Qkv, Phase::Attention, Phase::OProj, Phase::GateUp, Phase::Down];

    /// Whether the phase occurs once a layer (and not once a step).
    pub fn is_per_layer(self) -> bool {
        Self::LAYER.contains(&self)
    }
}

wire_enum! {
    /// What a span of a block's time was spent on: a closed set.
    EventKind {
        /// The phase's own arithmetic and memory traffic.
        Work = 0, "work";
        /// Blocked on an exchange: values of the named phase had not arrived yet.
        WaitExchange = 1, "wait_exchange";
        /// A consumer blocked on the ring: the named phase's weights were not there yet.
        WaitRingFull = 2, "wait_ring_full";
        /// The loader blocked on the ring: consumers had not released a stage yet.
        WaitRingEmpty = 3, "wait_ring_empty";
        /// Blocked on the block's own barrier: other warps were not there yet.
        WaitBarrier = 4, "wait_barrier";
        /// Nothing is known of this time.
        Unrecorded = 5, "unrecorded";
        /// The loader blocked on its own copies: as many were in flight as may be.
        WaitCopies = 6, "wait_copies";
    }
}

impl EventKind {
    /// Whether the span is time blocked on somebody else.
    pub fn is_wait(self) -> bool {
        !matches!(self, EventKind::Work | EventKind::Unrecorded)
    }
}

wire_enum! {
    /// Who in a block a span is of: each role has a track of its own.
    Role {
        /// The warps that compute.
        Consumer = 0, "consumer";
        /// The lane that streams the weights.
        Loader = 1, "loader";
        /// The warp that adds up the consumer warps' sums and publishes.
        Epilogue = 2, "epilogue";
    }
}

wire_enum! {
    /// How one phase's output becomes visible to the next phase's blocks: a file of
    /// `crates/kernels/cu/handoff`.
    Handoff {
        /// Value and epoch in one store; consumers poll the flagged word itself.
        FlagInData = 0, "flag";
        /// Producers count the pieces that they have published, consumers poll the counter of those
        /// that they need, then load the values.
        Counter = 1, "counter";
        /// Every block counts itself once a phase, and consumers wait for the whole grid.
        Barrier = 2, "barrier";
        /// The end of a kernel: the values are there when the next kernel begins.
        Boundary = 3, "boundary";
    }
}

wire_enum! {
    /// Where attention stands in a layer, up to the positions that one block attends to. (Beyond,
    /// its blocks hand partial results over to the O projection in either form.)
    Attention {
        /// In one phase with the O projection: each of its blocks attends for itself.
        Fused = 0, "fused";
        /// A phase of its own: a block a KV head attends, and hands the output over.
        Apart = 1, "apart";
    }
}

wire_enum! {
    /// How a step's blocks are launched: a file of `crates/engine/src/cuda/launch`.
    Launch {
        /// One launch a step, all blocks resident.
        Cooperative = 0, "cooperative";
        /// A kernel a phase, all of a step's in a graph.
        Graph = 1, "graph";
        /// The same with programmatic dependent launch: a kernel's blocks start before the kernel
        /// before it has ended, and load weights meanwhile.
        DependentGraph = 2, "dependent-graph";
        /// The same kernels without a graph, one launch after the other.
        Dependent = 3, "dependent";
    }
}

wire_enum! {
    /// What a block of the megakernel can wait for.
    WaitKind {
        /// A value of another block.
        Exchange = 0, "exchange";
        /// Weights that have not arrived yet.
        RingFull = 1, "ring_full";
        /// A stage that the consumers have not released yet.
        RingEmpty = 2, "ring_empty";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positions_and_names_are_unique() {
        for (id, phase) in Phase::ALL.iter().enumerate() {
            assert_eq!(*phase as usize, id);
            assert_eq!(Phase::from_id(id as u8), Some(*phase));
            assert_eq!(Phase::from_name(phase.name()), Some(*phase));
        }
        for (id, kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, id);
            assert_eq!(EventKind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(Phase::from_id(Phase::ALL.len() as u8), None);
        assert_eq!(EventKind::from_id(255), None);
    }
}
